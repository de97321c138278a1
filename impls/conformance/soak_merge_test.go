package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/impls"
	"watchlab/impls/merge"
)

func mergeCells() []cell {
	var cells []cell
	for _, v := range merge.Variants() {
		if v.Baseline() {
			continue
		}
		cells = append(cells, cell{"merge/" + v.Name, func(t *testing.T, rng *rand.Rand, m *meter) {
			o := merge.Options{
				Capacity: []int{1, 7, 50}[rng.IntN(3)],
				HandOver: []impls.Ownership{impls.Owned, impls.Shared}[rng.IntN(2)],
			}
			merger, err := v.New(o)
			if err != nil {
				t.Fatalf("New(%+v): %v", o, err)
			}
			playMerge(t, rng, m, merger, o.HandOver == impls.Owned)
			if t.Failed() {
				t.Logf("options: capacity %d, hand-over %s", o.Capacity, o.HandOver)
			}
		}})
	}
	return cells
}

// node is one episode of a merger.
type node struct {
	merge.Merger
	owned bool
	// slow is the number of received updates of which one is slow; sets that of sent ones of which
	// one is a SET.
	slow, sets int
	// closed is closed with the merger. After that nobody receives from the
	// channels of the sources.
	closed  chan struct{}
	sources [producers]*source

	mu sync.Mutex
	// held is the last received change of each pod, by source and UID. mu guards the fields below.
	held map[string]map[types.UID]int
	// ended holds the sources whose last update of the round was received.
	ended  map[string]int
	failed error
}

// source is the sent state of one producer, which owns it.
type source struct {
	name string
	// channel is nil if the producer calls Merge.
	channel chan<- merge.PodUpdate
	pods    map[types.UID]*v1.Pod
	// change counts the sent updates; the status of each pod contains it.
	change int
	events int
}

// playMerge runs an episode of several rounds and closes the merger at a random
// time in the last one.
func playMerge(t *testing.T, rng *rand.Rand, m *meter, merger merge.Merger, owned bool) {
	n := &node{
		Merger: merger, owned: owned, closed: make(chan struct{}),
		slow: m.pick(1000, 1_000_000), sets: m.pick(3, 1000),
		held: map[string]map[types.UID]int{}, ended: map[string]int{},
	}
	for p := range producers {
		s := &source{name: fmt.Sprintf("source%d", p), pods: map[types.UID]*v1.Pod{}}
		if p%2 == 0 {
			var err error
			if s.channel, err = merger.Channel(t.Context(), s.name); err != nil {
				t.Fatal(err)
			}
		}
		n.sources[p] = s
	}
	var receiver sync.WaitGroup
	seed := rng.Uint64()
	receiver.Go(func() { n.receive(rand.New(rand.NewPCG(seed, 0))) })
	for round := range m.pick(1+rng.IntN(10), longRounds) {
		before := n.events()
		n.round(rng, m.each(20+rng.IntN(200)), round, nil)
		if err := n.settled(round); err != nil {
			t.Errorf("round %d: %v", round, err)
			break
		}
		m.sample(n.events() - before)
	}
	before := n.events()
	n.round(rng, 500, -1, time.After(time.Duration(rng.IntN(20_000))*time.Microsecond))
	n.close()
	receiver.Wait()
	m.sample(n.events() - before)
	if n.failed != nil {
		t.Error(n.failed)
	}
}

func (n *node) events() int {
	total := 0
	for _, s := range n.sources {
		total += s.events
	}
	return total
}

func (n *node) close() {
	n.mu.Lock()
	select {
	case <-n.closed:
	default:
		close(n.closed)
	}
	n.mu.Unlock()
	n.Close()
}

// round lets each source send a number of updates, and then a pod that ends the round.
func (n *node) round(rng *rand.Rand, each, round int, closeAt <-chan time.Time) {
	var all sync.WaitGroup
	done := make(chan struct{})
	for _, s := range n.sources {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		all.Go(func() {
			for range each {
				if !n.send(s, s.next(own, n.sets)) {
					return
				}
			}
			if round >= 0 {
				n.send(s, s.end(round))
			}
		})
	}
	var others sync.WaitGroup
	others.Go(func() {
		select {
		case <-closeAt:
			n.close()
		case <-done:
		}
	})
	all.Wait()
	close(done)
	others.Wait()
}

// send sends an update. It returns false if the merger was closed.
func (n *node) send(s *source, u merge.PodUpdate) bool {
	s.events++
	if s.channel != nil {
		select {
		case s.channel <- u:
			return true
		case <-n.closed:
			return false
		}
	}
	err := n.Merge(context.Background(), s.name, u)
	if err != nil && !errors.Is(err, merge.ErrClosed) {
		n.fail(fmt.Errorf("%s: %w", s.name, err))
	}
	return err == nil
}

func (n *node) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed == nil {
		n.failed = err
	}
}

const podsEach = 30

// next returns an update of one pod, or one time in sets of all.
func (s *source) next(rng *rand.Rand, sets int) merge.PodUpdate {
	uid := types.UID(s.name + "-" + strconv.Itoa(rng.IntN(podsEach)))
	have := s.pods[uid]
	switch {
	case have != nil && rng.IntN(10) == 0:
		delete(s.pods, uid)
		return merge.PodUpdate{Op: merge.REMOVE, Pods: []*v1.Pod{have}}
	case rng.IntN(sets) == 0:
		// The complete state in any order, with one pod changed or removed.
		if s.set(uid, have, rng); rng.IntN(8) == 0 {
			delete(s.pods, uid)
		}
		u := merge.PodUpdate{Op: merge.SET}
		for _, pod := range s.pods {
			u.Pods = append(u.Pods, pod)
		}
		return u
	default:
		s.set(uid, have, rng)
		return merge.PodUpdate{Op: []merge.Op{merge.ADD, merge.UPDATE}[rng.IntN(2)], Pods: []*v1.Pod{s.pods[uid]}}
	}
}

// set changes a pod's status, and usually its labels.
func (s *source) set(uid types.UID, have *v1.Pod, rng *rand.Rand) {
	s.change++
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: string(uid), UID: uid}}
	if have != nil {
		*pod = *have // All that follows replaces, and changes nothing in place.
	}
	pod.ResourceVersion = strconv.Itoa(s.change)
	pod.Status.Message = pod.ResourceVersion
	if rng.IntN(3) > 0 {
		pod.Labels = map[string]string{"change": pod.ResourceVersion}
	}
	s.pods[uid] = pod
}

// end returns the update that ends a round: a pod that sorts after all others of the source.
func (s *source) end(round int) merge.PodUpdate {
	s.change++
	uid := types.UID(s.name + "-end")
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: string(uid), UID: uid, ResourceVersion: strconv.Itoa(s.change),
		Labels: map[string]string{"round": strconv.Itoa(round + 1)},
	}}
	pod.Status.Message = pod.ResourceVersion
	s.pods[uid] = pod
	return merge.PodUpdate{Op: merge.ADD, Pods: []*v1.Pod{pod}}
}

// receive receives until the merger is closed, with random pauses.
func (n *node) receive(rng *rand.Rand) {
	for u := range n.Updates() {
		if rng.IntN(n.slow) == 0 {
			<-time.After(time.Duration(rng.IntN(4)) * time.Millisecond)
		}
		n.mu.Lock()
		if err := n.take(u); err != nil && n.failed == nil {
			n.failed = err
		}
		n.mu.Unlock()
	}
}

func (n *node) take(u merge.PodUpdate) error {
	held := n.held[u.Source]
	if held == nil {
		held = map[types.UID]int{}
		n.held[u.Source] = held
	}
	for _, pod := range u.Pods {
		if u.Op == merge.REMOVE {
			if _, there := held[pod.UID]; !there {
				return fmt.Errorf("%s: REMOVE of %s, which was not told", u.Source, pod.UID)
			}
			delete(held, pod.UID)
			continue
		}
		change, err := strconv.Atoi(pod.Status.Message)
		if err != nil {
			return fmt.Errorf("%s: %s has a status that nobody told: %w", u.Source, pod.UID, err)
		}
		if last, there := held[pod.UID]; there && change <= last {
			return fmt.Errorf("%s: %v of change %d of %s came after change %d", u.Source, u.Op, change, pod.UID, last)
		}
		held[pod.UID] = change
		if round, err := strconv.Atoi(pod.Labels["round"]); err == nil {
			n.ended[u.Source] = round
		}
		if n.owned {
			// The receiver may write to pods that it owns.
			pod.Status.Message, pod.Labels = "scribble", nil
		}
	}
	return nil
}

// settled waits until all sources have ended the round, and compares the received
// state with the sent one.
func (n *node) settled(round int) error {
	for deadline := time.Now().Add(patience); !n.allEnded(round); {
		if time.Now().After(deadline) {
			return errors.New("the end of the round was not told")
		}
		<-time.After(time.Millisecond)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sources {
		held := n.held[s.name]
		if len(held) != len(s.pods) {
			return fmt.Errorf("%s: the receiver holds %d pods, want %d", s.name, len(held), len(s.pods))
		}
		for uid, pod := range s.pods {
			if strconv.Itoa(held[uid]) != pod.ResourceVersion || pod.Status.Message != pod.ResourceVersion {
				return fmt.Errorf("%s: the receiver holds change %d of %s, want %s (%s)", s.name, held[uid], uid, pod.ResourceVersion, pod.Status.Message)
			}
		}
	}
	return nil
}

func (n *node) allEnded(round int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.sources {
		if n.failed == nil && n.ended[s.name] != round+1 {
			return false
		}
	}
	return true
}
