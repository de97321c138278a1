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

// played is a server of two storms: 10 pod events, one each second from 1 s on, the first of
// them at first, and node events at 2.5 s and 4.5 s.
type played struct {
	*Server
	seen changes
}

func newPlayed(t *testing.T) *played {
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
	p.Server = srv
	return p
}

func (p *played) visible() [2]uint64 {
	return [2]uint64{p.storms[0].log.Visible(), p.storms[1].log.Visible()}
}

// TestPlayer: Play releases the due events of both storms, at the storm's time divided by the speed.
func TestPlayer(t *testing.T) {
	for speed, ends := range map[float64]time.Duration{1: 9 * time.Second, 4: 9 * time.Second / 4} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlayed(t)
			begin := time.Now()
			done := make(chan time.Duration, 1)
			go func() {
				if err := p.Play(t.Context(), speed); err != nil {
					t.Error(err)
				}
				done <- time.Since(begin)
			}()
			synctest.Wait()
			for _, st := range []struct {
				at      time.Duration
				visible [2]uint64 // pods, nodes
			}{{0, [2]uint64{1, 0}}, {2600 * time.Millisecond, [2]uint64{3, 1}}, {4600 * time.Millisecond, [2]uint64{5, 2}}} {
				time.Sleep(time.Duration(float64(st.at)/speed) - time.Since(begin))
				synctest.Wait()
				if diff := cmp.Diff(st.visible, p.visible()); diff != "" {
					t.Errorf("speed %v (-want +got):\n%s", speed, diff)
				}
			}
			if took := <-done; took != ends {
				t.Errorf("speed %v: it took %v, want %v", speed, took, ends)
			}
			var got []time.Duration // of the pods
			for _, c := range p.seen.of("pods") {
				got = append(got, time.Duration(float64(c.Intended.Sub(begin))*speed))
				if late := c.At.Sub(c.Intended); late < 0 || late > time.Microsecond {
					t.Errorf("%s is %v late", c.Key, late)
				}
			}
			var want []time.Duration
			for i := range 10 {
				want = append(want, time.Duration(i)*time.Second)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("speed %v: intended times (-want +got):\n%s", speed, diff)
			}
		})
	}
}

// TestPlayerEnds: the end of the context ends Play.
func TestPlayerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayed(t)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if err := p.Play(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if got, want := p.visible(), [2]uint64{2, 0}; got != want {
			t.Errorf("%v are visible, want %v", got, want)
		}
	})
}
