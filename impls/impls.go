// Package impls is the registry of variants: the interchangeable implementations
// of each stage of the Kubernetes event pipeline.
//
// A [Family] is a stage that can be swapped (inflate, decode, deltafifo, queue, store, workqueue, merge). A [Variant] is one
// implementation of it, with its [Guarantees]. Each family is a package with its own contract,
// options and [Registry]. Registration is all that a variant needs to be listed, checked by the
// conformance suite, benchmarked and replayed. Another module registers a variant in an init
// function, or before it calls the command.
package impls

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Family names a swappable stage of the pipeline.
type Family string

// The families that have a registry.
const (
	Inflate   Family = "inflate"
	Decode    Family = "decode"
	DeltaFIFO Family = "deltafifo"
	Queue     Family = "queue"
	Store     Family = "store"
	Workqueue Family = "workqueue"
	Merge     Family = "merge"
)

// Order is the order in which a consumer sees events.
type Order string

const (
	OrderTotal Order = "total" // arrival order, across all keys
	// OrderPerKey: arrival order for each key, and keys in the order in which they were queued.
	OrderPerKey Order = "per-key"
	// OrderPerShard: per-key among the keys of a shard, and no order between shards.
	OrderPerShard Order = "per-shard"
	// OrderPriority: the highest priority first, and OrderPerKey among equal priorities.
	OrderPriority Order = "priority"
)

// Coalescing defines which queued events a variant merges.
type Coalescing string

const (
	CoalesceNone   Coalescing = "none"   // each event is delivered separately
	CoalesceDeltas Coalescing = "deltas" // all queued events of a key, delivered together, oldest first
	CoalesceLatest Coalescing = "latest" // only the newest queued event of a key is delivered
)

// Consumers defines how many goroutines may pop from one instance at once.
type Consumers string

const (
	OneConsumer   Consumers = "one"  // one goroutine processes at a time; other callers of Pop wait
	ManyConsumers Consumers = "many" // several process at once, each key by one of them at a time
)

// Ownership defines who owns the objects and slices that a consumer receives.
type Ownership string

const (
	Owned Ownership = "owned" // the consumer may keep and change them
	Lent  Ownership = "lent"  // slices are reused after the consumer returns; their objects may be kept
	// Shared: the consumer may keep them but must not write to them, because the
	// instance and other consumers use them too.
	Shared Ownership = "shared"
)

// Permission says whether somebody may change a decoded object in place: its maps, its slices and
// what it points to.
type Permission string

const (
	MayChange  Permission = "may change" // nobody else sees the change
	MustNot    Permission = "must not"   // others that have the object see the change
	NotOffered Permission = "refused"    // the constructors return an error
)

// Throttling defines whether producers wait for process while the queue is long, so that a slow
// consumer slows the producers down.
type Throttling string

const (
	Throttles         Throttling = "yes"    // producers wait, also because process holds the lock
	ThrottlesByOption Throttling = "option" // producers wait if an option of the variant says so
	ThrottlesNever    Throttling = "no"     // producers never wait for process: the queue grows
)

// Consistency defines what a list of a store shows of writes that go on at the same time.
type Consistency string

const (
	// PointInTime: the contents after some batch of writes, all of it and nothing of later ones.
	PointInTime Consistency = "point-in-time"
)

// Guarantees are those of a variant in one mode. Compare the results of two variants only if their
// guarantees are equal, or report the difference beside the results.
type Guarantees struct {
	// Mode is the mode that the guarantees hold for, in the words of the family's
	// options ("per-key", "in-order"). Empty if the variant has one mode.
	Mode      string     `json:"mode,omitempty"`
	Order     Order      `json:"order"`     // of the events that a consumer receives
	Coalesces Coalescing `json:"coalesces"` // which queued events are merged
	Bounded   bool       `json:"bounded"`   // with a capacity, producers wait for room
	Consumers Consumers  `json:"consumers"` // how many goroutines may pop at once
	Unlocked  bool       `json:"unlocked"`  // producers do not wait for the consumer's process
	// Throttles says whether a slow process slows producers down; empty where the family leaves it open.
	Throttles Throttling `json:"throttles,omitempty"`
	HandsOver Ownership  `json:"handsOver,omitempty"` // of what is received; empty means [Owned]
	// Strips names the field that decoded objects lack. Empty means none: they are exact.
	Strips string `json:"strips,omitempty"`
	// Whether those may change an object of a decoder; empty for other families. A handler must not
	// change it with any decoder: the cache and other handlers have the same object. With a decoder
	// that hands over what is [Shared], other objects and informers would see the change too.
	Transform Permission `json:"transform,omitempty"`
	Handler   Permission `json:"handler,omitempty"`
	Client    Permission `json:"client,omitempty"` // a caller of Get, Create, Update and Patch
	// Lists says what a list of a store shows; empty for other families.
	Lists Consistency `json:"lists,omitempty"`
	// DropIn names the upstream interface that an instance implements, such as
	// "cache.QueueWithBatch". Empty if upstream exports none.
	DropIn string `json:"dropIn,omitempty"`
}

// Versioned reports whether a store that is filled in this order has everything up to the version of its
// newest event. If it has not, an informer's LastStoreSyncResourceVersion is "".
func (g Guarantees) Versioned() bool { return g.Order == OrderTotal }

// String returns the guarantees on one line, as in tables.
func (g Guarantees) String() string {
	bound, lock, consumers := "unbounded", "handler holds the lock", string(g.Consumers)+" consumer"
	if g.Consumers == ManyConsumers {
		consumers += "s"
	}
	if g.Bounded {
		bound = "bounded"
	}
	if g.Unlocked {
		lock = "handler unlocked"
	}
	parts := []string{
		"order " + string(g.Order),
		"coalesces " + string(g.Coalesces),
		bound,
		consumers,
		lock,
	}
	if g.Throttles != "" {
		parts = append(parts, map[Throttling]string{
			Throttles: "throttles producers", ThrottlesByOption: "throttles by option", ThrottlesNever: "does not throttle",
		}[g.Throttles])
	}
	if g.HandsOver != "" && g.HandsOver != Owned {
		parts = append(parts, "hands over what is "+string(g.HandsOver))
	}
	if g.Strips != "" {
		parts = append(parts, "strips "+g.Strips)
	}
	if g.Transform == NotOffered {
		parts = append(parts, "refuses transforms and clients")
	}
	if g.Lists != "" {
		parts = append(parts, "lists "+string(g.Lists))
	}
	if g.DropIn != "" {
		parts = append(parts, g.DropIn)
	}
	return strings.Join(parts, ", ")
}

// Variant is one implementation in a family, built from options O into an instance T.
type Variant[O, T any] struct {
	Name       string       // argument of New, unique in its family
	Summary    string       // the implementation in one line
	Upstream   string       // module and version of a baseline; empty for other variants
	Guarantees []Guarantees // one entry per mode, the default mode first
	// New builds an instance. It returns an error wrapping [ErrOptions] if the
	// variant does not support the options.
	New func(O) (T, error)
}

// Baseline reports whether the variant is the upstream implementation.
func (v Variant[O, T]) Baseline() bool { return v.Upstream != "" }

// Mode returns the guarantees of the named mode; an empty name means the default
// mode. It returns false if the variant lacks the mode.
func (v Variant[O, T]) Mode(mode string) (Guarantees, bool) {
	for _, g := range v.Guarantees {
		if mode == "" || g.Mode == mode {
			return g, true
		}
	}
	return Guarantees{}, false
}

// The errors of a [Registry] wrap these.
var (
	ErrUnknownVariant = errors.New("unknown variant") // the name is not registered
	ErrOptions        = errors.New("invalid options") // malformed, contradictory or unsupported
)

// Registry holds the variants of one family in registration order. The zero value
// is not usable; see [NewRegistry].
type Registry[O, T any] struct {
	family Family

	mu       sync.RWMutex
	variants []Variant[O, T] // guarded by mu; only grows
}

// NewRegistry returns the empty registry of a family.
func NewRegistry[O, T any](f Family) *Registry[O, T] {
	return &Registry[O, T]{family: f}
}

// Register adds a variant. It panics if the name is empty or taken, or if the variant lacks
// guarantees or a constructor: these are bugs of the program, found at start.
func (r *Registry[O, T]) Register(v Variant[O, T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case v.Name == "" || v.New == nil || len(v.Guarantees) == 0:
		panic(fmt.Sprintf("%s: variant %q needs a name, a constructor and guarantees", r.family, v.Name))
	case slices.ContainsFunc(r.variants, func(have Variant[O, T]) bool { return have.Name == v.Name }):
		panic(fmt.Sprintf("%s: variant %q is registered twice", r.family, v.Name))
	}
	r.variants = append(r.variants, v)
}

// Variants returns a copy of the registered variants, oldest first.
func (r *Registry[O, T]) Variants() []Variant[O, T] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.variants)
}

// Lookup returns the named variant. The error wraps [ErrUnknownVariant] and lists
// the registered names.
func (r *Registry[O, T]) Lookup(name string) (Variant[O, T], error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, 0, len(r.variants))
	for _, v := range r.variants {
		if v.Name == name {
			return v, nil
		}
		names = append(names, v.Name)
	}
	return Variant[O, T]{}, fmt.Errorf("%s: %w %q (have %s)", r.family, ErrUnknownVariant, name, strings.Join(names, ", "))
}

// New builds an instance of the named variant. The error lists the allowed values
// and wraps [ErrUnknownVariant] or [ErrOptions].
func (r *Registry[O, T]) New(name string, opts O) (T, error) {
	var none T
	v, err := r.Lookup(name)
	if err != nil {
		return none, err
	}
	t, err := v.New(opts)
	if err != nil {
		return none, fmt.Errorf("%s %s: %w", r.family, name, err)
	}
	return t, nil
}
