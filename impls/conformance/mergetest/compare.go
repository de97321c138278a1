package mergetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"watchlab/impls/merge"
)

// Compare holds variants against the wanted one: the same random updates, of
// all operations, sources and modes, must give the same notifications, events
// and state after every step. On failure, rapid prints the seed and the
// shortest updates that it finds.
//
// Two things are not compared as they are. Where no order of pods is promised
// (in a REMOVE and in a snapshot), they are sorted. And config.seen is a time:
// it must be the one that the pod had before, or else be a new one.
//
// Every variant gets pods of its own, which are the same pointer where the
// updates have the same pointer. A pointer isn't sent again once another came
// for the same UID: kubelet writes what came later into what it got first, so
// that to it the old pointer would have the new content.
func Compare(t *testing.T, want merge.Variant, others ...merge.Variant) {
	t.Helper()
	if len(others) == 0 {
		t.Fatal("nothing to compare with")
	}
	rapid.Check(t, func(t *rapid.T) {
		script := drawScript(t)
		wanted := play(t, want, script)
		for _, other := range others {
			got := play(t, other, script)
			for i := range script.steps {
				if diff := cmp.Diff(wanted[i], got[i]); diff != "" {
					t.Fatalf("%s and %s part ways (-%s +%s) at step %d of\n%s\n%s",
						want.Name, other.Name, want.Name, other.Name, i, script, diff)
				}
			}
		}
	})
}

// script is a sequence of updates.
type script struct {
	mode    merge.Mode
	channel bool
	steps   []step
}

type step struct {
	source string
	op     merge.Op
	pods   []*v1.Pod
	// how says for each pod where it comes from.
	how []string
}

// String returns the script as one line a step.
func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "mode %s, through the channel: %v\n", s.mode, s.channel)
	for i, step := range s.steps {
		fmt.Fprintf(&b, "%d: %v %s", i, step.op, step.source)
		for j, pod := range step.pods {
			fmt.Fprintf(&b, " %s_%s(%s: %s)", pod.Name, pod.Namespace, pod.UID, step.how[j])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// mutations are what may happen to a pod from one update to the next.
var mutations = []struct {
	name string
	run  func(*v1.Pod)
}{
	{"copied", func(*v1.Pod) {}},
	{"image", newImage},
	{"status", newMessage},
	{"conditions nil", func(p *v1.Pod) { p.Status.Conditions = nil }},
	{"conditions empty", func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{} }},
	{"tolerations nil", func(p *v1.Pod) { p.Spec.Tolerations = nil }},
	{"tolerations empty", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{} }},
	{"selector", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": p.Spec.NodeSelector["pool"] + "+"} }},
	{"labels nil", func(p *v1.Pod) { p.Labels = nil }},
	{"labels empty", func(p *v1.Pod) { p.Labels = map[string]string{} }},
	{"label", func(p *v1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "app", p.Labels["app"]+"+") }},
	{"annotations nil", func(p *v1.Pod) { p.Annotations = nil }},
	{"annotation", func(p *v1.Pod) { annotated("note", p.Annotations["note"]+"+")(p) }},
	{"no annotation", unannotated("note")},
	{"source", annotated(merge.ConfigSourceAnnotation, "elsewhere")},
	{"seen", annotated(merge.ConfigFirstSeenAnnotation, "never")},
	{"mirror", annotated(merge.ConfigMirrorAnnotation, "m")},
	{"other mirror", annotated(merge.ConfigMirrorAnnotation, "n")},
	{"no mirror", unannotated(merge.ConfigMirrorAnnotation)},
	{"deleted", markDeleted},
	{"not deleted", func(p *v1.Pod) { p.DeletionTimestamp = nil }},
	{"grace", func(p *v1.Pod) { p.DeletionGracePeriodSeconds = new(int64) }},
	{"no grace", func(p *v1.Pod) { p.DeletionGracePeriodSeconds = nil }},
	{"version", newVersion},
	{"finalizer", func(p *v1.Pod) { p.Finalizers = append(p.Finalizers, "f") }},
	{"named a", named("a")},
	{"named b", named("b")},
	{"elsewhere", func(p *v1.Pod) { p.Namespace = "elsewhere" }},
	{"afresh", func(p *v1.Pod) { *p = *newPod(string(p.UID)) }},
}

// drawScript draws updates of a few pods, so that they often meet.
func drawScript(t *rapid.T) script {
	s := script{
		mode: rapid.SampledFrom([]merge.Mode{
			merge.Incremental, merge.Incremental, merge.SnapshotAndUpdates, merge.Snapshot,
		}).Draw(t, "mode"),
		channel: rapid.Bool().Draw(t, "channel"),
	}
	type place struct {
		source string
		uid    types.UID
	}
	newest := make(map[place]*v1.Pod)
	for i := range rapid.IntRange(1, 24).Draw(t, "steps") {
		st := step{
			source: rapid.SampledFrom([]string{merge.APISource, merge.FileSource, merge.HTTPSource}).Draw(t, "source"),
			op: rapid.SampledFrom([]merge.Op{
				merge.SET, merge.SET, merge.SET, merge.ADD, merge.UPDATE, merge.DELETE, merge.REMOVE,
			}).Draw(t, "op"),
		}
		for range rapid.IntRange(0, 7).Draw(t, fmt.Sprint("pods of step ", i)) {
			uid := rapid.SampledFrom([]types.UID{"a", "b", "c", "d", "e", "f"}).Draw(t, "uid")
			at := place{st.source, uid}
			pod, how := newest[at], "same"
			if pod == nil {
				pod, how = newPod(string(uid)), "new"
			} else if !rapid.Bool().Draw(t, "same") {
				pod, how = pod.DeepCopy(), ""
				for range rapid.IntRange(1, 2).Draw(t, "mutations") {
					m := mutations[rapid.IntRange(0, len(mutations)-1).Draw(t, "mutation")]
					m.run(pod)
					how += m.name + ","
				}
			}
			newest[at] = pod
			st.pods = append(st.pods, pod)
			st.how = append(st.how, strings.TrimSuffix(how, ","))
		}
		s.steps = append(s.steps, st)
	}
	return s
}

// result is what a step gave.
type result struct {
	Notifications []merge.PodUpdate
	State         []*v1.Pod
	Events        []string
}

// player plays a script into one merger.
type player struct {
	merge.Merger
	seen map[string]string // config.seen of the state, by source and UID
}

// play returns what each step of the script gave.
func play(t *rapid.T, v merge.Variant, s script) []result {
	recorder := &events{}
	m, err := v.New(merge.Options{Mode: s.mode, Recorder: recorder})
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := m.(interface{ Close() }); ok {
		defer c.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &player{Merger: m, seen: make(map[string]string)}
	// The pods of this player, by those of the script.
	own := make(map[*v1.Pod]*v1.Pod)
	results := make([]result, 0, len(s.steps))
	for _, st := range s.steps {
		update := merge.PodUpdate{Op: st.op, Source: st.source}
		for _, pod := range st.pods {
			if own[pod] == nil {
				own[pod] = pod.DeepCopy()
			}
			update.Pods = append(update.Pods, own[pod])
		}
		if s.channel {
			in, err := m.Channel(ctx, st.source)
			if err != nil {
				t.Fatal(err)
			}
			in <- update
			// Taken when the update has been merged.
			in <- merge.PodUpdate{Op: merge.REMOVE}
		} else if err := m.Merge(ctx, st.source, update); err != nil {
			t.Fatalf("%s: %v", v.Name, err)
		}
		r := p.take(t, v.Name)
		r.Events, recorder.lines = recorder.lines, nil
		results = append(results, r)
	}
	return results
}

// take returns what was sent, and the state.
func (p *player) take(t *rapid.T, name string) result {
	var r result
	p.Sync()
	timeout := time.After(10 * time.Second)
	for {
		var update merge.PodUpdate
		select {
		case update = <-p.Updates():
		case <-timeout:
			t.Fatalf("%s: no state after %d notifications", name, len(r.Notifications))
		}
		sortUnordered(&update)
		if update.Source == merge.AllSource {
			r.State = update.Pods
			break
		}
		r.Notifications = append(r.Notifications, update)
	}
	seen := make(map[string]string)
	for _, pod := range r.State {
		seen[seenKey(pod)] = pod.Annotations[merge.ConfigFirstSeenAnnotation]
	}
	for _, update := range r.Notifications {
		p.maskSeen(update.Pods)
	}
	p.maskSeen(r.State)
	p.seen = seen
	return r
}

func seenKey(pod *v1.Pod) string {
	return pod.Annotations[merge.ConfigSourceAnnotation] + "/" + string(pod.UID)
}

// maskSeen puts words in place of the times in config.seen.
func (p *player) maskSeen(pods []*v1.Pod) {
	for i, pod := range pods {
		value, ok := pod.Annotations[merge.ConfigFirstSeenAnnotation]
		if !ok {
			continue
		}
		if value == p.seen[seenKey(pod)] {
			value = "as before"
		} else if len(value) == len("2006-01-02T15:04:05.000000000Z") || strings.ContainsAny(value, "+") {
			if _, err := time.Parse(time.RFC3339Nano, value); err == nil {
				value = "new"
			}
		}
		pod = pod.DeepCopy()
		pod.Annotations[merge.ConfigFirstSeenAnnotation] = value
		pods[i] = pod
	}
}

// Others returns the variants but the named one.
func Others(name string) []merge.Variant {
	return slices.DeleteFunc(merge.Variants(), func(v merge.Variant) bool { return v.Name == name })
}
