package workqueue

import (
	"testing"
	"time"

	upstream "k8s.io/client-go/util/workqueue"
	testingclock "k8s.io/utils/clock/testing"
)

// setter is a provider whose settable gauges send their values.
type setter struct {
	*recorder
	unfinished, longest chan float64
}

type gauge chan float64

func (g gauge) Set(v float64) { g <- v }

func (s setter) NewUnfinishedWorkSecondsMetric(string) upstream.SettableGaugeMetric {
	return gauge(s.unfinished)
}
func (s setter) NewLongestRunningProcessorSecondsMetric(string) upstream.SettableGaugeMetric {
	return gauge(s.longest)
}

// TestUnfinishedWork: the two gauges of items in process are set at each tick, until ShutDown.
func TestUnfinishedWork(t *testing.T) {
	for _, v := range Variants() {
		t.Run(v.Name, func(t *testing.T) {
			clock := testingclock.NewFakeClock(time.Unix(1000, 0))
			s := setter{newRecorder(), make(chan float64), make(chan float64)}
			q, err := v.New(Options[string]{Name: "q", MetricsProvider: s, Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			tick := func(d time.Duration, unfinished, longest float64) {
				t.Helper()
				// client-go's goroutine makes its ticker after the constructor has returned.
				for !clock.HasWaiters() {
				}
				clock.Step(d)
				if u, l := <-s.unfinished, <-s.longest; u != unfinished || l != longest {
					t.Errorf("unfinished %v s, longest %v s; want %v, %v", u, l, unfinished, longest)
				}
			}
			tick(500*time.Millisecond, 0, 0)
			q.Add("a")
			first, _ := q.Get()
			tick(500*time.Millisecond, 0.5, 0.5)
			q.Add("b")
			second, _ := q.Get()
			q.Add("b")
			tick(time.Second, 2.5, 1.5)
			q.Done(first)
			tick(time.Second, 2, 2)
			q.Done(second)
			tick(time.Second, 0, 0)
			q.ShutDown()
			clock.Step(time.Second)
		})
	}
}
