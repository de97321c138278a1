package mergetest

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"watchlab/impls"
	"watchlab/impls/merge"
)

// failer is what a comparison needs of a test.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Compare holds variants against the wanted one, as a state machine against its
// model: the same random updates, of all operations, sources, modes, capacities
// ways to hand over and what is trusted, with receivers that come late and callers that give up,
// must give the same notifications, events and states. On failure, rapid prints
// the seed and the shortest updates that it finds.
//
// Where no order of pods is promised (in a REMOVE and in a snapshot), they are
// sorted. Every variant gets pods of its own, which are the same pointer where
// the updates have the same pointer. A pointer isn't sent again once another
// came for the same UID: kubelet writes what came later into what it got first,
// so that to it the old pointer would have the new content.
func Compare(t *testing.T, want merge.Variant, others ...merge.Variant) {
	t.Helper()
	if len(others) == 0 {
		t.Fatal("nothing to compare with")
	}
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			compare(t, drawScript(rapidDice{t}), want, others)
		})
	})
}

// CompareBytes is [Compare] for the one script that the bytes stand for, for use
// in a fuzz test.
func CompareBytes(t *testing.T, bytes []byte, want merge.Variant, others ...merge.Variant) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		compare(t, drawScript(&byteDice{bytes}), want, others)
	})
}

func compare(t failer, s script, want merge.Variant, others []merge.Variant) {
	t.Helper()
	wanted := play(t, want, s)
	for _, other := range others {
		got := play(t, other, s)
		for i := range wanted {
			if !reflect.DeepEqual(wanted[i], got[i]) {
				t.Fatalf("%s and %s part ways (-%s +%s) at step %d of\n%s\n%s", want.Name, other.Name,
					want.Name, other.Name, wanted[i].Step, s, cmp.Diff(wanted[i], got[i]))
			}
		}
	}
}

// result is what a step gave, and those before it that were played alone.
type result struct {
	Step          int
	Notifications []merge.PodUpdate
	State         []*v1.Pod
	Events        []string
}

// player plays a script into one merger.
type player struct {
	failer
	merge.Merger
	variant merge.Variant
	ctx     context.Context
	events  events

	own map[*v1.Pod]*v1.Pod

	start time.Time
	receiver
}

// play returns what each step of the script gave.
func play(t failer, v merge.Variant, s script) []result {
	t.Helper()
	opts := merge.Options{Mode: s.mode}
	if !v.Baseline() {
		opts.Capacity, opts.HandOver, opts.Trust = s.capacity, s.handover, s.trust
	}
	p := &player{failer: t, variant: v, own: make(map[*v1.Pod]*v1.Pod), start: time.Now()}
	p.receiver.shares = opts.HandOver == impls.Shared
	opts.Recorder = &p.events
	m, err := v.New(opts)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	defer m.Close()
	p.Merger = m
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.ctx = ctx

	results := make([]result, 0, len(s.steps))
	var notifications []merge.PodUpdate
	for i, st := range s.steps {
		// As little as can be told apart: rapid takes the time to shorten a
		// script from this clock.
		advance(time.Microsecond)
		update := p.updateOf(st)
		switch {
		case st.alone && v.Guarantees[0].Unlocked:
			p.alone(st.source, update)
			continue
		case s.channel:
			notifications = append(notifications, p.push(st.source, update)...)
		default:
			notifications = append(notifications, p.collect(func() { p.merge(ctx, st.source, update) })...)
		}
		if st.alone {
			continue
		}
		r := result{Step: i, Notifications: notifications, Events: p.events.take()}
		notifications = nil
		for _, last := range p.collect(p.Sync) {
			r.State = last.Pods
		}
		results = append(results, r)
	}
	for _, diff := range p.spoilt() {
		t.Fatalf("%s: something that was told as shared has been written to (-told +now) in\n%s\n%s", v.Name, s, diff)
	}
	return results
}

// updateOf returns the update of a step, of the player's own pods.
func (p *player) updateOf(st step) merge.PodUpdate {
	update := merge.PodUpdate{Op: st.op, Source: st.source}
	for _, pod := range st.pods {
		if p.own[pod] == nil {
			p.own[pod] = pod.DeepCopy()
		}
		update.Pods = append(update.Pods, p.own[pod])
	}
	return update
}

// merge merges an update and returns whether ctx ended.
func (p *player) merge(ctx context.Context, source string, update merge.PodUpdate) {
	if err := p.Merge(ctx, source, update); err != nil && !errors.Is(err, ctx.Err()) {
		p.Fatalf("%s: %v", p.variant.Name, err)
	}
}

// alone merges an update while nobody receives.
func (p *player) alone(source string, update merge.PodUpdate) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.merge(ctx, source, update)
	}()
	synctest.Wait()
	cancel()
	<-done
}

// push merges an update through its source's channel.
func (p *player) push(source string, update merge.PodUpdate) []merge.PodUpdate {
	in, err := p.Channel(p.ctx, source)
	if err != nil {
		p.Fatalf("%s: %v", p.variant.Name, err)
	}
	return p.collect(func() {
		in <- update
		in <- noop
	})
}

// collect returns what is sent until a call returns.
func (p *player) collect(call func()) []merge.PodUpdate {
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	var all []merge.PodUpdate
	for {
		synctest.Wait()
		select {
		case update := <-p.Updates():
			all = append(all, p.told(update))
			continue
		default:
		}
		select {
		case <-done:
			return all
		default:
			p.Fatalf("%s: a call doesn't return, although all that was sent has been received", p.variant.Name)
		}
	}
}

// told returns an update as it is compared.
func (p *player) told(update merge.PodUpdate) merge.PodUpdate {
	update = p.take(update)
	sortUnordered(&update)
	for i, pod := range update.Pods {
		seen := pod.Annotations[merge.ConfigFirstSeenAnnotation]
		if at, err := time.Parse(time.RFC3339Nano, seen); err == nil {
			// In a copy: the receiver watches the pod that it took.
			pod = pod.DeepCopy()
			pod.Annotations[merge.ConfigFirstSeenAnnotation] = at.Sub(p.start).String()
			update.Pods[i] = pod
		}
	}
	return update
}

// Others returns the variants but the named one.
func Others(name string) []merge.Variant {
	return slices.DeleteFunc(merge.Variants(), func(v merge.Variant) bool { return v.Name == name })
}
