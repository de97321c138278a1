// Package fault injects faults into a watch server. It wraps any http.Handler and does
// to its requests and watches what happens to them in real clusters.
//
//	specs, err := fault.ParseAll("disconnect:every=2s,count=10; gone:at=5s")
//	inj, err := fault.New(specs, seed)
//	handler := inj.Wrap(apiServer)
//	err = inj.Start()  // times count from here
//	<-inj.Quiet()      // no more faults
//	inj.Stop()
//	inj.Log()          // all injections with their times
//
// No fault breaks a guarantee of the watch: the client receives events in order and can
// resume from its last version, or list again if the server requires it. A client whose
// final state differs from the server's has a bug.
//
// Faults hit requests below a resource (/api/v1/…, /apis/group/version/…), never
// discovery, OpenAPI and health. A watch is open from its answer with 200. Before Start
// and after Stop, everything passes through.
//
// The wrapped handler must end each Write of a watch at the end of a frame: a JSON line, a
// length-delimited protobuf message, an item of a CBOR sequence. It must end a watch when
// the context of its request ends.
//
// Random choices (whether a fault occurs, which watch it hits, where it cuts a frame, which
// garbage it sends) depend on the seed and the numbers of the fault, its occurrence, and the
// watch or request, in order of arrival. A single client meets the same faults in each run;
// what it is doing at that moment depends on the clock, except for faults triggered by
// frames.
package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// ErrState means that Start was called twice or after Stop.
var ErrState = errors.New("wrong state")

// Injection is one injected fault: a watch or a request that was hit.
type Injection struct {
	At         Duration // since [Injector.Start]
	Fault      Name
	Spec       int    // index in the list passed to [New]
	Occurrence int    // number of the fault's occurrence, from 1
	Watch      int    // number of the watch, from 1; 0 for another request or for none
	Path       string // of the request; empty if the fault hit nothing
	Detail     string // the effect: the position of a cut, the error answer; may be empty
}

// logLimit is the number of injections in the log.
const logLimit = 100_000

// forever is the latest time.
const forever = time.Duration(1<<63 - 1)

// fault is a spec and its state. The injector's mu guards the state.
type fault struct {
	Spec
	traits
	// occurrences is the number of occurrences so far.
	occurrences int
	// until is the end of the period in which requests are hit, as the time since Start,
	// and window the occurrence that began it.
	until  time.Duration
	window int
}

// Injector injects faults. Its methods are safe for concurrent use.
type Injector struct {
	faults []fault
	seed   uint64
	// perFrame: frames trigger at least one fault. bookmarks: at least one fault
	// needs the positions of watches.
	perFrame, bookmarks bool
	// quiet is closed after the last fault.
	quiet chan struct{}
	// ctx ends with Stop.
	ctx    context.Context
	cancel context.CancelFunc
	// kick wakes the scheduler. Its capacity is 1; poke never blocks.
	kick chan struct{}
	wg   sync.WaitGroup

	// mu guards all fields below and the state of the faults.
	mu        sync.Mutex
	startTime time.Time // set by Start
	stopped   bool      // set by Stop
	// busy is the end of the longest fault in progress, as the time since Start.
	busy time.Duration
	// underway is the number of strikes that are not written yet.
	underway int
	// watches are open; collections are those requested, by path.
	watches     map[*watcher]struct{}
	collections map[string]*collection
	// requests and opened number the requests and the watches, for the random choices.
	requests, opened int
	// log holds up to logLimit injections, counts the number of hits of each fault.
	log    []Injection
	counts map[Name]int
}

// New returns an injector of zero or more faults. The seed determines random choices. The
// error wraps [ErrSpec] and has the fault's position.
func New(specs []Spec, seed int64) (*Injector, error) {
	i := &Injector{
		seed:        uint64(seed),
		quiet:       make(chan struct{}),
		kick:        make(chan struct{}, 1),
		watches:     map[*watcher]struct{}{},
		collections: map[string]*collection{},
		counts:      map[Name]int{},
	}
	for k, s := range specs {
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("fault %d: %w", k+1, err)
		}
		t, _ := s.Name.traits()
		i.faults = append(i.faults, fault{Spec: s.complete(), traits: t})
		i.perFrame = i.perFrame || s.Frames > 0
		i.bookmarks = i.bookmarks || s.Name == DuplicateBookmark
	}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i, nil
}

// Specs returns the faults with their defaults.
func (i *Injector) Specs() []Spec {
	specs := make([]Spec, len(i.faults))
	for k := range i.faults {
		specs[k] = i.faults[k].Spec
	}
	return specs
}

// Start starts the schedule. The error wraps [ErrState].
func (i *Injector) Start() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.stopped:
		return fmt.Errorf("fault: %w: stopped", ErrState)
	case !i.startTime.IsZero():
		return fmt.Errorf("fault: %w: started already", ErrState)
	}
	i.startTime = time.Now()
	i.wg.Go(i.schedule)
	return nil
}

// Quiet returns a channel that is closed when the last fault is over, or after Stop. A
// fault with Every or Frames and without Count and Until has no last occurrence.
func (i *Injector) Quiet() <-chan struct{} { return i.quiet }

// Stop ends all faults, stalls included, and waits for those in progress. From then on
// everything passes through. A second Stop does nothing.
func (i *Injector) Stop() {
	i.mu.Lock()
	if i.stopped {
		i.mu.Unlock()
		return
	}
	i.stopped = true
	started := !i.startTime.IsZero()
	i.cancel()
	i.mu.Unlock()
	i.wg.Wait()
	if !started {
		close(i.quiet)
	}
}

// Log returns the first 100,000 injections, in order.
func (i *Injector) Log() []Injection {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.log)
}

// Counts returns the number of watches and requests that each fault hit.
func (i *Injector) Counts() map[Name]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.counts)
}

// now is the time since Start. The caller holds mu.
func (i *Injector) now() time.Duration { return time.Since(i.startTime) }

// active reports whether faults may happen. The caller holds mu.
func (i *Injector) active() bool { return !i.startTime.IsZero() && !i.stopped }

// countsFrames reports whether frames may trigger faults now.
func (i *Injector) countsFrames() bool {
	if !i.perFrame {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.active()
}

// note adds to the log. The caller holds mu.
func (i *Injector) note(in Injection) {
	in.At, in.Fault = Duration(i.now()), i.faults[in.Spec].Name
	if len(i.log) < logLimit {
		i.log = append(i.log, in)
	}
	if in.Path != "" {
		i.counts[in.Fault]++
	}
}

// Questions of [Injector.rng].
const (
	drawTime = iota
	drawWatch
	drawRequest
	drawContent
)

// rng returns an independent random source for each question.
func (i *Injector) rng(question, spec, occurrence, who int) *rand.Rand {
	// PCG mixes one number after the other, so that different questions have
	// independent streams.
	mix := rand.NewPCG(i.seed, uint64(question))
	mix = rand.NewPCG(mix.Uint64(), uint64(spec))
	mix = rand.NewPCG(mix.Uint64(), uint64(occurrence))
	return rand.New(rand.NewPCG(mix.Uint64(), uint64(who)))
}

// schedule triggers faults at their times, until the last one is over.
func (i *Injector) schedule() {
	defer close(i.quiet)
	for {
		wait, more := i.due()
		if !more {
			return
		}
		var due <-chan time.Time
		if wait != forever {
			due = time.After(wait)
		}
		select {
		case <-due:
		case <-i.kick:
		case <-i.ctx.Done():
			return
		}
	}
}

// due triggers all faults that are due. It returns the time until its next call, [forever]
// if it waits for frames or writes, and false if all faults are over.
func (i *Injector) due() (wait time.Duration, more bool) {
	at := time.Duration(-1)
	sooner := func(t time.Duration) {
		if at < 0 || t < at {
			at = t
		}
	}
	for k := range i.faults {
		for i.ctx.Err() == nil {
			i.mu.Lock()
			now := i.now()
			t := i.faults[k].next(now)
			i.mu.Unlock()
			if t > now {
				sooner(t)
			}
			if t < 0 || t > now {
				break
			}
			i.happen(k)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	now := i.now()
	if i.busy > now {
		sooner(i.busy)
	}
	if i.underway > 0 {
		sooner(forever)
	}
	if at == forever {
		return forever, true
	}
	return max(at-now, 0), at >= 0
}

// next returns the time of the next occurrence: [forever] if frames trigger it, a negative
// time if there is none. The caller holds the injector's mu.
func (f *fault) next(now time.Duration) time.Duration {
	n, until := f.occurrences+1, time.Duration(f.Until)
	switch {
	case f.Count > 0 && n > f.Count, f.Frames > 0 && until > 0 && now >= until:
		return -1
	case f.Frames > 0 && until > 0:
		return until
	case f.Frames > 0:
		return forever
	case until > 0 && f.nth(n) >= until:
		return -1
	}
	return f.nth(n)
}

// strikes changes the number of strikes that are not written yet.
func (i *Injector) strikes(by int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.underway += by
	poke(i.kick)
}

// poke wakes the reader of a channel of capacity 1.
func poke(kick chan struct{}) {
	select {
	case kick <- struct{}{}:
	default:
	}
}

// claim counts an occurrence of a fault. It returns false if the draw skips it. The caller
// holds mu.
func (i *Injector) claim(k int) (strike, bool) {
	f := &i.faults[k]
	f.occurrences++
	s := strike{spec: k, occurrence: f.occurrences, until: i.now() + time.Duration(f.Duration)}
	if !draw(f.Probability, i.rng(drawTime, k, s.occurrence, 0)) {
		return s, false
	}
	i.busy = max(i.busy, s.until)
	if f.answer != nil {
		f.until, f.window = s.until, s.occurrence
	}
	return s, true
}

// happen triggers a fault that is due.
func (i *Injector) happen(k int) {
	i.mu.Lock()
	s, yes := i.claim(k)
	i.mu.Unlock()
	if !yes {
		return
	}
	f := &i.faults[k]
	if f.Name == Relist {
		i.compact(k)
	}
	i.mu.Lock()
	var struck []*watcher
	for w := range i.watches {
		if draw(f.Share, i.rng(drawWatch, k, s.occurrence, w.id)) {
			struck = append(struck, w)
		}
	}
	if len(struck) == 0 {
		i.note(Injection{Spec: k, Occurrence: s.occurrence})
	}
	i.mu.Unlock()
	slices.SortFunc(struck, func(a, b *watcher) int { return a.id - b.id })
	for _, w := range struck {
		w.strike(s)
	}
}

// triggered returns the faults after a watch's nth frame.
func (i *Injector) triggered(frames int) []strike {
	i.mu.Lock()
	defer i.mu.Unlock()
	var strikes []strike
	for k := range i.faults {
		f := &i.faults[k]
		now := i.now()
		if f.Frames == 0 || frames%f.Frames != 0 || now < time.Duration(f.At) || f.next(now) < 0 {
			continue
		}
		if s, yes := i.claim(k); yes {
			strikes = append(strikes, s)
		}
		// This may be the last occurrence: the scheduler computes its next time again.
		poke(i.kick)
	}
	return strikes
}

// refuse returns the failure for a request, and false if the server answers it.
func (i *Injector) refuse(r *request) (failure, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.active() {
		return failure{}, false
	}
	i.requests++
	now := i.now()
	for k := range i.faults {
		f := &i.faults[k]
		if f.until <= now || !draw(f.Share, i.rng(drawRequest, k, f.window, i.requests)) || f.Name == Gone && !r.resumes() {
			continue
		}
		answer := f.answer(f.until - now)
		i.note(Injection{Spec: k, Occurrence: f.window, Path: r.URL.Path, Detail: answer.detail})
		return answer, true
	}
	c := i.collections[r.collection]
	if c == nil || r.version == 0 || r.version >= c.compacted || !r.needsHistory() {
		return failure{}, false
	}
	answer := gone(0)
	answer.event = r.watch
	i.note(Injection{
		Spec: c.spec, Occurrence: i.faults[c.spec].occurrences, Path: r.URL.Path,
		Detail: fmt.Sprintf("%s: version %d, compacted at %d", answer.detail, r.version, c.compacted),
	})
	return answer, true
}

// open registers a watch when it is answered.
func (i *Injector) open(w *watcher) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.opened++
	w.id = i.opened
	i.watches[w] = struct{}{}
}

func (i *Injector) close(w *watcher) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.watches, w)
}

// Wrap returns a handler that injects faults into the answers of h.
func (i *Injector) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { i.serve(h, w, r) })
}
