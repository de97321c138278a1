package fault_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// The guarantees, as the errors of their violations.
var (
	errOrdered      = errors.New("broken guarantee Ordered")
	errUnique       = errors.New("broken guarantee Unique")
	errAtomic       = errors.New("broken guarantee Atomic")
	errReliable     = errors.New("broken guarantee Reliable")
	errResumable    = errors.New("broken guarantee Resumable")
	errBookmarkable = errors.New("broken guarantee Bookmarkable")
)

// guarantees returns the guarantees, in etcd's order.
func guarantees() []error {
	return []error{errOrdered, errUnique, errAtomic, errReliable, errResumable, errBookmarkable}
}

// violation is a broken guarantee.
type violation struct {
	// Guarantee is one of [guarantees].
	Guarantee error
	// Watch is the number of the list or watch request in order of arrival, from 1;
	// 0 for a violation found by Finish.
	Watch int
	// Text describes the received and the expected value.
	Text string
}

// Error returns it as one line.
func (v violation) Error() string {
	if v.Watch == 0 {
		return fmt.Sprintf("%v: %s", v.Guarantee, v.Text)
	}
	return fmt.Sprintf("%v: request %d: %s", v.Guarantee, v.Watch, v.Text)
}

// Unwrap returns the guarantee.
func (v violation) Unwrap() error { return v.Guarantee }

// keptViolations is the number of violations kept of each guarantee.
const keptViolations = 10

// checker checks the lists and watches of one client against a storm, by etcd's names for the
// guarantees of a watch (https://etcd.io/docs/latest/learning/api_guarantees/#watch-apis):
//
//   - Ordered: the events of a watch have rising versions, and a list is never older than
//     requested.
//   - Unique: no event comes twice on one watch, and no object twice in one state.
//   - Atomic: an event is one of the storm, with its type and object; a list, or the
//     initial state of a watch, is the state at its version.
//   - Reliable: a watch omits no event between two others, and in the end the client has
//     received all events.
//   - Resumable: a watch from a version begins with the next event, and the client resumes
//     from no later than its last version.
//   - Bookmarkable: before a bookmark, the watch has sent all events up to its version and
//     none beyond it.
//
// An ERROR event, a broken connection or a refused request breaks no guarantee.
//
// The client lists and watches one resource of all namespaces, one request at a time, such
// as a Reflector, over any number of reconnects. The methods are safe for concurrent use.
type checker struct {
	storm *storm.Storm
	// history holds the event indexes of each key.
	history [][]int32

	// mu guards all fields below.
	mu sync.Mutex
	// requests is the number of requests so far.
	requests int
	// at is the version up to which the client has received everything.
	at    uint64
	waits []reachWait
	// pages is a list with outstanding pages; nil for none.
	pages *pagedList
	// violations holds the first keptViolations violations of each guarantee; count counts all.
	violations []violation
	count      map[error]int
	stats      checkerStats
}

// checkerStats counts observations.
type checkerStats struct {
	// Lists counts answers, pages included; Watches counts accepted watches. Events
	// excludes bookmarks and errors, which Bookmarks and Errors count.
	Lists, Watches, Events, Bookmarks, Errors int
}

// newChecker returns a checker for a client of the storm.
func newChecker(s *storm.Storm) (*checker, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	c := &checker{storm: s, history: make([][]int32, s.Keys), count: map[error]int{}}
	for i := range s.Events {
		k := s.Events[i].KeyIndex
		c.history[k] = append(c.history[k], int32(i))
	}
	return c, nil
}

// Err joins the first [violation]s of each guarantee and counts the others. It is nil if no
// guarantee is broken.
func (c *checker) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	errs := make([]error, 0, len(c.violations))
	for _, v := range c.violations {
		errs = append(errs, v)
	}
	for _, g := range guarantees() {
		if n := c.count[g]; n > keptViolations {
			errs = append(errs, fmt.Errorf("%w: %d more times", g, n-keptViolations))
		}
	}
	return errors.Join(errs...)
}

// Violations returns the first ten violations of each guarantee, in order.
func (c *checker) Violations() []violation {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.violations)
}

// Stats returns the counts so far.
func (c *checker) Stats() checkerStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// At returns the version up to which the client has received everything.
func (c *checker) At() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// reachWait is a call of [checker.Reach].
type reachWait struct {
	version uint64
	// reached is closed when the client has received the version.
	reached chan struct{}
}

// Reach waits until the client has received everything up to a version. The error is
// ctx's, with the client's version.
func (c *checker) Reach(ctx context.Context, version uint64) error {
	c.mu.Lock()
	if c.at >= version {
		c.mu.Unlock()
		return nil
	}
	w := reachWait{version, make(chan struct{})}
	c.waits = append(c.waits, w)
	c.mu.Unlock()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the client has seen up to %d of %d: %w", c.At(), version, ctx.Err())
	}
}

// reach sets the client's version. The caller holds mu.
func (c *checker) reach(version uint64) {
	c.at = version
	c.waits = slices.DeleteFunc(c.waits, func(w reachWait) bool {
		if w.version > version {
			return false
		}
		close(w.reached)
		return true
	})
}

// Finish ends the storm. Events that the client has not received break Reliable.
func (c *checker) Finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := uint64(len(c.storm.Events)); c.at < last {
		c.broken(errReliable, 0, "events %d to %d never came", c.at+1, last)
	}
}

// broken records a violation. The caller holds mu.
func (c *checker) broken(guarantee error, request int, format string, args ...any) {
	c.count[guarantee]++
	if c.count[guarantee] <= keptViolations {
		c.violations = append(c.violations, violation{guarantee, request, fmt.Sprintf(format, args...)})
	}
}

// stateAt calls f for each existing key at a version, with the index of its event.
// O(keys × log events of a key).
func (c *checker) stateAt(version uint64, f func(key, event int32)) {
	for key, events := range c.history {
		n := sort.Search(len(events), func(i int) bool { return uint64(events[i]) >= version })
		if n == 0 {
			continue
		}
		if i := events[n-1]; c.storm.Events[i].Type != watch.Deleted {
			f(int32(key), i)
		}
	}
}

// received is a received object.
type received struct {
	version uint64
	key     string
	// event is the storm's event of that version; nil for none.
	event *storm.Event
}

// look finds the storm's event of the object's version.
func (c *checker) look(o runtime.Object) (received, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return received{}, err
	}
	s := received{key: storm.ObjectKey(m.GetNamespace(), m.GetName())}
	if s.version, err = strconv.ParseUint(m.GetResourceVersion(), 10, 64); err != nil {
		return s, fmt.Errorf("%s has the version %q", s.key, m.GetResourceVersion())
	}
	if s.version >= 1 && s.version <= uint64(len(c.storm.Events)) {
		s.event = &c.storm.Events[s.version-1]
	}
	return s, nil
}

// whole compares an object with that of its version. The caller holds mu.
func (c *checker) whole(request int, t watch.EventType, o runtime.Object) (received, bool) {
	s, err := c.look(o)
	if err != nil {
		c.broken(errAtomic, request, "%v", err)
		return s, false
	}
	switch {
	case s.event == nil:
		c.broken(errAtomic, request, "%s %s of version %d, which has never been", t, s.key, s.version)
		return s, false
	case s.event.Key != s.key:
		c.broken(errAtomic, request, "%s %s of version %d, which is %s's", t, s.key, s.version, s.event.Key)
		return s, false
	case t != "" && t != s.event.Type:
		c.broken(errAtomic, request, "%s %s of version %d, which was %s", t, s.key, s.version, s.event.Type)
	case !sameObject(s.event.Object, o):
		c.broken(errAtomic, request, "%s of version %d is not what it was", s.key, s.version)
	}
	return s, true
}

// sameObject compares two objects without their kind, which decoders omit.
func sameObject(want, got runtime.Object) bool {
	if want.GetObjectKind().GroupVersionKind() != got.GetObjectKind().GroupVersionKind() {
		want, got = want.DeepCopyObject(), got.DeepCopyObject()
		want.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return equality.Semantic.DeepEqual(want, got)
}

// partialState is a list, or the initial state of a watch, as far as received.
type partialState struct {
	// versions holds the versions by key index.
	versions map[int32]uint64
}

// add adds an object. The caller holds the checker's mu.
func (st *partialState) add(c *checker, request int, o runtime.Object) {
	s, ok := c.whole(request, "", o)
	if !ok {
		return
	}
	if st.versions == nil {
		st.versions = map[int32]uint64{}
	}
	if _, twice := st.versions[s.event.KeyIndex]; twice {
		c.broken(errUnique, request, "%s occurs twice in one state", s.key)
	}
	st.versions[s.event.KeyIndex] = s.version
}

// compare compares the state with that of a version. The caller holds the checker's mu.
func (st *partialState) compare(c *checker, request int, version uint64) {
	if version > uint64(len(c.storm.Events)) {
		c.broken(errAtomic, request, "a state of version %d, which has never been", version)
		return
	}
	missing, stale, first := 0, 0, ""
	there := 0
	c.stateAt(version, func(key, event int32) {
		e := &c.storm.Events[event]
		switch v, ok := st.versions[key]; {
		case !ok:
			missing++
			if first == "" {
				first = e.Key + " is missing"
			}
			return
		case v != e.Seq:
			stale++
			if first == "" {
				first = fmt.Sprintf("%s is of version %d, not %d", e.Key, v, e.Seq)
			}
		}
		there++
	})
	tooMany := len(st.versions) - there
	if missing+stale+tooMany > 0 {
		if first == "" {
			first = "deleted objects are present"
		}
		c.broken(errAtomic, request, "not the state of version %d: %d objects are missing, %d of another version, %d too many; first: %s",
			version, missing, stale, tooMany, first)
	}
}

// pagedList is a list with outstanding pages.
type pagedList struct {
	state   partialState
	request int
	version uint64
}

// List observes the answer to a list request or to one page of it.
func (c *checker) List(opts metav1.ListOptions, list runtime.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.stats.Lists++
	request := c.requests
	m, err := meta.ListAccessor(list)
	if err != nil {
		c.broken(errAtomic, request, "a list: %v", err)
		return
	}
	version, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		c.broken(errAtomic, request, "a list of the version %q", m.GetResourceVersion())
		return
	}
	p := c.pages
	c.pages = nil
	if opts.Continue == "" || p == nil {
		p = &pagedList{request: request, version: version}
		c.notOlder(request, opts, version)
	}
	if version != p.version {
		c.broken(errAtomic, request, "a page of version %d in a list of version %d", version, p.version)
	}
	_ = meta.EachListItem(list, func(o runtime.Object) error { // never fails
		p.state.add(c, request, o)
		return nil
	})
	if m.GetContinue() != "" {
		c.pages = p
		return
	}
	p.state.compare(c, request, p.version)
	c.reach(p.version)
}

// notOlder compares a state's version with the requested one. The caller holds mu.
func (c *checker) notOlder(request int, opts metav1.ListOptions, version uint64) {
	asked, err := strconv.ParseUint(opts.ResourceVersion, 10, 64)
	if err != nil {
		return // no version requested
	}
	switch {
	case opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact && version != asked:
		c.broken(errAtomic, request, "a state of version %d, exactly %d was asked for", version, asked)
	case version < asked:
		c.broken(errOrdered, request, "a state of version %d, not older than %d was asked for", version, asked)
	}
}
