package clientgo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"watchlab/impls"
	"watchlab/impls/conformance"
	"watchlab/impls/workqueue"
)

// RunWorkqueue tests a variant of family workqueue. Its scripts are in the words of [workRig.run].
func RunWorkqueue(t *testing.T, v workqueue.Variant) {
	s := workSetup{v, v.Guarantees[0]}
	if s.Coalesces != impls.CoalesceLatest || s.Consumers != impls.ManyConsumers {
		t.Errorf("guarantees: %v; a workqueue keeps one of each item, for many consumers", s.Guarantees)
	}
	conformance.Run(t, s, slices.Concat(scriptChecks, otherChecks, workConcurrentChecks))
}

type workCheck = conformance.Check[workSetup]

// workSetup is a variant with its guarantees.
type workSetup struct {
	variant workqueue.Variant
	impls.Guarantees
}

// The conditions of checks.
func oursWork(s workSetup) bool { return !s.variant.Baseline() }
func fifoWork(s workSetup) bool { return s.Order != impls.OrderPerShard }

// wholeWork leaves out controller-runtime's queue: it drops what is queued at ShutDown, has no drain, counts
// items in process that were added again, and has goroutines and a clock of its own.
func wholeWork(s workSetup) bool { return oursWork(s) || s.Order != impls.OrderPriority }

// workRig is a queue under test.
type workRig struct {
	workSetup
	t       conformance.TB
	queue   workqueue.Queue[string]
	clock   *clocktesting.FakeClock
	down    bool        // ShutDown was called
	gets    chan string // what the Gets of "wait" returned
	drained atomic.Int32
}

var start = time.Unix(1, 0) // of the clock

const shutdown = "shutdown" // stands for an item where Get returned that the queue is shut down

// new returns a rig whose queue is shut down when the test ends.
func (s workSetup) new(t conformance.TB, set ...func(*workqueue.Options[string])) *workRig {
	t.Helper()
	r := &workRig{
		workSetup: s, t: t, clock: clocktesting.NewFakeClock(start), gets: make(chan string, 100),
	}
	o := workqueue.Options[string]{Clock: r.clock}
	for _, f := range set {
		f(&o)
	}
	q, err := s.variant.New(o)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	r.queue = q
	t.Cleanup(r.shutDown)
	return r
}

func (r *workRig) shutDown() {
	if !r.down { // A second time only where a script says so.
		r.down = true
		r.queue.ShutDown()
	}
}

// watchdog ends a test that hangs.
func (r *workRig) watchdog() *workRig {
	conformance.Watchdog(r.t, r.queue.ShutDown)
	return r
}

// take is Get.
func (r *workRig) take() string {
	item, down := r.queue.Get()
	if down {
		return shutdown
	}
	return item
}

// workBubble returns a check's function that tests a new rig in a bubble of its own.
func workBubble(f func(*workRig)) func(*testing.T, workSetup) {
	return func(t *testing.T, s workSetup) {
		conformance.Bubble(t, func(t *testing.T) { f(s.new(t)) })
	}
}

// workScript returns a check's function that runs scripts, each with a new queue.
func workScript(texts ...string) func(*testing.T, workSetup) {
	return func(t *testing.T, s workSetup) {
		for _, text := range texts {
			workBubble(func(r *workRig) { r.run(text) })(t, s)
		}
	}
}

// run runs the statements of a script, which commas separate. A statement is one of:
//
//	add A B, done A B     calls Add or Done for each item
//	get A B               calls Get for each item; the items come in this order if the variant is fifo
//	wait                  calls Get in a goroutine, and it sleeps
//	got A B               so many Gets of wait have returned, with these items
//	shutdown, down B      ShutDown, ShuttingDown
//	end                   calls Get, which returns that the queue is shut down
//	drain, drained N      ShutDownWithDrain in a goroutine; so many have returned since
//	len N                 Len
//	step D                moves the clock
func (r *workRig) run(text string) {
	r.t.Helper()
	for words := range conformance.Statements(text) {
		got, want := r.do(words[0], words[1:])
		if !fifoWork(r.workSetup) || words[0] == "got" {
			slices.Sort(got)
			slices.Sort(want)
		}
		if !slices.Equal(got, want) {
			r.t.Fatalf("%s: got %v\nin the script %s", strings.Join(words, " "), got, text)
		}
	}
}

// do does a statement and returns what it observes, and what it should.
func (r *workRig) do(verb string, args []string) (got, want []string) {
	switch verb {
	case "end":
		return r.do("get", []string{shutdown})
	case "get", "wait":
		for range max(1, len(args)) {
			go func() { r.gets <- r.take() }()
			synctest.Wait()
		}
		return r.do("got", args)
	case "got":
		synctest.Wait()
		for range len(r.gets) {
			got = append(got, <-r.gets)
		}
		return got, args
	case "drain":
		r.down = true
		go func() { r.queue.ShutDownWithDrain(); r.drained.Add(1) }()
	case "drained":
		return []string{strconv.Itoa(int(r.drained.Swap(0)))}, args
	case "step":
		d, _ := time.ParseDuration(args[0])
		r.clock.Step(d)
	default:
		for _, item := range append(args, "")[:max(1, len(args))] {
			if out := r.call(operation{verb, item}); out != nil {
				got, want = []string{fmt.Sprint(out)}, args
			}
		}
	}
	synctest.Wait()
	return got, want
}

// metrics records the calls of each metric, with their times.
type metrics struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	calls map[string][]string
}

// metric is any of them.
type metric struct {
	*metrics
	name string
}

func (m metric) Inc()              { m.record("Inc") }
func (m metric) Dec()              { m.record("Dec") }
func (m metric) Set(v float64)     { m.record(fmt.Sprint("Set ", v)) }
func (m metric) Observe(v float64) { m.record(fmt.Sprint("Observe ", v)) }

func (m metric) record(call string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[m.name] = append(m.calls[m.name], fmt.Sprintf("%v %s", m.clock.Since(start), call))
}
