package chaos

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/tools/cache"

	"watchlab/bench/lab"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/impls/store"
	"watchlab/impls/workqueue"
	"watchlab/loadgen/fault"
)

// drawFault draws the schedule of a fault. It strikes in the first second.
func (s *step) drawFault(name fault.Name) fault.Spec {
	for {
		f := fault.Spec{Name: name}
		switch s.rng.IntN(3) {
		case 0:
			f.At = fault.Duration(s.between(50*time.Millisecond, 700*time.Millisecond))
		case 1:
			f.Every, f.Count = fault.Duration(s.between(150*time.Millisecond, 400*time.Millisecond)), 1+s.rng.IntN(3)
		case 2:
			f.Frames, f.Count = 10+s.rng.IntN(120), 1+s.rng.IntN(3)
		}
		if s.rng.IntN(2) == 0 {
			f.Duration = fault.Duration(s.between(20*time.Millisecond, 400*time.Millisecond))
		}
		// A field may not fit the fault.
		if f.Validate() == nil {
			return f
		}
	}
}

// The variants of a pipeline, without the broken ones of this program.
func variantsOf(pipeline string) (names []string) {
	if pipeline == "kubelet" {
		for _, v := range merge.Variants() {
			names = append(names, v.Name)
		}
		return names
	}
	names = append(names, "clientgo-informer")
	for _, v := range deltafifo.Variants() {
		names = append(names, v.Name)
	}
	return names
}

// stack draws the flags of a pipeline's stack: all variants in a thorough step, else one with a store, a
// workqueue, an encoding, a decoder and an initial list.
func (s *step) stack(pipeline string) []string {
	names := variantsOf(pipeline)
	if s.all {
		return []string{"--impl", strings.Join(names, ",")}
	}
	args := []string{"--impl", pick(s, names)}
	if pipeline == "kubelet" {
		return append(args, "--static", fmt.Sprint(s.rng.IntN(4)))
	}
	for _, flags := range [][][]string{
		{nil, {"--encoding", "json"}, {"--encoding", "protobuf"}, {"--encoding", "cbor"}, {"--encoding", "protobuf", "--decode", "shared"}},
		{nil, {"--initial-list", "list"}, {"--initial-list", "watchlist"}},
	} {
		args = append(args, pick(s, flags)...)
	}
	if args[1] != "clientgo-informer" {
		args = append(args, "--store", pick(s, store.Variants()).Name, "--workqueue", pick(s, workqueue.Variants()).Name)
	}
	return args
}

// serverFault plays a fault of the simulated server through a pipeline. The cells must survive: no
// event is lost, duplicated or reordered, however often the watch breaks.
func (s *step) serverFault(name fault.Name, pipeline string) {
	out := s.path("out")
	f := s.drawFault(name)
	args := runArgs(out, "--pipeline", pipeline, "--source", "apiserver", "--pace", "300", "--duration", "1s",
		"--rounds", "1", "--seed", fmt.Sprint(1+s.rng.IntN(1000)), "--faults", f.String())
	args = append(args, s.stack(pipeline)...)
	s.run(s.command(args...), done)
	o := s.load(out)
	s.whole(o)
	s.struck += struckIn(o)
}

// struckIn sums up the watches and requests that faults hit in the counted rounds.
func struckIn(o *lab.Outcome) (n int) {
	for _, cl := range o.Cells() {
		for _, r := range cl.Rounds {
			for _, note := range r.Result.Notes {
				if note.Unit == "faults" {
					n += int(note.Value)
				}
			}
		}
	}
	return n
}

// faultWithoutServer gives each fault to pipelines without a server: exit code 2, one line, no folder.
func (s *step) faultWithoutServer() {
	s.outcome = refused
	for _, name := range fault.Names() {
		pipeline := pick(s, []string{"queue", "informer", "kubelet"})
		code, out := s.run(s.command(runArgs(s.path("out"), "--pipeline", pipeline, "--faults", s.drawFault(name).String())...), badInput)
		s.isOneLine(out, "--faults: needs --source apiserver")
		if _, err := os.Stat(s.path("out")); err == nil {
			s.Errorf("exit code %d, and a results folder", code)
		}
		s.struck++
	}
}

// slowHandler plays an informer whose handler is slower than the storm, through a fault.
func (s *step) slowHandler() {
	out := s.path("out")
	s.run(s.command(runArgs(out, "--pipeline", "informer", "--source", pick(s, []string{"memory", "apiserver"}), "--impl", pick(s, variantsOf("informer")),
		"--pace", "500", "--duration", "500ms", "--handler-cost", "3ms", "--rounds", "1")...), done)
	s.whole(s.load(out))
	s.struck++
}

// brokenQueues are queues that break an invariant at every nth update.
var brokenQueues = []brokenQueue{
	{"drop", "loses events", lab.CauseLost, func(q *broken, obj any) error { return nil }},
	{"duplicate", "duplicates events", lab.CauseDuplicated, func(q *broken, obj any) error {
		return errors.Join(q.BatchQueue.Update(obj), q.BatchQueue.Update(obj))
	}},
	{"swap", "reorders events", lab.CauseReordered, func(q *broken, obj any) error {
		q.held = obj
		return nil
	}},
}

type brokenQueue struct {
	name, does string
	cause      lab.Cause
	update     func(*broken, any) error
}

const (
	brokenPrefix = "chaos-"
	panics       = brokenPrefix + "panic" // a variant whose handler panics
	brokenPeriod = 7                      // a broken queue breaks each such update
	panicAt      = 150                    // the hand-over in which it panics
)

// broken is the queue cond with a fault. One goroutine produces.
type broken struct {
	deltafifo.BatchQueue
	update func(*broken, any) error
	n      int
	held   any
}

func (q *broken) Update(obj any) error {
	if held := q.held; held != nil {
		q.held = nil
		return errors.Join(q.BatchQueue.Update(obj), q.BatchQueue.Update(held))
	}
	if q.n++; q.n%brokenPeriod == 0 {
		return q.update(q, obj)
	}
	return q.BatchQueue.Update(obj)
}

// panicking is the queue cond whose handler panics.
type panicking struct {
	deltafifo.BatchQueue
	n int
}

func (q *panicking) hand() {
	if q.n++; q.n == panicAt {
		panic("the handler panics")
	}
}

func (q *panicking) Pop(process cache.PopProcessFunc) (any, error) {
	q.hand()
	return q.BatchQueue.Pop(process)
}

func (q *panicking) PopBatch(batch cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	return q.BatchQueue.PopBatch(func(deltas []cache.Delta, initial bool) error {
		for range deltas {
			q.hand()
		}
		return batch(deltas, initial)
	}, single)
}

// registerBroken registers the broken variants.
func registerBroken() {
	register := func(name string, wrap func(deltafifo.BatchQueue) deltafifo.Queue) {
		deltafifo.Register(deltafifo.Variant{
			Name: name, Summary: "broken on purpose",
			Guarantees: []impls.Guarantees{{
				Mode: string(deltafifo.InOrder), Order: impls.OrderTotal, Coalesces: impls.CoalesceNone, Consumers: impls.OneConsumer, Unlocked: true,
			}},
			New: func(o deltafifo.Options) (deltafifo.Queue, error) {
				q, err := deltafifo.New("cond", o)
				if err != nil {
					return nil, err
				}
				return wrap(q.(deltafifo.BatchQueue)), nil
			},
		})
	}
	for _, b := range brokenQueues {
		register(brokenPrefix+b.name, func(q deltafifo.BatchQueue) deltafifo.Queue { return &broken{BatchQueue: q, update: b.update} })
	}
	register(panics, func(q deltafifo.BatchQueue) deltafifo.Queue { return &panicking{BatchQueue: q} })
}

// brokenQueue plays a broken queue, often through a fault of the server besides. Its cells are invalid by
// name; the cells of a whole queue beside it are not.
func (s *step) brokenQueue(b brokenQueue) {
	out := s.path("out")
	args := runArgs(out, "--delivery", "in-order", "--impl", "cond,"+brokenPrefix+b.name, "--pace", "300", "--duration", "1s", "--rounds", "1")
	switch s.rng.IntN(3) {
	case 0:
		args = append(args, "--pipeline", "queue")
	case 1:
		args = append(args, "--pipeline", "informer")
	case 2:
		// These do not list again: a list repairs what a queue lost.
		f := s.drawFault(pick(s, []fault.Name{fault.Disconnect, fault.Reset, fault.Drip, fault.Stall, fault.HalfFrame, fault.DuplicateBookmark}))
		args = append(args, "--pipeline", "informer", "--source", "apiserver")
		if *length >= thorough {
			// With faults, a loss at the end is known after three minutes.
			args = append(args, "--faults", f.String())
		}
	}
	s.run(s.ownCommand(args...), failed)
	for _, cl := range s.load(out).Cells() {
		v := cl.Verdict
		switch {
		case !strings.HasPrefix(cl.Impl(), brokenPrefix):
			if v.Failed() {
				s.Errorf("%s: %s", cl.BenchName(), v)
			}
		case v.Status != lab.Invalid || !slices.Contains(strings.Split(string(v.Cause), "+"), string(b.cause)) || len(cl.Rounds) > 0:
			s.Errorf("%s: %s with %d rounds, want %s", cl.BenchName(), v, len(cl.Rounds), b.cause)
		default:
			s.struck++
		}
	}
	s.outcome = invalid
}

// panicking plays a handler that panics on a goroutine of the pipeline. With a process for each cell the
// cell is invalid by name. Without, the process ends as Go's panics do, and the rounds so far are kept.
func (s *step) panicking() {
	out := s.path("out")
	alone := s.rng.IntN(2) == 0
	args := runArgs(out, "--delivery", "in-order", "--impl", "cond,"+panics, "--pipeline", pick(s, []string{"queue", "informer"}), "--events", "1000", "--rounds", "2")
	s.struck++
	if !alone {
		code, text := s.run(s.ownCommand(args...), badInput)
		if !strings.Contains(text, "the handler panics") {
			s.Errorf("exit code %d: %s", code, text)
		}
		s.outcome = refused
		s.kept(out, s.finished(out))
		return
	}
	s.run(s.ownCommand(append(args, "--memory")...), failed)
	for _, cl := range s.load(out).Cells() {
		if cl.Impl() == panics && cl.Verdict.Cause != lab.CauseError || cl.Impl() != panics && cl.Verdict.Failed() {
			s.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		}
	}
	s.outcome = invalid
}
