// Package store keeps what a simulated API server serves: for each resource a
// log of its events, of which the newest of each object is the state.
//
// A resourceVersion is a position in the log: the number of the last event that
// is part of what it names. Positions are without gaps, so that an event's
// number is its object's resourceVersion.
//
// A log may play a [Recording]: the storm's events become visible one after
// the other when they are released, and then position and sequence number are
// the same. From the first write on, the log goes its own way: what is written
// and what is released take the next position each, in the order in which they
// come, and the storm's objects are numbered anew.
//
// # Why reading is cheap
//
// The events of a log lie in blocks. The frames of a block are encoded once for
// each form, by the first watch that comes to them, and then lie in one piece
// of memory that never changes, so that a watch takes no lock, copies nothing
// and writes as many as are ready at once. What that costs is bounded by a
// [Budget].
package store

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/source/stream"
	"watchlab/loadgen/storm"
)

// DefaultHistory is how many of the newest events are kept of those that were
// written, or released after something was written.
const DefaultHistory = 100_000

// first is the position at which a log without a recording begins: a version 0
// would mean any.
const first = 1

// ErrGone is the error for events that are no longer kept.
var ErrGone = errors.New("the events are no longer kept")

// Options change how a [Log] works. The zero value is a good default.
type Options struct {
	Retain  int
	History int
}

// Log is the history and the state of one resource. It is safe for concurrent
// use.
type Log struct {
	stream.Position
	rec    *Recording
	maker  maker
	opts   Options
	forked atomic.Uint64
	tail   atomic.Pointer[tail]
	floor  atomic.Uint64
	write  sync.Mutex
	played int

	mu      sync.RWMutex
	indexed uint64
	last    []uint64
	names   []string
	sorted  []int32
	extra   map[string]int32
	free    []int32
	shared  bool
}

// tail is what follows a position. It is replaced as a whole.
type tail struct {
	base   uint64
	chunks []*chunk
}

// chunk is a block with its events.
type chunk struct {
	block
	events [blockSize]atomic.Pointer[storm.Event]
	before [blockSize]uint64
}

// never is a position that no log comes to.
const never = 1 << 63

// New returns an empty log of objects of a kind.
func New(kind *wire.Kind, budget *Budget, opts Options) *Log {
	l := &Log{maker: maker{kind, budget}, opts: opts.complete(), extra: map[string]int32{}}
	l.indexed = first
	l.last = []uint64{}
	l.forked.Store(first)
	l.tail.Store(&tail{base: first})
	l.floor.Store(first)
	l.Raise(first)
	return l
}

// Play returns a log that plays a recording. The initial list is visible.
func (r *Recording) Play(opts Options) *Log {
	l := &Log{rec: r, maker: r.maker, opts: opts.complete(), extra: map[string]int32{}, shared: true}
	l.forked.Store(never)
	l.tail.Store(&tail{})
	l.Raise(uint64(r.storm.Initial))
	return l
}

func (o Options) complete() Options {
	if o.History <= 0 {
		o.History = DefaultHistory
	}
	return o
}

// Bounds are the positions that may be asked for. Any state is, with a
// recording, the one at its beginning, so that nothing of it is missed; without
// one, the present.
func (l *Log) Bounds() stream.Bounds {
	visible := l.Visible()
	b := stream.Bounds{Visible: visible, Oldest: l.floor.Load(), First: visible}
	if l.rec != nil {
		b.First = uint64(l.rec.storm.Initial)
	}
	if retain := uint64(max(l.opts.Retain, 0)); retain > 0 && visible > retain {
		b.Oldest = max(b.Oldest, visible-retain)
	}
	return b
}

// Release makes the recording's events up to seq visible. It never blocks for
// long: O(1), plus the followers that wait, while nothing was written, else
// O(events released). One that is visible already, or beyond the end, counts as
// the nearest that isn't.
//
// Once something was written, the storm acts as the writers it was recorded
// from would: what it changes or deletes is left out where the object was
// deleted, and what it creates replaces an object of that name. It knows nothing
// of what others wrote to an object, and overwrites it.
func (l *Log) Release(seq uint64) {
	if l.rec == nil {
		return
	}
	seq = min(seq, uint64(len(l.rec.storm.Events)))
	l.write.Lock()
	defer l.write.Unlock()
	if l.forked.Load() == never {
		l.Raise(seq)
		return
	}
	if uint64(l.played) >= seq {
		return
	}
	l.mu.Lock()
	to := l.Visible()
	for ; uint64(l.played) < seq; l.played++ {
		e := &l.rec.storm.Events[l.played]
		was := l.newest(e.Key)
		there := was > 0 && l.event(was-1).Type != watch.Deleted
		typ := e.Type
		switch {
		case typ == watch.Added && there:
			typ = watch.Modified
		case typ != watch.Added && !there:
			continue
		}
		o, err := wire.AtVersion(e.Object, strconv.FormatUint(to+1, 10))
		if err != nil {
			// It was checked when the storm was: its objects have metadata.
			continue
		}
		to++
		l.append(to, typ, e.Key, o)
	}
	l.mu.Unlock()
	l.Raise(to)
}

// Played tells how much of the recording was released.
func (l *Log) Played() uint64 {
	l.write.Lock()
	defer l.write.Unlock()
	if l.forked.Load() == never {
		return l.Visible()
	}
	return uint64(l.played)
}

// Put appends an event of an object, which gets its position as resourceVersion
// and belongs to the log from then on. It returns false, and appends nothing,
// where the newest event of the key is not at the position was (0: there is no
// object); see [Log.Get].
func (l *Log) Put(t watch.EventType, key string, o runtime.Object, was uint64) (bool, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	l.write.Lock()
	defer l.write.Unlock()
	l.mu.Lock()
	l.advance()
	newest := l.newest(key)
	if newest > 0 && l.event(newest-1).Type == watch.Deleted {
		newest = 0
	}
	if newest != was {
		l.mu.Unlock()
		return false, nil
	}
	if l.forked.Load() == never {
		at := l.Visible()
		l.played = int(at)
		l.tail.Store(&tail{base: at})
		l.forked.Store(at)
		l.floor.Store(0)
	}
	at := l.Visible() + 1
	m.SetResourceVersion(strconv.FormatUint(at, 10))
	l.append(at, t, key, o)
	l.mu.Unlock()
	l.Raise(at)
	return true, nil
}

// append adds an event at a position, which is not visible yet. The index is up
// to date; write and mu are held.
func (l *Log) append(at uint64, t watch.EventType, key string, o runtime.Object) {
	k := l.keyIndex(key)
	tl := l.tail.Load()
	n := at - 1 - tl.base
	if n/blockSize == uint64(len(tl.chunks)) {
		tl = &tail{base: tl.base, chunks: append(tl.chunks, &chunk{})}
		l.tail.Store(tl)
	}
	c := tl.chunks[n/blockSize]
	c.events[n%blockSize].Store(&storm.Event{Type: t, Seq: at, Key: key, KeyIndex: k, Object: o})
	c.before[n%blockSize] = l.last[k]
	l.last[k] = at
	l.indexed = at
	l.trim(at)
}

// trim gives up events of the tail that are older than the history, save for
// those that are part of the state at its beginning. write and mu are held.
func (l *Log) trim(at uint64) {
	tl := l.tail.Load()
	floor := max(l.floor.Load(), tl.base)
	if at < floor+uint64(l.opts.History)+blockSize {
		return
	}
	// One block at a time, since one is what has come in since the last time.
	l.floor.Store(floor + blockSize)
	c := tl.chunks[(floor-tl.base)/blockSize]
	for j := range c.events {
		e := c.events[j].Load()
		if before := c.before[j]; before > tl.base {
			n := before - 1 - tl.base
			tl.chunks[n/blockSize].events[n%blockSize].Store(nil)
		}
		if e.Type != watch.Deleted {
			continue
		}
		c.events[j].Store(nil)
		if l.last[e.KeyIndex] == e.Seq {
			l.forget(e)
		}
	}
	l.maker.budget.drop(&c.block)
}

// event returns the event at an index, its position less one, or nil where it
// is no longer kept.
func (l *Log) event(i uint64) *storm.Event {
	if i < l.forked.Load() {
		return &l.rec.storm.Events[i]
	}
	tl := l.tail.Load()
	i -= tl.base
	return tl.chunks[i/blockSize].events[i%blockSize].Load()
}

// previous returns the position of the event before, of the same key, or 0.
func (l *Log) previous(i uint64) uint64 {
	if i < l.forked.Load() {
		return uint64(l.rec.before()[i] + 1)
	}
	tl := l.tail.Load()
	i -= tl.base
	return tl.chunks[i/blockSize].before[i%blockSize]
}

// advance brings the index up to what is visible. mu is held for writing.
func (l *Log) advance() {
	if l.last == nil {
		l.names, l.sorted = l.rec.names(), l.rec.sorted()
		l.last = make([]uint64, len(l.names))
	}
	visible := l.Visible()
	// Beyond the fork, each event is indexed as it is appended.
	if forked := l.forked.Load(); visible > forked {
		visible = forked
	}
	for ; l.indexed < visible; l.indexed++ {
		l.last[l.rec.storm.Events[l.indexed].KeyIndex] = l.indexed + 1
	}
}

// newest returns the position of the newest event of a key, or 0. mu is held,
// and the index is up to date.
func (l *Log) newest(key string) uint64 {
	k, ok := l.extra[key]
	if !ok && l.rec != nil {
		k, ok = l.rec.index()[key]
	}
	if !ok {
		return 0
	}
	return l.last[k]
}

// keyIndex returns the index of a key, a new one if need be. mu is held.
func (l *Log) keyIndex(key string) int32 {
	if l.rec != nil {
		if k, ok := l.rec.index()[key]; ok {
			return k
		}
	}
	if k, ok := l.extra[key]; ok {
		return k
	}
	if l.shared {
		l.names, l.sorted = slices.Clone(l.names), slices.Clone(l.sorted)
		l.shared = false
	}
	var k int32
	if n := len(l.free); n > 0 {
		k, l.free = l.free[n-1], l.free[:n-1]
		l.names[k] = key
	} else {
		k = int32(len(l.names))
		l.names = append(l.names, key)
		l.last = append(l.last, 0)
	}
	l.extra[key] = k
	l.sorted = slices.Insert(l.sorted, l.place(key), k)
	return k
}

// place returns where in sorted a key is or would be.
func (l *Log) place(key string) int {
	i, _ := slices.BinarySearchFunc(l.sorted, key, func(k int32, key string) int { return strings.Compare(l.names[k], key) })
	return i
}

// forget gives up a key, of which nothing is left but this event. mu is held.
func (l *Log) forget(e *storm.Event) {
	k, ok := l.extra[e.Key]
	if !ok {
		// The recording's keys are there for good.
		l.last[e.KeyIndex] = 0
		return
	}
	i := l.place(e.Key)
	l.sorted = slices.Delete(l.sorted, i, i+1)
	delete(l.extra, e.Key)
	l.last[k], l.names[k] = 0, ""
	l.free = append(l.free, k)
}

// Item is the newest event of an object at a position.
type Item struct {
	*storm.Event
	index uint64
}

// read locks the index for reading when it is up to date.
func (l *Log) read() (unlock func()) {
	l.mu.RLock()
	if l.last != nil && l.indexed >= l.Visible() {
		return l.mu.RUnlock
	}
	l.mu.RUnlock()
	l.mu.Lock()
	l.advance()
	// A reader that changes nothing more; there is no way down from one lock
	// to the other that isn't a gap.
	return l.mu.Unlock
}

// Get returns an object and its position, or nil and 0. The object must not be
// changed. O(1), plus the events since the index was last asked for.
func (l *Log) Get(key string) (runtime.Object, uint64) {
	defer l.read()()
	at := l.newest(key)
	if at == 0 {
		return nil, 0
	}
	e := l.event(at - 1)
	if e.Type == watch.Deleted {
		return nil, 0
	}
	return e.Object, at
}

// State returns the newest event of every object that is there at a position
// and whose key begins with prefix and comes after the key after, in order of
// key. What is there at a position that is no longer retained is not known.
// O(keys), plus the events after the position.
func (l *Log) State(at uint64, prefix, after string) []Item {
	defer l.read()()
	from := 0
	if start := max(prefix, after); start != "" {
		from = l.place(start)
	}
	var state []Item
	if prefix == "" {
		state = make([]Item, 0, len(l.sorted)-from)
	}
	for _, k := range l.sorted[from:] {
		name := l.names[k]
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if name <= after {
			continue
		}
		pos := l.last[k]
		for pos > at {
			pos = l.previous(pos - 1)
		}
		if pos == 0 {
			continue
		}
		if e := l.event(pos - 1); e != nil && e.Type != watch.Deleted {
			state = append(state, Item{e, pos - 1})
		}
	}
	return state
}

// Frames returns the frames of the events after the position from, at most up
// to the position to, in one piece, and the position up to which they go. They
// are shared and must not be changed. The error is [ErrGone], or that of an
// object that cannot be encoded. O(1) where they are encoded.
func (l *Log) Frames(form wire.Form, from, to uint64) (data []byte, upto uint64, err error) {
	if from < l.floor.Load() {
		return nil, from, ErrGone
	}
	f, start, end, err := l.frames(form, from, to)
	if err != nil {
		return nil, from, err
	}
	return f.between(int(from-start), int(end-start)), end, nil
}

// frames returns the frames of the block in which the event after from lies,
// the position before it, and up to where they go, at most to.
func (l *Log) frames(form wire.Form, from, to uint64) (f *frames, start, end uint64, err error) {
	if forked := l.forked.Load(); from < forked {
		b := from / blockSize
		start = b * blockSize
		end = min(to, start+blockSize, forked)
		s := &l.rec.blocks[b].slots[form]
		if f = s.have(int(end - start)); f == nil {
			events := l.rec.storm.Events[start:end]
			f, err = s.make(l.maker, form, int(end-start), func(i int) *storm.Event { return &events[i] })
		}
		return f, start, end, err
	}
	tl := l.tail.Load()
	b := (from - tl.base) / blockSize
	start = tl.base + b*blockSize
	end = min(to, start+blockSize)
	c := tl.chunks[b]
	s := &c.slots[form]
	if f = s.have(int(end - start)); f == nil {
		f, err = s.make(l.maker, form, int(end-start), func(i int) *storm.Event { return c.events[i].Load() })
	}
	return f, start, end, err
}

// Event returns the event after a position, and the one before it of the same
// object, nil where the object was not there. The error is [ErrGone].
func (l *Log) Event(at uint64) (e, was *storm.Event, err error) {
	if at < l.floor.Load() {
		return nil, nil, ErrGone
	}
	if e = l.event(at); e == nil {
		return nil, nil, ErrGone
	}
	if before := l.previous(at); before > 0 {
		if was = l.event(before - 1); was != nil && was.Type == watch.Deleted {
			was = nil
		}
	}
	return e, was, nil
}

// Object returns the encoded object of an event of which [Log.State] told. It
// is encoded for this once where no watch has come by there. It must not be
// changed.
func (l *Log) Object(form wire.Form, i Item) ([]byte, error) {
	if f, n := l.encoded(form, i.index); f != nil {
		return f.object(n, form.Media()), nil
	}
	return l.maker.kind.AppendObject(nil, form, i.Event.Object)
}

// ObjectAt returns the encoded object of the event after a position. It must not
// be changed. The error is [ErrGone], or that of an object that cannot be
// encoded.
func (l *Log) ObjectAt(form wire.Form, at uint64) ([]byte, error) {
	if at < l.floor.Load() {
		return nil, ErrGone
	}
	f, start, _, err := l.frames(form, at, at+1)
	if err != nil {
		return nil, err
	}
	return f.object(int(at-start), form.Media()), nil
}

// encoded returns the frames in which an event is, and its place in them, if it
// has been encoded.
func (l *Log) encoded(form wire.Form, index uint64) (*frames, int) {
	if index < l.forked.Load() {
		n := int(index % blockSize)
		return l.rec.blocks[index/blockSize].slots[form].have(n + 1), n
	}
	tl := l.tail.Load()
	index -= tl.base
	n := int(index % blockSize)
	return tl.chunks[index/blockSize].slots[form].have(n + 1), n
}

// Prepare encodes what a list of many items is about to ask for, where that is
// most of a block: for the next list, and for watches.
func (l *Log) Prepare(form wire.Form, items []Item) error {
	forked := l.forked.Load()
	counts := map[uint64]int{}
	for _, it := range items {
		if it.index < forked {
			counts[it.index/blockSize]++
		}
	}
	for _, b := range slices.Sorted(maps.Keys(counts)) {
		end := min((b+1)*blockSize, forked, uint64(len(l.rec.storm.Events)))
		if counts[b] < blockSize/2 || l.rec.blocks[b].slots[form].have(counts[b]) != nil {
			continue
		}
		if l.Visible() < end || l.maker.budget.full() {
			continue
		}
		if _, _, _, err := l.frames(form, b*blockSize, end); err != nil {
			return err
		}
	}
	return nil
}
