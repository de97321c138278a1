package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"watchlab/bench/controller/program"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/server"
	"watchlab/bench/controller/verdict"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

// timing has the times of a play that no flag changes.
type timing struct {
	steady   time.Duration // without a new watch: the programs have started
	quiet    time.Duration // without a change: the programs are done
	tail     time.Duration // of observation after that, for leaks
	sampling time.Duration // between two samples of the watches
	grace    time.Duration // from SIGTERM to SIGKILL
}

var defaultTiming = timing{
	steady: time.Second, quiet: 3 * time.Second, tail: 2 * time.Second, sampling: 500 * time.Millisecond, grace: 10 * time.Second,
}

const (
	backlog    = 10               // of the settle time, at most, for programs that come to one object after the other
	reopening  = 90 * time.Second // for watches that a fault has ended: a Reflector waits up to 60 s
	pollPeriod = 100 * time.Millisecond
	besideTime = 20 * time.Second // in which a program beside opens its first watch, if it opens any
)

// ErrNoWatch means that the programs opened no watch.
var ErrNoWatch = errors.New("opened no watch")

// session is a play in progress.
type session struct {
	spec     Spec
	prepared *prepared
	program  Program
	plan     plan
	seed     int64
	timing   timing
	free     *verdict.Outcome // without faults; nil if it is not known
	dir      string           // for kubeconfigs and logs
	notify   func(string)

	clients  []string
	others   []string // programs beside
	server   server.Server
	user     *cluster.Client // nil without a workload
	recorder *record.Recorder
	faults   *fault.Injector
	began    time.Time
	beside   []*program.Program
	foreign  int // watches that programs beside have opened before the controllers start
	opened   int // watches before the storm
	programs []*replica
	restarts sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	samples []record.Sample
	lags    []record.Lag
	scrapes []record.Scrape
	exits   []exitAt
}

// play plays one play. The record is that of a failed play, too, as far as it went.
func (p *session) play(ctx context.Context) (out record.Play, err error) {
	defer func() { err = errors.Join(err, p.close()) }()
	if err := p.open(ctx); err != nil {
		return out, err
	}
	observing, stopObserving := context.WithCancel(ctx)
	var wg sync.WaitGroup
	p.begin()
	wg.Go(func() { p.watchLags(observing) })
	for _, r := range p.programs {
		wg.Go(func() { // one process after the other
			wait.UntilWithContext(observing, func(ctx context.Context) { r.observe(ctx, r.running(), p.began) }, pollPeriod)
		})
	}
	over, quiet, err := p.run(ctx)
	end := time.Since(p.began)
	stopObserving()
	p.restarts.Wait()
	wg.Wait()
	p.stop()
	out = record.Play{
		Program: p.program.Label, Seed: p.seed, Faults: p.plan.faults, Beside: p.others, Phases: p.phases(), Over: over, Quiet: quiet, End: end,
		Injections: p.faults.Log(), Lags: p.lags, Samples: p.samples, Scrapes: p.scrapes,
	}
	for _, e := range p.exits {
		e.Exit.At = e.at.Sub(p.began)
		out.Exits = append(out.Exits, e.Exit)
	}
	out.Accesses, out.Changes = p.recorder.Result()
	return out, err
}

// open opens the server with what exists before the storm, and starts the programs, until their watches are open.
func (p *session) open(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return err
	}
	for _, b := range p.spec.beside() {
		p.others = append(p.others, b.Label)
	}
	p.recorder = record.NewRecorder()
	// The plan comes first: the record has it, and an injection the index in it.
	var err error
	p.faults, err = fault.NewHooked(slices.Concat(p.plan.faults, p.prepared.marks), p.seed, fault.Hooks{
		Client: apiserver.ClientOf,
		Crash: func(client string, down time.Duration) {
			if r := p.victim(client); r != nil {
				r.kill()
				p.again(ctx, r, down)
			}
		},
		Terminate: func(client string, down time.Duration) {
			if r := p.victim(client); r != nil {
				p.restarts.Go(func() {
					r.running().Stop(p.timing.grace)
					p.again(ctx, r, down)
				})
			}
		},
	})
	if err != nil {
		return manifest.BadField("plans", err)
	}
	var namespaces []string
	if w := p.prepared.workload; w != nil {
		namespaces = w.Namespaces()
	}
	for i := range p.spec.Replicas {
		p.clients = append(p.clients, fmt.Sprintf("controller-%d", i))
	}
	p.server, err = p.prepared.open(server.Setup{
		Clients: p.clients, Beside: p.others, Changed: p.recorder.Observe, Dir: p.dir, Notify: p.notify,
		// The recorder is outside of the faults: the record has what the client met.
		Wrap: func(h http.Handler) http.Handler { return p.recorder.Wrap(p.faults.Wrap(h)) },
		Seed: p.seed, Speed: p.spec.Speed, Storms: p.prepared.storms, Objects: p.prepared.objects, Stages: p.prepared.stages, Without: p.spec.without(),
		Namespaces: namespaces,
	})
	if err != nil {
		return err
	}
	if p.user, err = p.newUser(ctx); err != nil {
		return err
	}
	if err := p.startBeside(ctx); err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		return err
	}
	return p.awaitWatches(ctx)
}

// begin sets time zero.
func (p *session) begin() {
	p.began = time.Now()
	p.recorder.Start(p.began)
}

// close ends what open has begun. The kubeconfigs hold tokens.
func (p *session) close() (err error) {
	p.stop()
	if p.faults != nil {
		p.faults.Stop()
	}
	if p.server != nil {
		err = p.server.Close()
	}
	for _, client := range slices.Concat(p.clients, p.others) {
		dir := filepath.Join(p.dir, client)
		err = errors.Join(err, os.RemoveAll(dir+".kubeconfig"), program.Clean(dir))
		_ = os.Remove(dir) // if the program left it empty
	}
	return err
}

// newUser creates the initial objects of the workload.
func (p *session) newUser(ctx context.Context) (*cluster.Client, error) {
	if p.prepared.workload == nil {
		return nil, nil
	}
	u, err := cluster.NewClient(p.server.User())
	if err != nil {
		return nil, err
	}
	if err := p.prepared.workload.Create(ctx, u, u.Mapper); err != nil {
		return nil, manifest.BadField("workload", err)
	}
	return u, nil
}

// phases are those of the storm, in the time of the play.
func (p *session) phases() []storm.Phase {
	var phases []storm.Phase
	for _, ph := range p.prepared.set.Phases {
		ph.From, ph.To = time.Duration(float64(ph.From)/p.spec.Speed), time.Duration(float64(ph.To)/p.spec.Speed)
		phases = append(phases, ph)
	}
	return phases
}

// startBeside starts the programs that run beside and waits until they have opened their watches, if they open any.
func (p *session) startBeside(ctx context.Context) error {
	for _, b := range p.spec.beside() {
		options, err := p.optionsOf(b.Label, b.Command)
		if err != nil {
			return err
		}
		one, err := program.Start(ctx, options)
		if err != nil {
			return err
		}
		p.beside = append(p.beside, one)
		go func() {
			if exit := one.Exit(); !exit.Planned {
				p.notify(fmt.Sprintf("%s ended: %s%s", b.Label, exit.Status, lastLines(options)))
			}
		}()
	}
	if len(p.beside) == 0 {
		return nil
	}
	began := time.Now()
	return poll(ctx, func() (bool, error) {
		open, ended, err := p.server.Watches()
		if n := open + ended; n > p.foreign {
			p.foreign, began = n, time.Now()
		}
		steady := time.Since(began)
		return p.foreign > 0 && steady > 2*p.timing.steady || steady > besideTime, err
	})
}

// poll calls done until it returns true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	return wait.PollUntilContextCancel(ctx, pollPeriod, true, func(context.Context) (bool, error) { return done() })
}

// start starts the programs, or says how they connect.
func (p *session) start(ctx context.Context) error {
	for _, client := range p.clients {
		options, err := p.optionsOf(client, p.program.Command)
		if err != nil {
			return err
		}
		if p.spec.Attach {
			p.notify(fmt.Sprintf("%s connects with KUBECONFIG=%s", client, options.Kubeconfig))
			continue
		}
		r, err := p.newReplica(ctx, options)
		if err != nil {
			return err
		}
		p.programs = append(p.programs, r)
	}
	return nil
}

// stop stops the programs. Their ends are planned.
func (p *session) stop() {
	var wg sync.WaitGroup
	for _, r := range p.programs {
		wg.Go(func() { r.close(p.timing.grace) })
	}
	wg.Wait()
	for _, one := range p.beside {
		one.Stop(p.timing.grace)
	}
}

// awaitWatches waits until the programs have opened their first watches and open no more.
func (p *session) awaitWatches(ctx context.Context) error {
	began, seen := time.Now(), p.foreign
	changed := began
	return poll(ctx, func() (bool, error) {
		open, ended, err := p.server.Watches()
		if err != nil {
			return false, err
		}
		if open+ended > seen {
			seen, changed = open+ended, time.Now()
		}
		late := time.Since(began) >= p.spec.Warmup.Duration
		if p.ended() || late && seen == p.foreign {
			return false, p.blame()
		}
		p.opened = open
		return late || seen > p.foreign && time.Since(changed) >= p.timing.steady, nil
	})
}

// ended reports whether a program has ended by itself.
func (p *session) ended() bool { return slices.ContainsFunc(p.programs, (*replica).ended) }

// blame is the error of programs that opened no watch.
func (p *session) blame() error {
	if p.spec.Attach {
		return fmt.Errorf("the attached programs %w in %v", ErrNoWatch, p.spec.Warmup.Duration)
	}
	for _, r := range p.programs {
		if r.ended() {
			return fmt.Errorf("%s ended before its first watch: %s%s", p.program.Command[0], r.status(), lastLines(r.options))
		}
	}
	return fmt.Errorf("%s %w in %v%s", p.program.Command[0], ErrNoWatch, p.spec.Warmup.Duration, lastLines(p.programs[0].options))
}

// run plays storm, workload and faults, and waits until the programs are quiet. It returns the times of
// the end of the storm and of the last change.
func (p *session) run(ctx context.Context) (over time.Duration, quiet *time.Duration, err error) {
	if err := p.faults.Start(); err != nil {
		return 0, nil, err
	}
	var wg sync.WaitGroup
	var stormErr, userErr error
	wg.Go(func() { stormErr = p.server.Play(ctx) })
	if u := p.user; u != nil {
		keeping, stop := context.WithCancel(ctx)
		var kept sync.WaitGroup
		kept.Go(func() { p.prepared.workload.Keep(keeping, p.spec.Speed, u, u.Mapper) })
		defer kept.Wait()
		defer stop()
		wg.Go(func() { userErr = p.prepared.workload.Play(ctx, p.spec.Speed, u, u.Mapper) })
	}
	wg.Wait()
	if err := errors.Join(stormErr, userErr); err != nil {
		return time.Since(p.began), nil, err
	}
	// Faults of the plan may be due after the last event.
	if err := p.wait(ctx, p.lastFault()-time.Since(p.began)); err != nil {
		return time.Since(p.began), nil, err
	}
	if err := p.awaitFaults(ctx); err != nil {
		return time.Since(p.began), nil, err
	}
	p.faults.Stop()
	over = time.Since(p.began)
	if err := p.reopened(ctx); err != nil {
		return over, nil, err
	}
	settling := time.Now()
	var judged time.Time // last change of the state that unmet says something of
	unmet, differs := false, false
	err = poll(ctx, func() (bool, error) {
		act := p.recorder.Activity()
		quiet = nil
		if min(time.Since(act.Changed), time.Since(settling)) >= p.quietTime() && time.Now().After(act.Again) && p.server.Quiet() {
			quiet = new(max(0, act.Changed.Sub(p.began)))
			if !judged.Equal(act.Changed) {
				judged = act.Changed
				unmet, differs = p.judge(quiet)
			}
		}
		// Writes without a change end soon, or go on in a loop. A failed write is tried again. A controller that has
		// taken a time for its last change, or has written nothing yet, may take as long again. A timer of one that was
		// started again begins anew.
		took := act.Changed.Sub(settling)
		if act.Wrote.Before(p.began) {
			took = p.spec.Settle.Duration
		}
		timed := differs && time.Since(settling) < p.free.Pause
		done := quiet != nil && !unmet && !timed && time.Now().After(act.Retry) &&
			time.Since(act.Useless) >= p.timing.quiet && time.Since(settling) >= 2*took
		settled := p.spec.Settle.Duration + p.quietTime()
		if p.free != nil {
			settled = max(settled, 2*p.free.Settling)
		}
		late := time.Since(settling) > settled && time.Since(act.Progress) > settled && time.Now().After(act.Retry) || time.Since(settling) > backlog*settled
		return done || late || p.ended() && quiet != nil, nil
	})
	if err != nil {
		return over, nil, err
	}
	return over, quiet, p.wait(ctx, p.timing.tail)
}

// awaitFaults waits for the end of the faults that writes have triggered, and for the writes that trigger the others
// until no program changes anything.
func (p *session) awaitFaults(ctx context.Context) error {
	began := time.Now()
	return poll(ctx, func() (bool, error) {
		rest, due := p.faults.Pending()
		quiet := min(time.Since(p.recorder.Activity().Changed), time.Since(began)) > p.timing.quiet
		return rest == 0 && (!due || quiet) || time.Since(began) >= p.spec.Settle.Duration, nil
	})
}

// judge reports whether the state so far is not the final one that the rules ask for, and whether it differs from that
// without faults after a program was started again.
func (p *session) judge(quiet *time.Duration) (unmet, differs bool) {
	state := record.Play{Faults: p.plan.faults, Beside: p.others, Quiet: quiet}
	state.Accesses, state.Changes = p.recorder.Result()
	again := p.free != nil && slices.ContainsFunc(p.plan.faults, func(f fault.Spec) bool { return f.Ends() })
	return p.prepared.rules.Unmet(&state), again && verdict.Diverge(p.free, verdict.OutcomeOf(&state)).Failed
}

// reopened waits until the programs have as many watches as before the storm. While a client waits to open a
// watch again it is not done, although all is quiet.
func (p *session) reopened(ctx context.Context) error {
	began := time.Now()
	return poll(ctx, func() (bool, error) {
		open, _, err := p.server.Watches()
		return open >= p.opened || p.ended() || time.Since(began) >= reopening, err
	})
}

// quietTime is the time without a change after which the programs are done. A program whose requests have
// failed waits for about as long as they did before the next one, unless it has ended.
func (p *session) quietTime() time.Duration {
	if len(p.programs) > 0 && !slices.ContainsFunc(p.programs, func(r *replica) bool { return !r.ended() }) {
		return p.timing.quiet
	}
	failing := time.Second
	for _, f := range p.faults.Specs() {
		if f.Name == fault.Throttle || f.Name == fault.InternalError {
			failing += time.Duration(f.Duration) * time.Duration(max(f.Count, 1))
		}
	}
	return max(p.timing.quiet, failing)
}

// lastFault is the time at which the last planned fault is over, as far as it is counted.
func (p *session) lastFault() (last time.Duration) {
	for _, f := range p.plan.faults {
		at := time.Duration(f.At)
		if f.Count > 1 {
			at += time.Duration(f.Count-1) * time.Duration(f.Every)
		}
		if f.Count > 0 || f.Every == 0 {
			last = max(last, at+time.Duration(f.Duration))
		}
	}
	return last
}

func (p *session) wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// victim is the replica of a client, or else the leader, which is the one that has written a lock last, or the first
// one; nil if it runs elsewhere.
func (p *session) victim(client string) *replica {
	if len(p.programs) == 0 {
		return nil
	}
	return p.programs[max(0, slices.Index(p.clients, cmp.Or(client, p.recorder.Leader())))]
}

// again starts a replica after a time.
func (p *session) again(ctx context.Context, r *replica, down time.Duration) {
	p.restarts.Go(func() {
		if p.wait(ctx, down) != nil {
			return
		}
		if err := r.start(); err != nil {
			p.notify(err.Error())
		}
	})
}

// watchLags observes the watches.
func (p *session) watchLags(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) {
		lags := p.server.Lags()
		at := time.Since(p.began)
		p.note(func() {
			for _, l := range lags {
				p.lags = append(p.lags, record.Lag{At: at, Lag: l})
			}
		})
	}, p.timing.sampling)
}

// note lets f note what mu guards.
func (p *session) note(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}
