// Package fault injects faults into a watch server. It wraps any http.Handler and does
// to its requests and watches what happens to them in real clusters.
//
//	specs, err := fault.ParseAll("disconnect:every=2s,count=10; gone:at=5s")
//	inj, err := fault.New(specs, seed, nil)
//	handler := inj.Wrap(apiServer)
//	err = inj.Start()  // times count from here
//	<-inj.Quiet()      // no more faults
//	inj.Stop()
//	inj.Log()          // all injections with their times
//
// No fault breaks a guarantee of the watch: the client receives events in order and can
// resume from its last version, or list again where the server says so. A client whose
// final state differs from the server's has a bug.
//
// # Which requests are affected
//
// Requests below a resource (/api/v1/…, /apis/group/version/…); never discovery, OpenAPI
// and health. A watch is open from its answer with 200. Before Start and after Stop,
// everything passes through.
//
// The wrapped handler must end each Write of a watch at the end of a frame: a JSON line, a
// length-delimited protobuf message, an item of a CBOR sequence. It must end a watch when
// the context of its request ends.
//
// # What is reproducible
//
// Random choices are whether a fault occurs, which watch it hits, where it cuts a frame
// and which garbage it sends. They depend on the seed and the numbers of the fault, its
// occurrence, and the watch or request. The order of goroutines has no effect. Watches
// and requests are numbered in order of arrival. A single client meets the same faults in
// each run; what it is doing at that moment depends on the clock, except for faults
// triggered by frames.
package fault

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// ErrState means that Start was called twice or after Stop.
var ErrState = errors.New("wrong state")

// Clock is a source of time. Its methods are safe for concurrent use.
type Clock interface {
	// Now returns the time, with a monotonic reading where there is one.
	Now() time.Time
	// After returns a channel that receives the time after d.
	After(d time.Duration) <-chan time.Time
}

// wall is the real clock, or that of a testing/synctest bubble.
type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Injection is one injected fault: a watch or a request that was hit.
type Injection struct {
	// At is the time since [Injector.Start].
	At Duration `json:"at"`
	// Fault is the name of the fault.
	Fault Name `json:"fault"`
	// Spec is the index of the fault in the list passed to [New].
	Spec int `json:"spec"`
	// Occurrence is the number of the fault's occurrence, from 1.
	Occurrence int `json:"occurrence"`
	// Watch is the number of the watch, from 1; 0 for another request or for none.
	Watch int `json:"watch,omitempty"`
	// Path is the URL path of the request; empty if the fault hit nothing.
	Path string `json:"path,omitempty"`
	// Detail describes the effect: the position of a cut, the error answer. It may be
	// empty.
	Detail string `json:"detail,omitempty"`
}

// String returns it as one line.
func (i Injection) String() string {
	target := "no watch"
	switch {
	case i.Watch > 0:
		target = fmt.Sprintf("watch %d (%s)", i.Watch, i.Path)
	case i.Path != "":
		target = i.Path
	}
	text := fmt.Sprintf("%v %s #%d: %s", i.At, i.Fault, i.Occurrence, target)
	if i.Detail != "" {
		text += ": " + i.Detail
	}
	return text
}

// logLimit is the number of injections in the log.
const logLimit = 100_000

// forever is the latest time.
const forever = time.Duration(1<<63 - 1)

// window is a period in which requests are hit.
type window struct {
	// until is the end, as the time since Start.
	until      time.Duration
	occurrence int
}

// Injector injects faults. Its methods are safe for concurrent use.
type Injector struct {
	specs []Spec
	seed  uint64
	clock Clock
	// perFrame: frames trigger at least one fault. bookmarks: at least one fault
	// needs the positions of watches.
	perFrame, bookmarks bool
	// quiet is closed after the last fault, done by Stop.
	quiet, done chan struct{}
	// kick wakes the scheduler. Its capacity is 1; poke never blocks.
	kick chan struct{}
	wg   sync.WaitGroup

	// mu guards all fields below.
	mu sync.Mutex
	// begun is the time of Start; zero before.
	begun time.Time
	// stopped is set by Stop.
	stopped bool
	// observe receives each injection; nil for none.
	observe func(Injection)
	// occurrences and windows have one element for each spec.
	occurrences []int
	windows     []window
	// busy is the end of the longest fault in progress, as the time since Start.
	busy time.Duration
	// underway is the number of strikes that are not written yet.
	underway int
	// watches are the open watches.
	watches map[*watcher]struct{}
	// collections holds the requested collections by path.
	collections map[string]*collection
	// requests and opened number the requests and the watches, for the random choices.
	requests, opened int
	// log holds up to logLimit injections.
	log []Injection
	// counts holds the number of hits of each fault.
	counts map[Name]int
}

// New returns an injector of zero or more faults. The seed determines random choices; a
// nil clock is the real one. The error wraps [ErrSpec] and has the fault's position.
func New(specs []Spec, seed int64, clock Clock) (*Injector, error) {
	if clock == nil {
		clock = wall{}
	}
	i := &Injector{
		specs:       make([]Spec, len(specs)),
		seed:        uint64(seed),
		clock:       clock,
		quiet:       make(chan struct{}),
		done:        make(chan struct{}),
		kick:        make(chan struct{}, 1),
		occurrences: make([]int, len(specs)),
		windows:     make([]window, len(specs)),
		watches:     map[*watcher]struct{}{},
		collections: map[string]*collection{},
		counts:      map[Name]int{},
	}
	for k, s := range specs {
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("fault %d: %w", k+1, err)
		}
		i.specs[k] = s.complete()
		i.perFrame = i.perFrame || s.Frames > 0
		i.bookmarks = i.bookmarks || s.Name == DuplicateBookmark
	}
	return i, nil
}

// Specs returns the faults with their defaults.
func (i *Injector) Specs() []Spec { return slices.Clone(i.specs) }

// Observe calls f for each further injection, in the order of the log. f must return
// quickly and must not call the injector.
func (i *Injector) Observe(f func(Injection)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.observe = f
}

// Start starts the schedule. The error wraps [ErrState].
func (i *Injector) Start() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.stopped:
		return fmt.Errorf("fault: %w: stopped", ErrState)
	case !i.begun.IsZero():
		return fmt.Errorf("fault: %w: started already", ErrState)
	}
	i.begun = i.clock.Now()
	i.wg.Go(i.schedule)
	return nil
}

// Quiet returns a channel that is closed when the last fault is over ([Spec.Ends]), or
// after Stop.
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
	begun := !i.begun.IsZero()
	close(i.done)
	i.mu.Unlock()
	i.wg.Wait()
	if !begun {
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
	counts := make(map[Name]int, len(i.counts))
	for n, c := range i.counts {
		counts[n] = c
	}
	return counts
}

// now is the time since Start. It may be called under mu.
func (i *Injector) now() time.Duration { return i.clock.Now().Sub(i.begun) }

// active reports whether faults may happen.
func (i *Injector) active() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.begun.IsZero() && !i.stopped
}

// note adds to the log.
func (i *Injector) note(in Injection) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.noteLocked(in)
}

func (i *Injector) noteLocked(in Injection) {
	in.At, in.Fault = Duration(i.now()), i.specs[in.Spec].Name
	if len(i.log) < logLimit {
		i.log = append(i.log, in)
	}
	if in.Path != "" {
		i.counts[in.Fault]++
	}
	if i.observe != nil {
		i.observe(in)
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for {
		next := i.due(ctx)
		if next < 0 {
			return
		}
		i.mu.Lock()
		wait := next - i.now()
		i.mu.Unlock()
		var after <-chan time.Time
		if next != forever {
			after = i.clock.After(max(wait, 0))
		}
		select {
		case <-after:
		case <-i.kick:
		case <-i.done:
			return
		}
	}
}

// due triggers all faults that are due. It returns the time of its next call: forever
// if only frames trigger faults, a negative time if all are over.
func (i *Injector) due(ctx context.Context) time.Duration {
	next := time.Duration(-1)
	sooner := func(t time.Duration) {
		if next < 0 || t < next {
			next = t
		}
	}
	for k := range i.specs {
		s := &i.specs[k]
		for {
			i.mu.Lock()
			n, now := i.occurrences[k]+1, i.now()
			over := s.over(n, now)
			i.mu.Unlock()
			if over {
				break
			}
			if s.Frames > 0 {
				if s.Until > 0 {
					sooner(time.Duration(s.Until))
				} else {
					sooner(forever)
				}
				break
			}
			if t := s.nth(n); t > now {
				sooner(t)
				break
			}
			select {
			case <-i.done:
				return -1
			default:
			}
			i.happen(ctx, k)
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.busy > i.now() {
		sooner(i.busy)
	}
	if i.underway > 0 {
		sooner(forever)
	}
	return next
}

// begin and finish count the strikes in progress.
func (i *Injector) begin() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.underway++
}

func (i *Injector) finish() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.underway--
	i.poke()
}

// poke wakes the scheduler.
func (i *Injector) poke() {
	select {
	case i.kick <- struct{}{}:
	default:
	}
}

// over reports whether the fault has no nth occurrence.
func (s *Spec) over(n int, now time.Duration) bool {
	if s.Count > 0 && n > s.Count {
		return true
	}
	if s.Until == 0 {
		return false
	}
	if s.Frames > 0 {
		return now >= time.Duration(s.Until)
	}
	return s.nth(n) >= time.Duration(s.Until)
}

// claim counts an occurrence of a fault and draws whether it takes place. The caller
// holds mu.
func (i *Injector) claim(k int) (occurrence int, yes bool) {
	s := &i.specs[k]
	i.occurrences[k]++
	n := i.occurrences[k]
	if !draw(s.Probability, i.rng(drawTime, k, n, 0)) {
		return n, false
	}
	i.busy = max(i.busy, i.now()+time.Duration(s.Duration))
	return n, true
}

// happen triggers a fault that is due.
func (i *Injector) happen(ctx context.Context, k int) {
	s := &i.specs[k]
	i.mu.Lock()
	n, yes := i.claim(k)
	if !yes {
		i.mu.Unlock()
		return
	}
	until := i.now() + time.Duration(s.Duration)
	switch s.Name {
	case Gone, Throttle, InternalError:
		i.windows[k] = window{until, n}
	}
	i.mu.Unlock()

	if s.Name == Relist {
		i.compact(ctx, k)
	}
	i.mu.Lock()
	struck := make([]*watcher, 0, len(i.watches))
	for w := range i.watches {
		if draw(s.Share, i.rng(drawWatch, k, n, w.id)) {
			struck = append(struck, w)
		}
	}
	if len(struck) == 0 {
		i.noteLocked(Injection{Spec: k, Occurrence: n})
	}
	i.mu.Unlock()
	slices.SortFunc(struck, func(a, b *watcher) int { return a.id - b.id })
	for _, w := range struck {
		w.strike(strike{spec: k, occurrence: n, until: until})
	}
}

// answer returns the failure for a request, and false if the server answers it.
func (i *Injector) answer(r *request) (failure, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.begun.IsZero() || i.stopped {
		return failure{}, false
	}
	i.requests++
	now := i.now()
	for k, w := range i.windows {
		s := &i.specs[k]
		if w.until <= now || !draw(s.Share, i.rng(drawRequest, k, w.occurrence, i.requests)) {
			continue
		}
		f, struck := failure{}, true
		switch s.Name {
		case Throttle:
			f = throttled(w.until - now)
		case InternalError:
			f = internal()
		case Gone:
			f, struck = gone(), r.resumes()
		}
		if struck {
			i.noteLocked(Injection{Spec: k, Occurrence: w.occurrence, Path: r.URL.Path, Detail: f.detail})
			return f, true
		}
	}
	if c := i.collections[r.collection]; c != nil && r.version > 0 && r.version < c.compacted && r.needsHistory() {
		f := gone()
		f.event = r.watch
		i.noteLocked(Injection{Spec: c.spec, Occurrence: i.occurrences[c.spec], Path: r.URL.Path, Detail: fmt.Sprintf("%s: version %d, compacted at %d", f.detail, r.version, c.compacted)})
		return f, true
	}
	return failure{}, false
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
