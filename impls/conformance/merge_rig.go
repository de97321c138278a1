package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/impls/merge"
)

// rig is a merger under test with its recorder and its receiver.
type rig struct {
	TB
	setup
	merge.Merger
	events *events
	ctx    context.Context
	ends   []func() // run at the end of the check
}

func newRig(t TB, s setup) *rig {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &rig{TB: t, setup: s, events: &events{}, ctx: ctx}
	opts := s.options
	opts.Recorder = r.events
	m, err := s.variant.New(opts)
	if err != nil {
		t.Fatalf("%s: %v", s.variant.Name, err)
	}
	r.Merger = m
	r.ends = append(r.ends, cancel, m.Close)
	return r
}

// finish closes the merger and those of [rig.with].
func (r *rig) finish() {
	r.Helper()
	for _, end := range r.ends {
		end()
	}
}

// with returns another rig of the same setup with other options.
func (r *rig) with(set func(*merge.Options)) *rig {
	r.Helper()
	s := r.setup
	set(&s.options)
	other := newRig(r.TB, s)
	r.ends = append(r.ends, other.finish)
	return other
}

// events is a recorder that keeps its events.
type events struct {
	mu    sync.Mutex
	lines []string
}

// Eventf is [merge.EventRecorder].
func (e *events) Eventf(object runtime.Object, eventtype, reason, format string, args ...any) {
	name := ""
	if pod, ok := object.(*v1.Pod); ok {
		name = string(pod.UID)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, fmt.Sprintf("%s %s %s: %s", name, eventtype, reason, fmt.Sprintf(format, args...)))
}

// take returns the events and clears them.
func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := e.lines
	e.lines = nil
	return lines
}

// take uses all rights of a receiver: it returns a copy for the check and overwrites the pods and the list.
func (r *rig) take(update merge.PodUpdate) merge.PodUpdate {
	pods := slices.Clone(update.Pods)
	if pods == nil && update.Pods != nil {
		pods = []*v1.Pod{}
	}
	for i, pod := range pods {
		if pod == nil {
			continue
		}
		pods[i] = pod.DeepCopy()
		scribble(pod)
	}
	clear(update.Pods)
	update.Pods = pods
	return update
}

// merge merges an update of a source and returns what was sent.
func (r *rig) merge(source string, op merge.Op, pods ...*v1.Pod) []merge.PodUpdate {
	r.Helper()
	return r.collect(func() { r.must(source, merge.PodUpdate{Op: op, Pods: pods}) })
}

// must merges an update that is valid.
func (r *rig) must(source string, update merge.PodUpdate) {
	if err := r.Merge(r.ctx, source, update); err != nil {
		r.Errorf("%v from %s: %v", update.Op, source, err)
	}
}

// collect calls run and returns the notifications that it causes.
func (r *rig) collect(run func()) []merge.PodUpdate {
	r.Helper()
	call := Async(func() error { run(); return nil })
	all := r.sent()
	if ok, _ := call.Returned(); !ok {
		r.Fatal("a call does not return, although all notifications have been received")
	}
	return all
}

// sent receives until the merger waits for anything but a receiver.
func (r *rig) sent() []merge.PodUpdate {
	var all []merge.PodUpdate
	for {
		synctest.Wait()
		select {
		case update, open := <-r.Updates():
			if !open {
				return all
			}
			all = append(all, r.take(update))
		default:
			return all
		}
	}
}

// noop changes nothing. A channel accepts it when the previous update has been merged.
var noop = merge.PodUpdate{Op: merge.REMOVE}

// push sends updates through a channel and returns their notifications.
func (r *rig) push(in chan<- merge.PodUpdate, updates ...merge.PodUpdate) []merge.PodUpdate {
	r.Helper()
	return r.collect(func() {
		for _, update := range updates {
			in <- update
		}
		in <- noop
	})
}

// placeOf returns the source and UID of a pod that was sent.
func placeOf(pod *v1.Pod) string {
	return pod.Annotations[merge.ConfigSourceAnnotation] + "/" + string(pod.UID)
}

// expect compares notifications in the format of show, one per line.
func (r *rig) expect(got []merge.PodUpdate, want ...string) {
	r.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), show(got)); diff != "" {
		r.Errorf("notifications (-want +got):\n%s", diff)
	}
	for _, update := range got {
		if update.Pods == nil {
			r.Errorf("the pods of a %v are nil", update.Op)
		}
	}
}

// show returns updates as lines such as "ADD api a b". The pods of snapshots
// and removals, whose order is not guaranteed, are sorted.
func show(updates []merge.PodUpdate) string {
	lines := make([]string, len(updates))
	for i, update := range updates {
		sortUnordered(&update)
		var b strings.Builder
		fmt.Fprintf(&b, "%v %s", update.Op, update.Source)
		for _, pod := range update.Pods {
			fmt.Fprintf(&b, " %s", pod.UID)
		}
		lines[i] = b.String()
	}
	return strings.Join(lines, "\n")
}

// advance moves the bubble's clock.
func advance(d time.Duration) { <-time.After(d) }
