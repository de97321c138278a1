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

// ErrState is wrapped by the error for a Start that comes twice or too late.
var ErrState = errors.New("wrong state")

// Clock tells the time. Its methods are safe for concurrent use.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// wall is the clock on the wall, and that of a testing/synctest bubble.
type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Injection is one thing that was done.
type Injection struct {
	At         Duration `json:"at"`
	Fault      Name     `json:"fault"`
	Spec       int      `json:"spec"`
	Occurrence int      `json:"occurrence"`
	Watch      int      `json:"watch,omitempty"`
	Path       string   `json:"path,omitempty"`
	Detail     string   `json:"detail,omitempty"`
}

// String returns it as one line.
func (i Injection) String() string {
	whom := "nobody"
	switch {
	case i.Watch > 0:
		whom = fmt.Sprintf("watch %d (%s)", i.Watch, i.Path)
	case i.Path != "":
		whom = i.Path
	}
	text := fmt.Sprintf("%v %s #%d: %s", i.At, i.Fault, i.Occurrence, whom)
	if i.Detail != "" {
		text += ": " + i.Detail
	}
	return text
}

// logLimit is how many injections the log keeps.
const logLimit = 100_000

// forever is later than anything.
const forever = time.Duration(1<<63 - 1)

// window is a while in which requests are struck.
type window struct {
	until      time.Duration
	occurrence int
}

// Injector injects faults. Its methods are safe for concurrent use.
type Injector struct {
	specs               []Spec
	seed                uint64
	clock               Clock
	perFrame, bookmarks bool
	quiet, done         chan struct{}
	kick                chan struct{}
	wg                  sync.WaitGroup

	mu               sync.Mutex
	begun            time.Time
	stopped          bool
	observe          func(Injection)
	occurrences      []int
	windows          []window
	busy             time.Duration
	underway         int
	watches          map[*watcher]struct{}
	collections      map[string]*collection
	requests, opened int
	log              []Injection
	counts           map[Name]int
}

// New returns an injector of the faults; none is allowed. The seed decides what
// is left to chance; a nil clock is the one on the wall. The error wraps
// [ErrSpec] and names the fault by its place.
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

// Specs returns the faults, with their defaults filled in. They are valid, and
// their text can be read again.
func (i *Injector) Specs() []Spec { return slices.Clone(i.specs) }

// Observe has f told of each injection from now on, in the order of the log,
// while it happens: f must be quick and must not call the injector.
func (i *Injector) Observe(f func(Injection)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.observe = f
}

// Start lets the faults begin; it returns at once. The error wraps [ErrState].
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

// Quiet returns a channel that is closed when no fault will happen any more
// and none lasts: when all of them have stopped ([Spec.Ends]), or after Stop.
func (i *Injector) Quiet() <-chan struct{} { return i.quiet }

// Stop ends all faults: what is stalled goes on, and from now on everything
// passes through. It waits for what is being done. A second Stop does nothing.
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

// Log returns what was done, in order; the first 100,000 are kept.
func (i *Injector) Log() []Injection {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.log)
}

// Counts returns how often each fault was injected, of those that were: how
// many watches and requests it struck.
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

// note writes to the log.
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

// What is drawn by chance.
const (
	drawTime = iota
	drawWatch
	drawRequest
	drawContent
)

// rng returns a source of chance of its own for each question.
func (i *Injector) rng(question, spec, occurrence, who int) *rand.Rand {
	// Different questions have different streams: what differs goes through
	// PCG's own mixing, one number at a time.
	mix := rand.NewPCG(i.seed, uint64(question))
	mix = rand.NewPCG(mix.Uint64(), uint64(spec))
	mix = rand.NewPCG(mix.Uint64(), uint64(occurrence))
	return rand.New(rand.NewPCG(mix.Uint64(), uint64(who)))
}

// schedule makes faults happen at their times, until all have stopped.
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

// due makes everything happen that is due, and returns when it is to be called
// again: forever where only frames will tell, a negative time where all is over.
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

// begin and finish count the strikes that are underway.
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

// poke has the scheduler look again.
func (i *Injector) poke() {
	select {
	case i.kick <- struct{}{}:
	default:
	}
}

// over reports whether the fault doesn't happen for the nth time any more.
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

// claim counts an occurrence of a fault and decides whether it takes place.
// Guarded by mu.
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

// happen makes a fault happen that is due by time.
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

// answer returns what a request is to be answered in place of an answer of the
// server, and false for none.
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

// open counts a watch in, when it is answered.
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

// Wrap returns a handler that injects faults into what h serves.
func (i *Injector) Wrap(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { i.serve(h, w, r) })
}
