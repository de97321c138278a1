package decode

import (
	"fmt"
	"reflect"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
	"k8s.io/apimachinery/pkg/api/equality"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

const (
	// DefaultTableBytes bounds a [Table] by default.
	DefaultTableBytes = 16 << 20

	probes       = 4       // slots that a group may take
	minGroup     = 12      // bytes; shorter groups are decoded
	maxInterned  = 64      // bytes of a string
	internSlots  = 1 << 13 // strings
	doorkeepers  = 1 << 15 // hashes of groups seen
	bytesPerSlot = 256
	largestShare = 8 // a group takes at most this part of the bytes
)

// Table holds decoded groups by their wire bytes. Decoders may share a table, also concurrently. No object
// refers to what it holds, but the objects of shared-readonly.
//
// A hit is verified by the bytes: the table keeps those of each group, so neither a collision nor a
// hostile input can return another value. A table has two generations. A hit in the old one moves
// the group to the young one. When the young one has half of the bytes, it becomes the old one, and
// the old one is dropped. Reads and writes are atomic operations on one slot, without locks.
type Table struct {
	limit      int64
	young, old atomic.Pointer[generation]
	seen       [doorkeepers]atomic.Uint32
	strings    [internSlots]struct {
		seen atomic.Uint32 // of the last string that was not kept
		kept atomic.Pointer[string]
	}
	hash   func([]byte) uint64
	panics atomic.Int64

	mu    sync.Mutex
	plans planner // guarded by mu, as json; plans do not change once built
	json  map[bool]*jsonPlanner
}

// NewTable returns an empty table for at most the given number of bytes, or [DefaultTableBytes].
// The bytes are those of the wire and of what it decodes to.
func NewTable(limit int64) *Table {
	if limit <= 0 {
		limit = DefaultTableBytes
	}
	t := &Table{limit: limit, hash: xxh3.Hash, plans: planner{}, json: map[bool]*jsonPlanner{}}
	for _, readOnly := range []bool{false, true} {
		t.json[readOnly] = &jsonPlanner{plans: map[reflect.Type]*jsonPlan{}, kinds: map[reflect.Type]*kind{}, readOnly: readOnly}
	}
	return t
}

// plan returns the plan of a type: for objects that share values, which are read-only, one of the table's
// own, with what it has learned.
func (t *Table) plan(typ reflect.Type, readOnly bool) *plan {
	prototypes.mu.Lock()
	prototype := prototypes.plan(typ)
	prototypes.mu.Unlock()
	if !readOnly {
		return prototype
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.plans.copy(prototype)
}

func (t *Table) jsonPlan(typ reflect.Type, readOnly bool) *jsonPlan {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.json[readOnly].plan(typ)
}

func (t *Table) jsonKind(typ reflect.Type, readOnly bool) *kind {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.json[readOnly].kind(typ)
}

// entry is a decoded group. It does not change.
type entry struct {
	hash  uint64
	kind  *kind
	wire  string
	value unsafe.Pointer // to a value of kind.typ
	cost  int64          // bytes of memory
}

type generation struct {
	slots []atomic.Pointer[entry] // a power of two
	bytes atomic.Int64
}

func newGeneration(limit int64) *generation {
	n := 1 << 10
	for int64(n) < limit/2/bytesPerSlot {
		n *= 2
	}
	return &generation{slots: make([]atomic.Pointer[entry], n)}
}

func (g *generation) slot(hash uint64, i int) *atomic.Pointer[entry] {
	return &g.slots[(hash+uint64(i))&uint64(len(g.slots)-1)]
}

func (g *generation) find(hash uint64, k *kind, b []byte) *entry {
	for i := range probes {
		e := g.slot(hash, i).Load()
		if e == nil {
			break // add would have used the slot
		}
		if e.hash == hash && e.kind == k && e.wire == string(b) {
			return e
		}
	}
	return nil
}

// add puts the entry in a free slot, or in that of another.
func (g *generation) add(e *entry) {
	g.bytes.Add(e.cost)
	for i := range probes {
		if g.slot(e.hash, i).CompareAndSwap(nil, e) {
			return
		}
	}
	if last := g.slot(e.hash, int(e.hash>>32)%probes).Swap(e); last != nil {
		g.bytes.Add(-last.cost)
	}
}

func (t *Table) put(e *entry) {
	young := t.young.Load()
	if young == nil {
		t.young.CompareAndSwap(nil, newGeneration(t.limit))
		young = t.young.Load()
	}
	young.add(e)
	if young.bytes.Load() > t.limit/2 && t.young.CompareAndSwap(young, newGeneration(t.limit)) {
		t.old.Store(young)
	}
}

func (t *Table) get(hash uint64, k *kind, b []byte) *entry {
	if young := t.young.Load(); young == nil {
		return nil
	} else if e := young.find(hash, k, b); e != nil {
		return e
	}
	if old := t.old.Load(); old != nil {
		if e := old.find(hash, k, b); e != nil {
			t.put(e)
			return e
		}
	}
	return nil
}

// known returns the value of a group that the table has. Otherwise it returns the hash under which
// the decoded group is to be kept, or 0. A group is kept at first sight where hits outweigh misses,
// else at the second, so that groups that never repeat do not fill the table.
func (t *Table) known(pos *position, k *kind, b []byte) (value unsafe.Pointer, hash uint64) {
	if len(b) < minGroup || k.copier == nil {
		return nil, 0
	}
	if e := pos.last.Load(); e != nil && e.kind == k && e.wire == string(b) {
		pos.learn(true)
		return e.value, 0
	}
	hash = t.hash(b) ^ k.salt
	if hash == 0 {
		hash = 1
	}
	if e := t.get(hash, k, b); e != nil {
		pos.learn(true)
		if e.cost <= maxLast && pos.another() {
			pos.last.Store(e)
		}
		return e.value, 0
	}
	pos.learn(false)
	door, mark := &t.seen[hash%doorkeepers], uint32(hash>>32)
	if door.Load() == mark || pos.recurs() {
		return nil, hash
	}
	door.Store(mark)
	return nil, 0
}

// giver hands values to a table and from it. Objects get copies. What is decoded for the table itself
// shares the values of groups within it, as the objects of shared-readonly do.
type giver struct {
	*Table
	kept int // groups around the one being decoded that the table will keep
}

func (g *giver) shares(k *kind) bool { return k.readOnly || g.kept > 0 }

// give sets the zero value at dst to a value of the table, or to a copy of it.
func (g *giver) give(k *kind, dst, value unsafe.Pointer) {
	if g.shares(k) {
		k.copy(dst, value)
	} else {
		k.copier.copy(dst, value)
	}
}

// given returns a pointer to a value of the table, or to a copy of it.
func (g *giver) given(k *kind, value unsafe.Pointer) unsafe.Pointer {
	if g.shares(k) {
		return value
	}
	return k.copier.copied(value)
}

// apart reports whether a group that has the hash is decoded to memory of its own, which the table gets
// and the object a copy of.
func (g *giver) apart(k *kind, hash uint64) bool { return hash != 0 && !g.shares(k) }

// keep stores a decoded group. own says that the value is in memory of its own, else the table gets a
// copy, so that it keeps no object alive.
func (g *giver) keep(hash uint64, k *kind, b []byte, value unsafe.Pointer, own bool) {
	held, ok := k.copier.size(value)
	cost := int64(unsafe.Sizeof(entry{})+k.typ.Size()) + int64(len(b)) + held
	if !ok || cost > g.limit/largestShare {
		return
	}
	if !own {
		whole := value
		value = k.new()
		g.give(k, value, whole)
	}
	g.put(&entry{hash: hash, kind: k, wire: string(b), value: value, cost: cost})
}

// intern returns b as a string, one for equal ones where they recur.
func (t *Table) intern(pos *position, b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if s := pos.text.Load(); s != nil && *s == string(b) {
		return *s
	}
	if len(b) > maxInterned {
		return string(b)
	}
	hash := t.hash(b)
	slot, mark := &t.strings[hash%internSlots], uint32(hash>>32)
	if s := slot.kept.Load(); s != nil && *s == string(b) {
		pos.learnText(true)
		if pos.another() {
			pos.text.Store(s)
		}
		return *s
	}
	pos.learnText(false)
	s := string(b)
	if slot.seen.Load() == mark {
		slot.kept.Store(new(s))
	} else {
		slot.seen.Store(mark)
	}
	return s
}

// CheckMutations decodes the wire bytes of every group in the table again, with client-go's code,
// and compares the values. It returns an error that names the type of a group that a reader of an
// object of shared-readonly has changed.
func (t *Table) CheckMutations() error {
	for _, g := range []*generation{t.young.Load(), t.old.Load()} {
		if g == nil {
			continue
		}
		for i := range g.slots {
			e := g.slots[i].Load()
			if e == nil {
				continue
			}
			fresh, ok := e.kind.decode([]byte(e.wire))
			if !ok {
				return fmt.Errorf("%v: the bytes in the table do not decode", e.kind.typ)
			}
			want := reflect.NewAt(e.kind.typ, fresh).Elem().Interface()
			if have := reflect.NewAt(e.kind.typ, e.value).Elem().Interface(); !equality.Semantic.DeepEqual(have, want) {
				return fmt.Errorf("%v: a shared value was changed: %+v, decoded as %+v", e.kind.typ, have, want)
			}
		}
	}
	return nil
}

// Panics returns the number of panics of the decoders of a table. Each is a bug of this package. The
// decoder logs it with its stack, and client-go's decoder decodes the object, so that nobody who may
// write an object can end the process that reads it.
func (t *Table) Panics() int64 { return t.panics.Load() }

// rescue, when deferred, recovers from a panic: then there is no decoded object.
func (t *Table) rescue(obj *kruntime.Object) {
	if t.recovered(recover()) {
		*obj = nil
	}
}

// recovered reports whether there was a panic.
func (t *Table) recovered(v any) bool {
	if v == nil {
		return false
	}
	t.panics.Add(1)
	utilruntime.HandleError(fmt.Errorf("decode: %v\n%s", v, debug.Stack()))
	return true
}
