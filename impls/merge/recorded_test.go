package merge_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls/merge"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// recordedSources share the pods of a recording.
var recordedSources = []string{merge.APISource, merge.FileSource, merge.HTTPSource}

// TestRecordedStreams runs recordings of a real control plane through every variant, with several
// concurrent sources. Each source must send the notifications of the reference in the same order,
// and the final state must be equal. Lists and incremental updates must give the same state.
func TestRecordedStreams(t *testing.T) {
	reference, err := merge.Lookup("reference")
	if err != nil {
		t.Fatal(err)
	}
	names, maxEvents := []string{"recorded-nodeloss", "recorded-gang"}, 600
	if testing.Short() {
		names, maxEvents = names[:1], 150
	}
	for _, name := range names {
		recording, err := trace.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		node, err := recording.ForNode(40)
		if err != nil {
			t.Fatal(err)
		}
		lists, incremental := streamsOf(node.Events[:min(len(node.Events), maxEvents)])
		var final map[string]*v1.Pod
		for how, streams := range map[string]map[string][]merge.PodUpdate{"lists": lists, "incremental": incremental} {
			want := playStreams(t, reference, streams)
			if final == nil {
				final = want.state
			} else if diff := gocmp.Diff(final, want.state); diff != "" {
				t.Errorf("%s: lists and incremental updates end differently:\n%s", name, diff)
			}
			for _, v := range merge.Variants() {
				if v.Baseline() {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", name, how, v.Name), func(t *testing.T) {
					playStreams(t, v, streams).compare(t, want)
				})
			}
		}
	}
}

// streamsOf returns the updates that each source has to send to make of events SETs of all its
// pods, or single operations. Each has the same content.
func streamsOf(events []storm.Event) (lists, incremental map[string][]merge.PodUpdate) {
	lists, incremental = make(map[string][]merge.PodUpdate), make(map[string][]merge.PodUpdate)
	random := rand.New(rand.NewPCG(1, uint64(len(events))))
	held := make(map[string]map[types.UID]*v1.Pod)
	for _, e := range events {
		pod := e.Object.(*v1.Pod)
		source := recordedSources[int(e.KeyIndex)%len(recordedSources)]
		if held[source] == nil {
			held[source] = make(map[types.UID]*v1.Pod)
		}
		op := merge.UPDATE
		if held[source][pod.UID] == nil {
			op = merge.ADD
		}
		if e.Type == watch.Deleted {
			op = merge.REMOVE
			delete(held[source], pod.UID)
		} else {
			held[source][pod.UID] = pod
		}
		incremental[source] = append(incremental[source], merge.PodUpdate{Op: op, Pods: []*v1.Pod{pod}})
		list := make([]*v1.Pod, 0, len(held[source]))
		for _, pod := range held[source] {
			list = append(list, pod)
		}
		slices.SortFunc(list, compareUIDs)
		random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		lists[source] = append(lists[source], merge.PodUpdate{Op: merge.SET, Pods: list})
	}
	return lists, incremental
}

func compareUIDs(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) }

// played is the received notifications.
type played struct {
	// sent has the notifications of each source, in order.
	sent map[string][]merge.PodUpdate
	// state is the final state by source and UID.
	state map[string]*v1.Pod
}

// playStreams runs the streams of all sources concurrently.
func playStreams(t *testing.T, v merge.Variant, streams map[string][]merge.PodUpdate) played {
	t.Helper()
	m, err := v.New(merge.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := played{sent: make(map[string][]merge.PodUpdate), state: make(map[string]*v1.Pod)}
	received := make(chan struct{})
	go func() {
		defer close(received)
		for update := range m.Updates() {
			h.hear(update)
		}
	}()
	var sources sync.WaitGroup
	for source, stream := range streams {
		sources.Go(func() {
			for _, update := range stream {
				if err := m.Merge(context.Background(), source, update); err != nil {
					t.Errorf("%s: %v", source, err)
				}
			}
		})
	}
	sources.Wait()
	m.Sync()
	m.Close()
	<-received
	return h
}

// hear notes an update. Times differ from player to player.
func (h *played) hear(update merge.PodUpdate) {
	for i, pod := range update.Pods {
		timeless := *pod
		timeless.Annotations = make(map[string]string, len(pod.Annotations))
		for key, value := range pod.Annotations {
			if key == merge.ConfigFirstSeenAnnotation {
				value = "some time"
			}
			timeless.Annotations[key] = value
		}
		update.Pods[i] = &timeless
	}
	if update.Source != merge.AllSource {
		h.sent[update.Source] = append(h.sent[update.Source], update)
		return
	}
	for _, pod := range update.Pods {
		h.state[pod.Annotations[merge.ConfigSourceAnnotation]+"/"+string(pod.UID)] = pod
	}
}

func (h played) compare(t *testing.T, want played) {
	t.Helper()
	for source := range want.sent {
		if len(h.sent[source]) != len(want.sent[source]) {
			t.Errorf("%s sent %d notifications, want %d", source, len(h.sent[source]), len(want.sent[source]))
			continue
		}
		for i, update := range want.sent[source] {
			if !reflect.DeepEqual(h.sent[source][i], update) {
				t.Fatalf("%s: number %d (-want +got):\n%s", source, i, gocmp.Diff(update, h.sent[source][i]))
			}
		}
	}
	if len(h.sent) != len(want.sent) {
		t.Errorf("%d sources sent something, want %d", len(h.sent), len(want.sent))
	}
	if !reflect.DeepEqual(h.state, want.state) {
		t.Errorf("state in the end (-want +got):\n%s", gocmp.Diff(want.state, h.state))
	}
}
