package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

// DefaultWindow is how long a live stream is followed in a round.
const DefaultWindow = 30 * time.Second

// LiveConfig says what is compared on a live stream: variants of deltafifo in the
// informer pipeline.
type LiveConfig struct {
	Impls []string
	Modes []string
	Knobs Knobs

	Open func() (*cluster.Tee, error)

	Drive func(ctx context.Context, warmUp bool) (cluster.Written, error)

	Window time.Duration

	Of string
}

// LiveRoom is how many events a round can hold, the initial list included.
const LiveRoom = 1 << 18

// CompareLive returns the comparisons that the spec asks for, one for each
// delivery. The cells of a round run at the same time, each with a Reflector of
// its own that lists and watches what one watch of the cluster hears: every
// variant gets the same events, from the moment they arrive, and latency counts
// from there. What comes is checked like every storm: nothing lost, in order,
// nothing twice, and the same state in the end. At the end of a round, all that the
// cluster has must have come, too (see [cluster.Tee.Audit]).
//
// A round in which nothing happens measures nothing, and its cells are invalid.
func CompareLive(spec LiveConfig) ([]lab.Comparison, error) {
	if spec.Window == 0 {
		spec.Window = DefaultWindow
	}
	if spec.Window < 0 {
		return nil, fmt.Errorf("%w: a window of %v (allowed: more than 0)", ErrConfig, spec.Window)
	}
	l := &live{spec: spec}
	s := Config{
		Family: impls.DeltaFIFO, Pipeline: InformerPipeline, Source: ClusterSource,
		Impls: spec.Impls, Modes: spec.Modes, Knobs: spec.Knobs, Duration: spec.Window,
		Paces: []pace.Pace{{}}, Storm: &storm.Storm{Name: spec.Of},
	}
	comparisons, err := compareDeliveries(s, func(v deltafifo.Variant, g impls.Guarantees, opts deltafifo.Options, _ pace.Pace) lab.Workload {
		stages := &liveInformer{informerStages: &informerStages{variant: v.Name, opts: opts, open: true}, live: l}
		return &workload{name: v.Name, guarantees: g, stall: stallLimit, stages: stages}
	})
	if err != nil {
		return nil, err
	}
	for i := range comparisons {
		c := &comparisons[i]
		c.Together, c.Begin = true, l.beginner()
		for _, cl := range c.Cells {
			cl.Labels[len(cl.Labels)-1].Value = liveRate
		}
	}
	return comparisons, nil
}

// liveRate stands for the pace of a live stream in labels.
const liveRate = "live"

// ClusterSource is the name of the source that is a live cluster, in labels.
const ClusterSource = "cluster"

// live is a live stream, round by round.
type live struct {
	spec LiveConfig

	round *round
}

// beginner returns what begins the rounds of a comparison. The first one that a
// process plays warms up.
func (l *live) beginner() func(cells int) error {
	warmUp := true
	return func(cells int) error {
		err := l.begin(cells, warmUp)
		warmUp = false
		return err
	}
}

// begin opens the stream for a round and waits for its initial list.
func (l *live) begin(cells int, warmUp bool) error {
	tee, err := l.spec.Open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), listLimit)
	defer cancel()
	if err := tee.Wait(ctx); err != nil {
		tee.Close()
		return err
	}
	l.round = newRound(l.spec, tee, cells)
	l.round.warmUp = warmUp
	return nil
}

// listLimit is how long a cluster may take to be listed.
const listLimit = time.Minute

// round is one window on a live stream, with the cells that look through it.
type round struct {
	spec LiveConfig
	tee  *cluster.Tee

	warmUp bool

	mu sync.Mutex

	missing, staying int

	playing bool

	left chan struct{}

	over chan struct{}

	first, last uint64
	written     cluster.Written
	breaks      cluster.Breaks
	err         error
	storm       *storm.Storm
}

func newRound(spec LiveConfig, tee *cluster.Tee, cells int) *round {
	return &round{
		spec: spec, tee: tee, missing: cells, staying: cells,
		left: make(chan struct{}), over: make(chan struct{}),
	}
}

// arrived notes that one cell less is missing, and opens the window when none is
// and somebody is there. The caller holds mu.
func (r *round) arrived(there int) {
	if r.missing--; r.missing == 0 && there > 0 {
		r.playing = true
		go r.play()
	}
}

// join waits until every cell has joined, then until the window is over.
func (r *round) join(ctx context.Context) error {
	r.mu.Lock()
	r.arrived(r.staying)
	r.mu.Unlock()
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave is called by each cell once, whether it joined or not. The last one
// closes the stream, and waits for what drives it: when all have left, nothing
// is written any more to what is about to be cleaned up.
func (r *round) leave(joined bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.staying--
	if !joined {
		r.arrived(r.staying)
	}
	if r.staying > 0 {
		return
	}
	close(r.left)
	if r.playing {
		<-r.over
	}
	r.tee.Close()
}

// play lets the window pass, unless all cells leave before.
func (r *round) play() {
	defer close(r.over)
	r.first = r.tee.Visible()
	staying, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		select {
		case <-r.left:
			stop()
		case <-staying.Done():
		}
	}()
	r.err = r.pass(staying)
	r.breaks = r.tee.Breaks()
	r.last = r.tee.Seal()
	r.storm = r.tee.Storm(r.last)
	// What came before the window opened was handled outside of it.
	r.storm.Initial = int(r.first)
	switch {
	case r.tee.Refused() > 0:
		r.err = fmt.Errorf("more than %d events: a shorter window is needed", LiveRoom)
	case r.err != nil:
	case r.last == r.first:
		r.err = fmt.Errorf("nothing happened to %s within %v", r.spec.Of, r.spec.Window)
	}
}

// pass returns when the window is over and all that the cluster has has come.
func (r *round) pass(staying context.Context) error {
	window, cancel := context.WithTimeout(staying, r.spec.Window)
	defer cancel()
	if r.spec.Drive == nil {
		<-window.Done()
	} else {
		var err error
		if r.written, err = r.spec.Drive(window, r.warmUp); err != nil {
			return err
		}
		r.quiet(window)
	}
	// The watch may be down just now, and what it would have said is part of the round.
	audit, cancel := context.WithTimeout(staying, auditLimit)
	defer cancel()
	return r.tee.Audit(audit)
}

const (
	// auditLimit is how long what the cluster has may take to come.
	auditLimit = time.Minute
	// quietFor is how long nothing comes where a storm is over. What controllers make
	// of it comes in shorter intervals.
	quietFor = time.Second
)

// quiet returns when nothing has come for a while, or with the window.
func (r *round) quiet(window context.Context) {
	tick := time.NewTicker(quietFor / 20)
	defer tick.Stop()
	for seen, since := r.tee.Visible(), time.Now(); time.Since(since) < quietFor; {
		select {
		case <-tick.C:
		case <-window.Done():
			return
		}
		if now := r.tee.Visible(); now != seen {
			seen, since = now, time.Now()
		}
	}
}

// notes are what is to be told of the round, the same for all of its cells.
func (r *round) notes(rec *cell.Recorder) {
	b := r.breaks
	rec.Note("cluster-relists", float64(b.Relisted))
	rec.Note("cluster-resumes", float64(b.Resumed))
	rec.Note("cluster-gap-ns", float64(b.Gap))
	rec.Note("cluster-found", float64(b.Found()))
	if r.spec.Drive == nil {
		return
	}
	w := r.written
	rec.Note("cluster-written", float64(w.Applied+w.Deleted))
	rec.Note("cluster-refused", float64(w.Refused))
	rec.Note("cluster-unwritten", float64(w.Left))
	rec.Note("cluster-retried", float64(w.Retried))
	rec.Note("cluster-outage-ns", float64(w.Outage))
}

// liveInformer is an informer pipeline on a live stream.
type liveInformer struct {
	*informerStages
	live   *live
	round  *round
	joined bool
}

func (f *liveInformer) setup(ctx context.Context, w *workload) error {
	f.round = f.live.round
	if f.round == nil {
		return errors.New("the round has not begun")
	}
	f.src = f.round.tee.Source()
	// Every event is stamped, as in a paced cell.
	w.st = newStamps(LiveRoom, true, StampsAll)
	w.telemetry = newTelemetry(ctx, w.st, nil)
	// The objects of the initial list can't be counted: nobody knows which events of
	// the meantime it has.
	if err := f.assemble(ctx, w, LiveRoom, 0, f.round.tee.Like()); err != nil {
		return err
	}
	if w.telemetry != nil {
		w.telemetry.watch(f.waiting, meanSize(f.round.tee.Storm(f.round.tee.Visible()).Events))
	}
	return nil
}

func (f *liveInformer) play(ctx context.Context, w *workload, rec *cell.Recorder) (bool, error) {
	played, err := f.run(ctx, rec, func(ctx context.Context) error {
		f.joined = true
		if err := f.round.join(ctx); err != nil {
			return err
		}
		f.last.Store(f.round.last)
		return nil
	})
	if !played {
		return false, err
	}
	// Now it is known which events there were.
	s := f.round.storm
	w.telemetry.pause()
	w.st.arrived(s, f.round.tee.Begun())
	w.score = &score{
		Storm:    s,
		schedule: arrivals{s},
		keys:     func() map[string]int32 { return keyIndexes(s) },
		final:    s.Final,
	}
	w.telemetry.arrived(w.score)
	return true, nil
}

func (f *liveInformer) check(w *workload, rec *cell.Recorder) outcome {
	f.round.notes(rec)
	return f.informerStages.check(w, rec)
}

func (f *liveInformer) close() error {
	if f.round != nil {
		f.round.leave(f.joined)
	}
	return f.informerStages.close()
}

// arrivals is the schedule of a live stream: an event's intended time is when it
// arrived.
type arrivals struct{ *storm.Storm }

// Intended implements [pace.Schedule].
func (a arrivals) Intended(i int) time.Duration { return a.Events[a.Initial+i].At }
