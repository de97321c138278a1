// Package fault injects faults into a watch server. It wraps any http.Handler and does
// to its requests and watches what happens to them in real clusters.
//
//	specs, err := fault.ParseAll("disconnect:every=2s,count=10; gone:at=5s")
//	inj, err := fault.New(specs, seed)
//	handler := inj.Wrap(apiServer)
//	err = inj.Start()  // times count from here
//	inj.Stop()
//	inj.Log()          // all injections with their times
//
// No fault but Duplicate breaks a guarantee of the watch: the client receives events in order and can
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
// Random choices (where a fault cuts a frame, which garbage it sends) depend on the seed and the numbers
// of the fault, its occurrence, and the watch, in order of arrival. A single client meets the same faults in each run; what it is doing
// at that moment depends on the clock, except for faults triggered by frames.
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

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// fault is a spec and its state. The injector's mu guards the state.
type fault struct {
	Spec
	traits
	occurrences int           // number of occurrences so far
	over        time.Duration // end of the last occurrence, since Start
	seen        int           // number of writes that may trigger it
	until       time.Duration // end of the period in which requests are hit, since Start
}

// Injector injects faults. Its methods are safe for concurrent use.
type Injector struct {
	faults []fault
	seed   uint64
	// perFrame: frames trigger at least one fault. bookmarks: at least one fault
	// needs the positions of watches.
	perFrame, bookmarks bool
	answers             bool // at least one fault comes between a write and its answer
	hooks               Hooks
	ctx                 context.Context // ends with Stop
	cancel              context.CancelFunc
	wg                  sync.WaitGroup

	mu        sync.Mutex // guards all fields below and the state of the faults
	startTime time.Time  // set by Start
	stopped   bool       // set by Stop
	// watches are open; collections are those requested.
	watches     map[*watcher]struct{}
	collections map[schema.GroupVersionResource]*collection
	opened      int // number of watches, for the random choices
	// log holds up to logLimit injections, counts the number of hits of each fault.
	log    []Injection
	counts map[Name]int
}

// New returns an injector of zero or more faults, without hooks. The seed determines random choices. The
// error wraps [ErrSpec] and has the fault's position.
func New(specs []Spec, seed int64) (*Injector, error) { return NewHooked(specs, seed, Hooks{}) }

// NewHooked is New with hooks.
func NewHooked(specs []Spec, seed int64, hooks Hooks) (*Injector, error) {
	i := &Injector{
		hooks:       hooks,
		seed:        uint64(seed),
		watches:     map[*watcher]struct{}{},
		collections: map[schema.GroupVersionResource]*collection{},
		counts:      map[Name]int{},
	}
	for k, s := range specs {
		if err := s.Validate(); err != nil {
			return nil, fmt.Errorf("fault %d: %w", k+1, err)
		}
		if s.Ends() && hooks.Crash == nil {
			return nil, fmt.Errorf("fault %d: %w", k+1, s.fail("no program is started here (watchlab controller starts one)"))
		}
		t, _ := s.Name.traits()
		i.faults = append(i.faults, fault{Spec: s.complete(), traits: t})
		i.perFrame = i.perFrame || s.Frames > 0
		i.bookmarks = i.bookmarks || s.Name == DuplicateBookmark
		i.answers = i.answers || s.Name == LostAnswer || s.After != ""
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

// Stop ends all faults, stalls included, and waits for those in progress. From then on
// everything passes through. A second Stop does nothing.
func (i *Injector) Stop() {
	i.mu.Lock()
	i.stopped = true
	i.cancel()
	i.mu.Unlock()
	i.wg.Wait()
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

// Pending returns, of the faults that writes trigger, the time until those so far are over, and whether one still waits
// for its write.
func (i *Injector) Pending() (rest time.Duration, due bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for k := range i.faults {
		if f := &i.faults[k]; f.Triggered() {
			rest = max(rest, f.over-i.now())
			due = due || f.occurrences == 0
		}
	}
	return rest, due
}

// now is the time since Start. The caller holds mu.
func (i *Injector) now() time.Duration { return time.Since(i.startTime) }

// active reports whether faults may happen. The caller holds mu.
func (i *Injector) active() bool { return !i.startTime.IsZero() && !i.stopped }

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

// rng returns an independent random source for the content of an injection into a watch.
func (i *Injector) rng(s injection, watch int) *rand.Rand {
	// PCG mixes one number after the other, so that different injections have independent streams.
	mix := rand.NewPCG(i.seed, uint64(s.spec))
	mix = rand.NewPCG(mix.Uint64(), uint64(s.occurrence))
	return rand.New(rand.NewPCG(mix.Uint64(), uint64(watch)))
}

// schedule triggers faults at their times, until the last one.
func (i *Injector) schedule() {
	for {
		k, wait := i.next()
		if k < 0 {
			return
		}
		select {
		case <-time.After(wait):
			i.happen(k, "")
		case <-i.ctx.Done():
			return
		}
	}
}

// next returns the fault that time triggers next, and the time until then. It returns -1
// if there is none.
func (i *Injector) next() (first int, wait time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	first = -1
	for k := range i.faults {
		f := &i.faults[k]
		at := f.nth(f.occurrences + 1)
		if until := at - i.now(); f.Frames == 0 && !f.Triggered() && f.more(at) && (first < 0 || until < wait) {
			first, wait = k, until
		}
	}
	return first, wait
}

// more reports whether the fault may occur once more at that time. The caller holds the
// injector's mu.
func (f *fault) more(at time.Duration) bool {
	return (f.Count == 0 || f.occurrences < f.Count) && (f.Until == 0 || at < time.Duration(f.Until))
}

// takeFault counts an occurrence of a fault. The caller holds mu.
func (i *Injector) takeFault(k int) injection {
	f := &i.faults[k]
	f.occurrences++
	s := injection{spec: k, occurrence: f.occurrences, until: i.now() + time.Duration(f.Duration)}
	f.over = s.until
	if f.answer != nil || f.traits.window {
		f.until = s.until
	}
	return s
}

// happen triggers a fault that is due, by a request of a client or by time.
func (i *Injector) happen(k int, client string) {
	i.mu.Lock()
	s := i.takeFault(k)
	i.mu.Unlock()
	f := &i.faults[k]
	switch f.Name {
	case Relist:
		i.versions("", func(c *collection, version uint64) { c.compacted, c.spec = max(c.compacted, version), k })
	case Crash, Terminate:
		i.crash(k, s, client)
		return
	case OldView:
		i.versions(f.Resource, func(c *collection, version uint64) { c.frozen = version })
		return
	case LostAnswer, Conflict, Latency, NoWatchList:
		return // It hits requests.
	}
	i.mu.Lock()
	var hit []*watcher
	for w := range i.watches {
		if f.aims(w.request) {
			hit = append(hit, w)
		}
	}
	if len(hit) == 0 {
		i.note(Injection{Spec: k, Occurrence: s.occurrence})
	}
	i.mu.Unlock()
	slices.SortFunc(hit, func(a, b *watcher) int { return a.id - b.id })
	for _, w := range hit {
		w.inject(s)
	}
}

// triggered counts a frame of a watch and returns the faults that it triggers.
func (i *Injector) triggered(w *watcher) []injection {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.active() {
		return nil
	}
	w.frames++
	var injections []injection
	for k := range i.faults {
		f := &i.faults[k]
		if f.Frames == 0 || !f.aims(w.request) || w.frames%f.Frames != 0 || i.now() < time.Duration(f.At) || !f.more(i.now()) {
			continue
		}
		injections = append(injections, i.takeFault(k))
	}
	return injections
}

// refuse returns the failure for a request, and false if the server answers it.
func (i *Injector) refuse(r *request) (failure, bool) {
	answer, hit := i.hit(r, func(f *fault) bool {
		if f.traits.window {
			return f.Name == Conflict && slices.Contains([]string{"update", "patch", "delete"}, r.Verb) || f.Name == NoWatchList && r.initial()
		}
		// It continues from an earlier answer.
		return f.Name != Gone || r.needsHistory() && r.version > 0 || r.Query.Get("continue") != ""
	})
	if hit {
		return answer, true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	c := i.collections[r.Resource]
	if !i.active() || c == nil || r.version == 0 || r.version >= c.compacted || !r.needsHistory() {
		return failure{}, false
	}
	answer = gone(0)
	answer.event = r.Verb == "watch"
	i.note(Injection{
		Spec: c.spec, Occurrence: i.faults[c.spec].occurrences, Path: r.http.URL.Path,
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
	// A watch that begins in an old view shows nothing newer while that lasts.
	for k := range i.faults {
		if f := &i.faults[k]; f.Name == OldView && f.until > i.now() && f.aims(w.request) {
			w.mu.Lock()
			w.lasting[Stall] = injection{k, f.occurrences, f.until}
			w.mu.Unlock()
		}
	}
}

// Wrap returns a handler that injects faults into the answers of h. Without faults it is h, whose watches may then send
// what is compressed already.
func (i *Injector) Wrap(h http.Handler) http.Handler {
	if len(i.faults) == 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { i.serve(h, w, r) })
}
