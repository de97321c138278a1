package apiserver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/storm"
)

// played is a server of two storms with a player: 10 pod events, one each second from 1 s on, the first of
// them at first, and node events at 2.5 s and 4.5 s.
type played struct {
	*Player
	seen changes
}

func newPlayed(t *testing.T, speed float64) *played {
	t.Helper()
	one := churn(10)
	for i := range one.Events {
		one.Events[i].At = time.Duration(i) * time.Second
	}
	two := &storm.Storm{Name: "nodes", Resource: v1.SchemeGroupVersion.WithResource("nodes"), Kind: v1.SchemeGroupVersion.WithKind("Node"), Keys: 2}
	for i, name := range []string{"a", "b"} {
		node := &v1.Node{}
		node.Name, node.ResourceVersion = name, []string{"1", "2"}[i]
		two.Events = append(two.Events, storm.Event{Type: "ADDED", Seq: uint64(i + 1), At: time.Duration(2500+2000*i) * time.Millisecond, Key: name, KeyIndex: int32(i), Object: node})
	}
	budget := store.NewBudget(0)
	var all []*Prepared
	for _, s := range []*storm.Storm{one, two} {
		p, err := PrepareWith(s, budget)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	p := &played{}
	srv, err := Open(Options{Changed: p.seen.add}, all...)
	if err != nil {
		t.Fatal(err)
	}
	p.Player = NewPlayer(srv, all, speed)
	return p
}

func (p *played) visible() [2]uint64 {
	return [2]uint64{p.server.storms[0].log.Visible(), p.server.storms[1].log.Visible()}
}

// TestPlayer drives a player by a script. Each step begins after the given time.
func TestPlayer(t *testing.T) {
	const s = time.Second
	type step struct {
		after   time.Duration
		do      func(p *played) error
		at      time.Duration
		visible [2]uint64 // pods, nodes
		paused  bool
	}
	look := func(*played) error { return nil }
	pause := func(p *played) error { p.Pause(); return nil }
	resume := func(p *played) error { p.Resume(); return nil }
	for name, c := range map[string]struct {
		speed float64
		first func(p *played)
		steps []step
		ends  time.Duration // after its begin
	}{
		"plain": {speed: 1, steps: []step{
			{2600 * time.Millisecond, look, 2600 * time.Millisecond, [2]uint64{3, 1}, false},
			{2 * s, look, 4600 * time.Millisecond, [2]uint64{5, 2}, false},
		}, ends: 9 * s},
		"fast": {speed: 4, steps: []step{{s, look, 4 * s, [2]uint64{5, 1}, false}}, ends: 9 * s / 4},
		"speed changes": {speed: 1, steps: []step{
			{2 * s, func(p *played) error { return p.SetSpeed(2) }, 2 * s, [2]uint64{3, 0}, false},
			{s, look, 4 * s, [2]uint64{5, 1}, false},
			{0, func(p *played) error { return p.SetSpeed(0.5) }, 4 * s, [2]uint64{5, 1}, false},
			{2 * s, look, 5 * s, [2]uint64{6, 2}, false},
		}, ends: 13 * s},
		"pause": {speed: 1, steps: []step{
			{1500 * time.Millisecond, pause, 1500 * time.Millisecond, [2]uint64{2, 0}, true},
			{time.Hour, look, 1500 * time.Millisecond, [2]uint64{2, 0}, true},
			{0, resume, 1500 * time.Millisecond, [2]uint64{2, 0}, false},
			{s, look, 2500 * time.Millisecond, [2]uint64{3, 1}, false},
		}, ends: 9*s + time.Hour},
		"steps": {speed: 1, steps: []step{
			{1500 * time.Millisecond, pause, 1500 * time.Millisecond, [2]uint64{2, 0}, true},
			{0, func(p *played) error { return steps(p, 1, 1) }, 2 * s, [2]uint64{3, 0}, true},
			{0, func(p *played) error { return steps(p, 1, 1) }, 2500 * time.Millisecond, [2]uint64{3, 1}, true},
			{s, func(p *played) error { return steps(p, 3, 3) }, 4500 * time.Millisecond, [2]uint64{5, 2}, true},
			{0, resume, 4500 * time.Millisecond, [2]uint64{5, 2}, false},
			{s, look, 5500 * time.Millisecond, [2]uint64{6, 2}, false},
		}, ends: 7 * s},
		"step pauses": {speed: 1, steps: []step{
			{0, func(p *played) error { return steps(p, 2, 2) }, 2 * s, [2]uint64{3, 0}, true},
			{time.Minute, func(p *played) error { return steps(p, 100, 7+2) }, 9 * s, [2]uint64{10, 2}, true},
		}, ends: time.Minute},
		"seek": {speed: 1, steps: []step{
			{s, func(p *played) error { return p.Seek(4 * s) }, 4 * s, [2]uint64{5, 1}, false},
			{600 * time.Millisecond, look, 4600 * time.Millisecond, [2]uint64{5, 2}, false},
			{0, func(p *played) error {
				if err := p.Seek(4 * s); !errors.Is(err, ErrState) {
					t.Errorf("backwards: %v", err)
				}
				return nil
			}, 4600 * time.Millisecond, [2]uint64{5, 2}, false},
		}, ends: 6 * s},
		"seek while paused": {speed: 1, first: func(p *played) { p.Pause() }, steps: []step{
			{s, func(p *played) error { return p.Seek(4 * s) }, 4 * s, [2]uint64{5, 1}, true},
			{s, resume, 4 * s, [2]uint64{5, 1}, false},
		}, ends: 7 * s},
		"seek beyond the end": {speed: 1, steps: []step{
			{s, func(p *played) error { return p.Seek(time.Hour) }, 9 * s, [2]uint64{10, 2}, false},
		}, ends: s},
		"wrong speed": {speed: 1, steps: []step{{0, func(p *played) error {
			if err := p.SetSpeed(0); !errors.Is(err, ErrOptions) {
				t.Errorf("speed 0: %v", err)
			}
			return nil
		}, 0, [2]uint64{1, 0}, false}}, ends: 9 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlayed(t, c.speed)
				if c.first != nil {
					c.first(p)
				}
				begin := time.Now()
				done := make(chan time.Duration, 1)
				go func() {
					if err := p.Run(t.Context()); err != nil {
						t.Error(err)
					}
					done <- time.Since(begin)
				}()
				for i, st := range c.steps {
					time.Sleep(st.after)
					synctest.Wait()
					if err := st.do(p); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					want := PlayerStatus{At: st.at, Length: 9 * s, Released: int(st.visible[0]+st.visible[1]) - 1, Events: 11, Paused: st.paused}
					got := p.Status()
					if got.Speed, got.At = 0, got.At.Round(time.Millisecond); got != want || p.visible() != st.visible {
						t.Errorf("step %d (-want +got):\n%s%s", i+1, cmp.Diff(want, got), cmp.Diff(st.visible, p.visible()))
					}
				}
				if took := (<-done).Round(time.Millisecond); took != c.ends {
					t.Errorf("it took %v, want %v", took, c.ends)
				}
				if st := p.Status(); !st.Over() || st.At != st.Length {
					t.Errorf("at the end: %+v", st)
				}
				if err := p.Run(t.Context()); !errors.Is(err, ErrState) {
					t.Errorf("a second Run: %v", err)
				}
			})
		})
	}
}

func steps(p *played, n, want int) error {
	if got := p.Step(n); got != want {
		return errors.New("another number of events")
	}
	return nil
}

// TestPlayerEnds: the end of the context ends Run, paused or not.
func TestPlayerEnds(t *testing.T) {
	for _, paused := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlayed(t, 1)
			if paused {
				p.Pause()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			if err := p.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("paused %v: %v", paused, err)
			}
			want := [2]uint64{2, 0}
			if paused {
				want[0] = 1
			}
			time.Sleep(time.Hour)
			if got := p.visible(); got != want {
				t.Errorf("paused %v: %v are visible, want %v", paused, got, want)
			}
		})
	}
}

// TestPlayerIntended: played events are due at the storm's time divided by the speed, also after a change of
// the speed and a pause. Events of a step or a seek are due at their release.
func TestPlayerIntended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayed(t, 2)
		begin := time.Now()
		go func() { _ = p.Run(t.Context()) }()
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		wait(1200 * time.Millisecond) // 2.4 s: pods 2 and 3
		if err := p.SetSpeed(1); err != nil {
			t.Error(err)
		}
		wait(700 * time.Millisecond) // 3.1 s: pod 4, node 1
		p.Pause()
		wait(10 * time.Second)
		p.Resume()
		wait(950 * time.Millisecond) // 4.05 s: pod 5
		p.Step(2)                    // node 2, pod 6
		wait(time.Second)
		if err := p.Seek(6500 * time.Millisecond); err != nil { // pod 7
			t.Error(err)
		}
		var got []time.Duration
		for _, resource := range []string{"pods", "nodes"} {
			for _, c := range p.seen.of(resource) {
				got = append(got, c.Intended.Sub(begin).Round(time.Millisecond))
				if late := c.At.Sub(c.Intended); late < 0 || late > time.Microsecond {
					t.Errorf("%s is %v late", c.Key, late)
				}
			}
		}
		const ms = time.Millisecond
		want := []time.Duration{0, 500 * ms, 1000 * ms, 1800 * ms, 12800 * ms, 12850 * ms, 13850 * ms, 1300 * ms, 12850 * ms}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("intended times (-want +got):\n%s", diff)
		}
		p.Resume()
		p.Step(100)
	})
}
