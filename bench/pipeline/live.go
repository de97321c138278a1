package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

// DefaultWindow is the default length of a live round.
const DefaultWindow = 30 * time.Second

// LiveConfig is what [CompareLive] compares: variants of deltafifo in the informer
// pipeline, on a live stream.
type LiveConfig struct {
	Impls []string // see [Config]
	Modes []string // see [Config]
	Knobs Knobs    // see [Config]
	Store string   // see [Config]
	// Workqueue is as in [Config].
	Workqueue string
	Open      func() (*cluster.Tee, error) // opens the stream; called once for each round
	// Drive causes events during a round; nil if the cluster has its own load. It
	// returns before or when ctx ends, at the end of the window. Its error ends the
	// round. A warm-up round is not counted and needs only some of the events.
	Drive func(ctx context.Context, warmUp bool) (cluster.Written, error)
	// Window is the length of a round; 0 means [DefaultWindow]. With Drive, the round
	// ends early: 1 s after the last event, once Drive has returned.
	Window time.Duration
	Stream string // name of the stream in labels
}

// LiveRoom is the usual capacity of a stream in events, the initial list included.
const LiveRoom = 1 << 18

// CompareLive returns a comparison for each delivery. The cells of a round run at the
// same time. Each has a Reflector that lists and watches the events of one shared
// watch of the cluster; latency counts from their arrival. The checks are those of a
// storm; at the end of a round, all objects of the cluster must have arrived (see
// [cluster.Tee.Audit]). A round without events makes its cells invalid.
func CompareLive(config LiveConfig) ([]lab.Comparison, error) {
	config.Window = cmp.Or(config.Window, DefaultWindow)
	l := &liveRounds{config: config}
	s := Config{
		Family: impls.DeltaFIFO, Pipeline: InformerPipeline, Source: ClusterSource,
		Impls: config.Impls, Modes: config.Modes, Knobs: config.Knobs, Duration: config.Window,
		Store: config.Store, Workqueue: config.Workqueue,
		Paces: []pace.Pace{{}}, Storm: &storm.Storm{Name: config.Stream},
	}
	if err := s.checkStores(); err != nil {
		return nil, err
	}
	c, err := s.deltaComparison(func(v string, opts deltafifo.Options) stages {
		f := &informerStages{variant: v, opts: opts, open: true, handling: newHandling(0)}
		f.store, f.workqueue = s.stagesOf(v)
		return &liveInformer{informerStages: f, rounds: l}
	})
	if err != nil {
		return nil, err
	}
	comparisons, err := s.compare(c, func(v string, g impls.Guarantees, _ pace.Pace, stages stages) *workload {
		return &workload{name: v, stages: stages, round: round{guarantees: g, stall: stallLimit}}
	})
	if err != nil {
		return nil, err
	}
	for i := range comparisons {
		c := &comparisons[i]
		c.Concurrent, c.BeforeRound = true, l.begin()
		for _, cl := range c.Cells {
			cl.Labels[len(cl.Labels)-1].Value = liveRate
		}
	}
	return comparisons, nil
}

// Labels of a live stream.
const (
	ClusterSource = "cluster" // source
	liveRate      = "live"    // pace
)

type liveRounds struct {
	config LiveConfig
	round  *liveRound // current; changes only between rounds, when no cell runs
}

// begin returns the [lab.Comparison].BeforeRound of a comparison: it opens the stream for a round
// and waits for its initial list. A process's first round warms up.
func (l *liveRounds) begin() func(cells int) error {
	warmUp := true
	return func(cells int) error {
		tee, err := l.config.Open()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), listLimit)
		defer cancel()
		if err := tee.Wait(ctx); err != nil {
			tee.Close()
			return err
		}
		r := &liveRound{config: l.config, tee: tee, warmUp: warmUp, over: make(chan struct{})}
		r.ctx, r.cancel = context.WithCancel(context.Background())
		r.arrived.Add(cells)
		r.staying.Store(int64(cells))
		go r.play()
		l.round, warmUp = r, false
		return nil
	}
}

const (
	listLimit  = time.Minute // timeout of a cluster's list
	auditLimit = time.Minute // timeout of the audit
	quietFor   = time.Second // a longer pause ends a storm; controllers pause for less between events
)

// liveRound is one window of a live stream and the cells that play it.
type liveRound struct {
	config  LiveConfig
	tee     *cluster.Tee
	warmUp  bool            // the round is not counted
	arrived sync.WaitGroup  // waits for the cells that are neither ready nor gone
	staying atomic.Int64    // cells that have not left
	ctx     context.Context // ends when all cells have left
	cancel  context.CancelFunc
	over    chan struct{} // closed when the window ends

	// The fields below are set before over is closed.
	first, last uint64          // stream positions at the begin and the end of the window
	written     cluster.Written // Drive's result
	breaks      cluster.Breaks  // interruptions of the watch
	err         error           // failure of the round
	storm       *storm.Storm
}

func (r *liveRound) wait(ctx context.Context) error {
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave is called by each cell once, whether it has arrived or not. The last one closes
// the stream and waits for its driver: afterwards nothing is written to the cluster.
func (r *liveRound) leave(arrive func()) {
	last := r.staying.Add(-1) == 0
	if last {
		// This comes before the last arrival: a window without cells does not open.
		r.cancel()
	}
	arrive()
	if last {
		<-r.over
		r.tee.Close()
	}
}

// play opens the window when every cell has arrived or left, and waits for its end, or
// until all cells have left.
func (r *liveRound) play() {
	defer close(r.over)
	r.arrived.Wait()
	if r.ctx.Err() != nil {
		return
	}
	r.first = r.tee.Visible()
	r.err = r.pass()
	r.breaks = r.tee.Breaks()
	r.last = r.tee.Seal()
	r.storm = r.tee.Storm(r.last)
	// Events before the window count as the initial list.
	r.storm.Initial = int(r.first)
	switch {
	case r.tee.Refused() > 0:
		r.err = fmt.Errorf("more than %d events: a shorter window is needed", r.tee.Capacity())
	case r.err != nil:
	case r.written.Refused > 0:
		r.err = fmt.Errorf("%w: %d events of the storm; the first is %w", lab.ErrRefused, r.written.Refused, r.written.FirstRefusal)
	case r.last == r.first:
		r.err = fmt.Errorf("nothing happened to %s within %v", r.config.Stream, r.config.Window)
	}
}

// pass returns when the window is over and the audit found every object.
func (r *liveRound) pass() error {
	window, cancel := context.WithTimeout(r.ctx, r.config.Window)
	defer cancel()
	if r.config.Drive == nil {
		<-window.Done()
	} else {
		var err error
		if r.written, err = r.config.Drive(window, r.warmUp); err != nil {
			return err
		}
		// The storm is over after a pause. The window may end before.
		_ = await(window, nil, r.tee.Visible, quietFor, nil)
	}
	// A watch that is down now has events of this round outstanding.
	audit, cancel := context.WithTimeout(r.ctx, auditLimit)
	defer cancel()
	return r.tee.Audit(audit)
}

func (r *liveRound) notes(rec *cell.Recorder) {
	b := r.breaks
	rec.Note("cluster-relists", float64(b.Relisted))
	rec.Note("cluster-resumes", float64(b.Resumed))
	rec.Note("cluster-gap-ns", float64(b.Gap))
	rec.Note("cluster-found", float64(b.Found()))
	if r.config.Drive == nil {
		return
	}
	w := r.written
	rec.Note("cluster-written", float64(w.Applied+w.Deleted))
	rec.Note("cluster-refused", float64(w.Refused))
	rec.Note("cluster-unwritten", float64(w.Left))
	rec.Note("cluster-retried", float64(w.Retried))
	rec.Note("cluster-outage-ns", float64(w.Outage))
}

type liveInformer struct {
	*informerStages
	rounds *liveRounds
	round  *liveRound
	arrive func() // tells the round that the cell is ready, or gone; once
}

func (f *liveInformer) setup(ctx context.Context, r *round) error {
	f.round = f.rounds.round
	if f.round == nil {
		return errors.New("the round has not begun")
	}
	f.arrive = sync.OnceFunc(f.round.arrived.Done)
	r.cleanupFunc(func() { f.round.leave(f.arrive) })
	r.source = f.round.tee.Source()
	r.cleanup(r.source.Close)
	// A live cell stamps every event, as a paced cell does.
	room := f.round.tee.Capacity()
	r.observe(ctx, observe.Options{Room: room, Paced: true})
	// Events that arrive during the list may be part of it or not, so the list's objects
	// can't be counted.
	return f.assemble(ctx, r, room, f.round.tee.Like())
}

func (f *liveInformer) play(ctx context.Context, rec *cell.Recorder) error {
	err := f.run(ctx, rec, func(ctx context.Context) error {
		f.arrive()
		if err := f.round.wait(ctx); err != nil {
			return err
		}
		f.last.Store(f.round.last)
		return nil
	})
	if err != nil && !errors.As(err, &incomplete{}) {
		return err
	}
	s := f.round.storm
	f.r.telemetry.Rest()
	f.r.storm = &pacedStorm{
		Storm:    s,
		schedule: arrivals{s},
		keys:     func() map[string]int32 { return observe.KeyIndexes(s) },
		final:    s.Final,
	}
	f.r.telemetry.Arrived(func() { f.r.st.Arrived(s, arrivals{s}, f.round.tee.Origin()) })
	return err
}

func (f *liveInformer) check(rec *cell.Recorder) observe.Outcome {
	f.round.notes(rec)
	return f.informerStages.check(rec)
}

// arrivals is the schedule of a live stream: an event's intended time is when it arrived.
type arrivals struct{ *storm.Storm }

// Intended implements [pace.Schedule].
func (a arrivals) Intended(i int) time.Duration { return a.Events[a.Initial+i].At }
