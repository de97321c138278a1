// Package store keeps the objects of a simulated API server: for each resource a log of
// events. The newest event of each object is the current state.
//
// A position is the number of the last event included; positions have no gaps. A resourceVersion is a [Revision] of
// all logs of a server, as of etcd: the state at a version includes the events up to it.
//
// A log may play a [Recording]: the storm's events become visible in order as they are
// released, and positions and versions are their sequence numbers. After the first write the log forks:
// written and released events take the next positions in order of arrival, and the storm's
// objects get new versions.
//
// The events of a log lie in blocks, whose encodings all logs of a recording share up to the fork. The first watch
// that needs the frames of a block in some form encodes them into one immutable piece of memory. Later watches take
// no lock, copy nothing, and write as many frames as are ready at once. A [Budget] bounds the memory.
package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// DefaultHistory is the number of events kept after the fork.
const DefaultHistory = 100_000

// first is the initial position and version of a log without a recording; version 0 means any.
const first = 1

// Revision numbers the events of all logs that share it. The zero value is at 1, like etcd's. It is safe for
// concurrent use.
type Revision struct{ events atomic.Uint64 }

// Now returns the number of the newest event.
func (r *Revision) Now() uint64 { return r.events.Load() + 1 }

func (r *Revision) next() uint64 { return r.events.Add(1) + 1 }

// raise makes later numbers larger than to.
func (r *Revision) raise(to uint64) {
	for have := r.events.Load(); have+1 < to && !r.events.CompareAndSwap(have, to-1); have = r.events.Load() {
	}
}

// ErrGone means that events are no longer kept.
var ErrGone = errors.New("the events are no longer kept")

// Log is the history and the state of one resource. It is safe for concurrent use.
type Log struct {
	// Position is the last visible position. Raising it publishes the events: they are
	// stored before, and readers without a lock load the position first.
	Position
	rec     *Recording // nil for a log without a recording
	budget  *Budget
	version *Revision
	retain  int                      // events by which the start position of a watch may lag; 0 means all
	history int                      // number of newest events kept after the fork
	base    uint64                   // position before the first event
	chunks  atomic.Pointer[[]*chunk] // replaced under write and mu, read without a lock
	floor   atomic.Uint64            // oldest position from which a watch can start
	write   sync.Mutex               // serializes changes of the visible position; taken before mu
	played  int                      // released events of the recording; guarded by write
	// observe is called under write; see Observe. Nil costs nothing.
	observe func(Change)
	// Dropped, if not nil, is called with the oldest position kept when it rises. It is set before the first
	// write, and must not use the log.
	Dropped func(floor uint64)

	mu      sync.RWMutex      // guards the fields below
	forked  uint64            // position of the fork, or never; events up to it are the recording's
	indexed uint64            // position of the newest event, which is about to be visible
	keys    map[string]*entry // by name
	sorted  []*entry          // in the order of names
}

// entry is the key of an object.
type entry struct {
	name    string
	last    uint64 // position of the newest event, or 0
	foreign bool   // that event is not the recording's, or a change replayed on one
}

// chunk is a block with its events.
type chunk struct {
	*block                                        // the recording's, or the log's own after the fork
	events [blockSize]atomic.Pointer[storm.Event] // nil until visible and after trim drops them
	// before holds the position of the key's previous event, or 0. It is written once,
	// before the position becomes visible; readers need no lock.
	before  [blockSize]uint64
	version [blockSize]uint64 // of each event; as before
}

const never = 1 << 63 // a position beyond any log

func newLog(budget *Budget, version *Revision, retain int) *Log {
	l := &Log{budget: budget, version: version, retain: retain, history: cmp.Or(max(retain, 0), DefaultHistory), keys: map[string]*entry{}}
	l.chunks.Store(new([]*chunk))
	return l
}

// New returns an empty log. A watch may start up to retain events
// late, and that many are kept; 0 means any number, and [DefaultHistory].
func New(budget *Budget, version *Revision, retain int) *Log {
	l := newLog(budget, version, retain)
	l.base, l.forked, l.indexed = first, first, first
	l.floor.Store(first)
	l.Raise(first)
	return l
}

// Play returns a log of a recording. The initial list is visible. For retain see [New]. If there is no initial list
// and renumber is set, the log forks at once, so that no version is 0.
func (r *Recording) Play(version *Revision, retain int, renumber bool) *Log {
	l := newLog(r.budget, version, retain)
	l.rec, l.forked = r, never
	entries := make([]entry, len(r.sorted))
	for i, name := range r.sorted {
		entries[i].name = name
		l.keys[name] = &entries[i]
		l.sorted = append(l.sorted, &entries[i])
	}
	l.Release(uint64(r.storm.Initial), nil)
	if renumber && r.storm.Initial == 0 {
		l.fork()
	}
	return l
}

// fork ends the numbers of the recording. The caller holds write and mu, or the log is not shared yet.
func (l *Log) fork() {
	l.forked = l.indexed
	if n := l.forked % blockSize; n > 0 { // The recording's block may go on otherwise.
		all := slices.Clone(*l.chunks.Load())
		old, own := all[len(all)-1], &chunk{block: new(block)}
		for i := range n {
			own.events[i].Store(old.events[i].Load())
		}
		own.before, own.version = old.before, old.version
		all[len(all)-1] = own
		l.chunks.Store(&all)
	}
}

// Bounds returns the available versions. "Any" state is the current one, but the empty one of a recording with its
// own numbers and without an initial list: its list returned 0.
func (l *Log) Bounds() Bounds {
	at, version, forked := l.newestPosition()
	oldest := l.floor.Load()
	if retain := uint64(max(l.retain, 0)); retain > 0 && at > retain {
		oldest = max(oldest, at-retain)
	}
	b := Bounds{Visible: version, Newest: l.version.Now(), Oldest: l.Version(oldest), First: version}
	if !forked && l.rec.storm.Initial == 0 {
		b.First = 0
	}
	return b
}

// newestPosition returns the last position and the version of the state there: that of the whole server, unless the
// log has the numbers of a recording.
func (l *Log) newestPosition() (at, version uint64, forked bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.forked == never {
		return l.indexed, l.indexed, false
	}
	return l.indexed, l.version.Now(), true // Numbers of this log's events are taken under mu.
}

// Version returns the version of the event at a position.
func (l *Log) Version(at uint64) uint64 {
	if at <= l.base {
		return at
	}
	c, n := l.chunk(at - 1)
	return c.version[n]
}

// Newest returns the newest version at which the state is that of a position.
func (l *Log) Newest(at uint64) uint64 {
	if newest, version, _ := l.newestPosition(); newest == at {
		return version
	}
	return l.Version(at)
}

// At returns the position of a version. O(log events).
func (l *Log) At(version uint64) uint64 {
	newest, _, _ := l.newestPosition()
	n := sort.Search(int(newest-l.base), func(i int) bool { return l.Version(l.base+uint64(i)+1) > version })
	return min(l.base, version) + uint64(n)
}

// Release makes the recording's events up to seq visible. It takes O(released events) plus the waiting followers. A seq
// out of range counts as the nearest one in range.
//
// After the fork, released events act like writes: a change or deletion of a missing object is dropped,
// and a creation replaces an existing object. On an object that another writer has changed, an event is
// replayed as the change that it is in the recording ([patch.Replay]), so that the other changes stay; it
// is dropped if the writer has replaced the object by one with another UID, and a deletion waits for the
// finalizers that writers have added.
//
// due, if not nil, returns the intended time of an event from its time in the storm, for the observer.
func (l *Log) Release(seq uint64, due func(at time.Duration) time.Time) {
	if l.rec == nil {
		return
	}
	seq = min(seq, uint64(len(l.rec.storm.Events)))
	l.write.Lock()
	defer l.write.Unlock()
	if uint64(l.played) >= seq {
		return
	}
	l.mu.Lock()
	now := time.Now()
	var changes []Change
	for ; uint64(l.played) < seq; l.played++ {
		e := &l.rec.storm.Events[l.played]
		by, version := Origin{By: Storm}, e.Seq
		if due != nil {
			by.Intended = due(e.At)
		}
		k := l.keys[e.Key]
		old, _ := l.newest(k)
		if l.forked != never {
			version = l.version.next()
			if e = l.replay(l.played, k, old, version); e == nil {
				continue
			}
		}
		l.append(k, e, version)
		if l.observe != nil {
			changes = append(changes, changeOf(by, now, e, old, version))
		}
	}
	if l.forked == never {
		l.version.raise(seq)
	}
	to := l.indexed
	l.mu.Unlock()
	l.Raise(to)
	for _, c := range changes {
		l.observe(c)
	}
}

// Put appends an event. The object belongs to the log and gets the next version. If the newest event of the key is not at position was (0: no object),
// Put appends nothing and returns false; see [Log.Get].
func (l *Log) Put(by Origin, t watch.EventType, key string, o resources.Object, was uint64) bool {
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	k := l.keys[key]
	before, newest := l.newest(k)
	if newest != was {
		l.mu.Unlock()
		return false
	}
	if l.forked == never {
		l.fork()
	}
	at, version := l.indexed+1, l.version.next()
	o.SetResourceVersion(strconv.FormatUint(version, 10))
	e := &storm.Event{Type: t, Seq: at, Key: key, Object: o}
	l.append(k, e, version).foreign = t != watch.Deleted
	l.mu.Unlock()
	now := time.Now()
	l.Raise(at)
	if l.observe != nil {
		l.observe(changeOf(by, now, e, before, version))
	}
	return true
}

// append adds the event of the next position, which is not visible yet, and returns its key, which is new if k is nil. The
// caller holds write and mu.
func (l *Log) append(k *entry, e *storm.Event, version uint64) *entry {
	if k == nil {
		k = &entry{name: e.Key}
		l.keys[e.Key] = k
		l.sorted = slices.Insert(l.sorted, l.place(e.Key), k)
	}
	i, all := e.Seq-1-l.base, *l.chunks.Load()
	if i/blockSize == uint64(len(all)) {
		c := &chunk{block: new(block)}
		if l.forked == never {
			c.block = &l.rec.blocks[i/blockSize]
		}
		l.chunks.Store(new(append(all, c)))
	}
	c, n := l.chunk(e.Seq - 1)
	c.events[n].Store(e)
	c.before[n], c.version[n] = k.last, version
	k.last, l.indexed = e.Seq, e.Seq
	l.trim(e.Seq)
	return k
}

// own returns the position from which the blocks are the log's own. The caller holds mu.
func (l *Log) own() uint64 { return l.base + (l.forked-l.base)/blockSize*blockSize }

// trim drops events after the fork that are older than the history, except those of the
// state at its beginning. The caller holds write and mu.
func (l *Log) trim(at uint64) {
	floor := max(l.floor.Load(), l.own())
	if at < floor+uint64(l.history)+blockSize {
		return
	}
	// One block has been added since the last time.
	l.floor.Store(floor + blockSize)
	c, _ := l.chunk(floor)
	for j := range c.events {
		e := c.events[j].Load()
		if before := c.before[j]; before > l.own() {
			old, n := l.chunk(before - 1)
			old.events[n].Store(nil)
		}
		if e.Type != watch.Deleted {
			continue
		}
		c.events[j].Store(nil)
		if l.keys[e.Key].last == e.Seq {
			i := l.place(e.Key)
			l.sorted = slices.Delete(l.sorted, i, i+1)
			delete(l.keys, e.Key)
		}
	}
	l.budget.drop(c.block)
	if l.Dropped != nil {
		l.Dropped(floor + blockSize)
	}
}

// Close gives the log's own encodings back to the budget, which other logs share. No watch is open.
func (l *Log) Close() {
	for i := l.own(); i < l.indexed; i += blockSize {
		c, _ := l.chunk(i)
		l.budget.drop(c.block)
	}
}

// chunk returns the chunk of an event by its index (position − 1), and its index in the chunk.
func (l *Log) chunk(i uint64) (*chunk, int) {
	i -= l.base
	return (*l.chunks.Load())[i/blockSize], int(i % blockSize)
}

// event returns the event at an index (position − 1), or nil if it was dropped.
func (l *Log) event(i uint64) *storm.Event {
	c, n := l.chunk(i)
	return c.events[n].Load()
}

// newest returns the newest event of an object and its position; 0 if the object does not
// exist. The caller holds mu.
func (l *Log) newest(k *entry) (*storm.Event, uint64) {
	if k != nil && k.last > 0 {
		if e := l.event(k.last - 1); e.Type != watch.Deleted {
			return e, k.last
		}
	}
	return nil, 0
}

// place returns the position of a key in sorted.
func (l *Log) place(key string) int {
	i, _ := slices.BinarySearchFunc(l.sorted, key, func(k *entry, key string) int { return strings.Compare(k.name, key) })
	return i
}

// Get returns an object and its position, or nil and 0. The object must not be changed. O(1).
func (l *Log) Get(key string) (resources.Object, uint64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	e, at := l.newest(l.keys[key])
	if at == 0 {
		return nil, 0
	}
	return e.Object.(resources.Object), at // a valid storm's objects have metadata
}

// State returns the newest event of each object at a retained position whose key has the prefix and
// is greater than after, sorted by key. O(keys), plus the events after the position.
func (l *Log) State(at uint64, prefix, after string) []*storm.Event {
	l.mu.RLock()
	defer l.mu.RUnlock()
	from := 0
	if start := max(prefix, after); start != "" {
		from = l.place(start)
	}
	var state []*storm.Event
	if prefix == "" {
		state = make([]*storm.Event, 0, len(l.sorted)-from)
	}
	for _, k := range l.sorted[from:] {
		if !strings.HasPrefix(k.name, prefix) {
			break
		}
		if k.name <= after {
			continue
		}
		pos := k.last
		for pos > at {
			c, n := l.chunk(pos - 1)
			pos = c.before[n]
		}
		if pos == 0 {
			continue
		}
		if e := l.event(pos - 1); e != nil && e.Type != watch.Deleted {
			state = append(state, e)
		}
	}
	return state
}

// Frames returns frames of the events after position from, in one piece, and the position
// of the last one, at most to; if members is true, each as a gzip member. The bytes are shared
// and must not be changed. The error is [ErrGone] or that of an object that cannot be encoded.
// O(1) if they are encoded.
func (l *Log) Frames(by Encoder, form wire.Form, members bool, from, to uint64) (data []byte, upto uint64, err error) {
	if from < l.floor.Load() {
		return nil, from, ErrGone
	}
	f, start, end, err := l.frames(by, form, members, from, to)
	if err != nil {
		return nil, from, err
	}
	return f.between(int(from-start), int(end-start)), end, nil
}

// frames returns the frames of the block of the event after from, the block's start, and
// the end of the frames, at most to.
func (l *Log) frames(by Encoder, form wire.Form, members bool, from, to uint64) (f *frames, start, end uint64, err error) {
	c, i := l.chunk(from)
	start = from - uint64(i)
	end = min(to, start+blockSize)
	s, n := c.slot(form, members), int(end-start)
	if f = s.have(by, n); f == nil {
		f, err = s.make(by, l.budget, form, members, n, func(i int) *storm.Event { return c.events[i].Load() })
	}
	return f, start, end, err
}

// Event returns the event after a position and the previous event of its object, nil if
// there was no object. The error is [ErrGone].
func (l *Log) Event(at uint64) (e, was *storm.Event, err error) {
	if at < l.floor.Load() {
		return nil, nil, ErrGone
	}
	c, n := l.chunk(at)
	if e = c.events[n].Load(); e == nil {
		return nil, nil, ErrGone
	}
	if before := c.before[n]; before > 0 {
		if was = l.event(before - 1); was != nil && was.Type == watch.Deleted {
			was = nil
		}
	}
	return e, was, nil
}

// Object returns the encoded object of an event of [Log.State]. It keeps no encoding of
// its own. The bytes must not be changed.
func (l *Log) Object(by Encoder, form wire.Form, e *storm.Event) ([]byte, error) {
	c, n := l.chunk(e.Seq - 1)
	if f := c.plain[form].have(by, n+1); f != nil {
		return f.object(n, form.Media()), nil
	}
	return by.AppendObject(nil, form, e.Object)
}

// Prepare encodes the blocks of the recording that a list mostly needs, for the next list
// and for watches.
func (l *Log) Prepare(by Encoder, form wire.Form, events []*storm.Event) error {
	l.mu.RLock()
	own := l.own()
	l.mu.RUnlock()
	counts := map[uint64]int{}
	for _, e := range events {
		if e.Seq <= own {
			counts[(e.Seq-1)/blockSize]++
		}
	}
	for _, n := range slices.Sorted(maps.Keys(counts)) {
		start, end := n*blockSize, min((n+1)*blockSize, uint64(len(l.rec.storm.Events)))
		c, _ := l.chunk(start)
		// In a full budget more encodings displace others.
		if counts[n] < blockSize/2 || c.plain[form].have(by, counts[n]) != nil || l.Visible() < end || l.budget.Used() >= l.budget.limit {
			continue
		}
		if _, _, _, err := l.frames(by, form, false, start, end); err != nil {
			return err
		}
	}
	return nil
}

// Recording is a storm that any number of logs play. They share its encoded events. It is
// safe for concurrent use.
type Recording struct {
	storm  *storm.Storm
	kind   *wire.Kind
	budget *Budget
	blocks []block

	sorted []string // keys
	before []int32  // for each event, the index of the key's previous event, or -1
}

// NewRecording returns the recording of a valid storm (see
// [storm.Storm.Validate]). Nothing is encoded yet. O(events).
func NewRecording(s *storm.Storm, kind *wire.Kind, budget *Budget) *Recording {
	r := &Recording{
		storm: s, kind: kind, budget: budget, blocks: make([]block, (len(s.Events)+blockSize-1)/blockSize),
		before: make([]int32, len(s.Events)),
	}
	last := slices.Repeat([]int32{-1}, s.Keys)
	for i := range s.Events {
		e := &s.Events[i]
		if r.before[i] = last[e.KeyIndex]; r.before[i] < 0 {
			r.sorted = append(r.sorted, e.Key)
		}
		last[e.KeyIndex] = int32(i)
	}
	slices.Sort(r.sorted)
	return r
}

// Encode encodes events in advance, up to three quarters of the budget; if members is true, as
// gzip members, too. The error is that of an event that cannot be encoded. O(bytes).
func (r *Recording) Encode(form wire.Form, members bool) error {
	if members {
		if err := r.encode(form, true); err != nil {
			return err
		}
	}
	return r.encode(form, false)
}

func (r *Recording) encode(form wire.Form, members bool) error {
	for b := range r.blocks {
		if r.budget.Used() >= r.budget.limit/4*3 {
			return nil // no room for permanent encodings
		}
		s := r.blocks[b].slot(form, members)
		s.mu.Lock()
		s.stays = s.frames.Load() == nil
		s.mu.Unlock()
		events := r.storm.Events[b*blockSize : min((b+1)*blockSize, len(r.storm.Events))]
		if _, err := s.make(r.kind, r.budget, form, members, len(events), func(i int) *storm.Event { return &events[i] }); err != nil {
			return fmt.Errorf("storm %s: %w", r.storm.Name, err)
		}
	}
	return nil
}
