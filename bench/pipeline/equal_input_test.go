package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/impls/merge"
)

// spied names the variants that record what a merger receives.
const spied = "spied-"

var received = struct {
	sync.Mutex
	updates map[string][]string // by variant
}{updates: map[string][]string{}}

func init() {
	for _, v := range merge.Variants() {
		if strings.HasPrefix(v.Name, planted) {
			continue
		}
		spy, build := v, v.New
		spy.Name, spy.Upstream = spied+v.Name, ""
		spy.New = func(o merge.Options) (merge.Merger, error) {
			m, err := build(o)
			return &spyMerger{Merger: m, name: v.Name}, err
		}
		merge.Register(spy)
	}
}

type spyMerger struct {
	merge.Merger
	name string
}

// Channel returns a channel whose updates are recorded and passed on.
func (s *spyMerger) Channel(ctx context.Context, source string) (chan<- merge.PodUpdate, error) {
	to, err := s.Merger.Channel(ctx, source)
	from := make(chan merge.PodUpdate)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case u := <-from:
				received.Lock()
				received.updates[s.name] = append(received.updates[s.name], source+" "+digest(u))
				received.Unlock()
				select {
				case to <- u:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return from, err
}

// digest names the operation and the pods of an update. The order of a SET's pods is not defined.
func digest(u merge.PodUpdate) string {
	var pods []string
	for _, pod := range u.Pods {
		pods = append(pods, fmt.Sprintf("%s@%s", pod.UID, pod.ResourceVersion))
	}
	slices.Sort(pods)
	return fmt.Sprintf("%v %s", u.Op, strings.Join(pods, " "))
}

// TestEqualInput: all mergers of a comparison receive the same updates, in the same order, and each
// change of the storm as a SET of all pods.
func TestEqualInput(t *testing.T) {
	small := smallStorm(t)
	var names []string
	for _, v := range merge.Variants() {
		if strings.HasPrefix(v.Name, spied) {
			names = append(names, v.Name)
		}
	}
	for _, stages := range []string{"queue", "kubelet"} {
		received.updates = map[string][]string{}
		made, err := pipeline.Compare(pipeline.Config{Family: impls.Merge, Pipeline: stages, Impls: names, Storm: small})
		if err != nil {
			t.Fatal(err)
		}
		for _, comparison := range made {
			for _, c := range comparison.Cells {
				if _, runErr, checkErr := play(t.Context(), t, c); runErr != nil || checkErr != nil {
					t.Fatal(runErr, checkErr)
				}
			}
		}
		want := received.updates["reference"]
		sets := 0
		for _, u := range want {
			if strings.Contains(u, " "+merge.SET.String()+" ") {
				sets++
			}
		}
		for name, got := range received.updates {
			t.Logf("%s pipeline: %s receives %d updates, %d of them SETs", stages, name, len(got), sets)
			if !slices.Equal(got, want) {
				t.Errorf("%s pipeline: %s receives other updates than the reference", stages, name)
			}
		}
		if changes := len(small.Events) - small.Initial; len(received.updates) != len(names) || sets < changes {
			t.Errorf("%s pipeline: %d of %d mergers were played, with %d SETs for %d changes", stages, len(received.updates), len(names), sets, changes)
		}
	}
}
