// Package impls is the registry of variants: the interchangeable
// implementations of each stage of the Kubernetes event pipeline.
//
// A [Family] is a stage that can be swapped (deltafifo, queue, merge). A
// [Variant] is one implementation of it, with the [Guarantees] it makes. Each
// family is a package of its own that owns its contract, its options and a
// [Registry]; registering a variant there is all that is needed for it to be
// listed, checked by the family's conformance suite, benchmarked and replayed.
// Another module adds a variant in the same way, from an init function or
// before it calls the command.
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
	DeltaFIFO Family = "deltafifo"
	Queue     Family = "queue"
	Merge     Family = "merge"
)

// Order is the order in which a consumer sees events.
type Order string

const (
	// OrderTotal: events are handed over in the order in which they arrived,
	// whatever their key.
	OrderTotal Order = "total"
	// OrderPerKey: events of one key are handed over in the order in which
	// they arrived; nothing is promised between keys beyond what the family's
	// contract says.
	OrderPerKey Order = "per-key"
)

// Coalescing says which events may never reach the consumer on their own.
type Coalescing string

const (
	// CoalesceNone: one hand-over for each event.
	CoalesceNone Coalescing = "none"
	// CoalesceDeltas: the waiting events of one key are handed over together,
	// all of them, oldest first.
	CoalesceDeltas Coalescing = "deltas"
	// CoalesceLatest: only the newest waiting event of a key is handed over.
	CoalesceLatest Coalescing = "latest"
)

// Consumers says how many goroutines may take from an instance at once.
type Consumers string

const (
	// OneConsumer: one goroutine at a time gets work; others that ask wait
	// until it is done with it.
	OneConsumer Consumers = "one"
	// ManyConsumers: several goroutines are handed work at once, each key to
	// one of them at a time.
	ManyConsumers Consumers = "many"
)

// Ownership says whose the things are that a consumer is handed.
type Ownership string

const (
	// Owned: they are the consumer's, to keep and to change.
	Owned Ownership = "owned"
	// Lent: slices are valid until the consumer's function returns, and are
	// used again after that. The objects that they refer to may be kept.
	Lent Ownership = "lent"
	// Shared: they may be kept, and must not be written to: the instance and
	// other consumers hold them too.
	Shared Ownership = "shared"
)

// Guarantees are those of a variant in one mode. Figures of two variants may be
// compared only where their guarantees are equal, or where the difference
// stands beside the figures.
type Guarantees struct {
	// Mode is the way of working that the guarantees hold for, in the words of
	// the family's options ("per-key", "in-order"); empty where a variant has
	// one way only.
	Mode string `json:"mode,omitempty"`
	// Order in which a consumer sees events.
	Order Order `json:"order"`
	// Coalesces says what may be folded together while it waits.
	Coalesces Coalescing `json:"coalesces"`
	// Bounded is true where a capacity can be set and producers wait for room.
	Bounded bool `json:"bounded"`
	// Consumers that may take at once.
	Consumers Consumers `json:"consumers"`
	// Unlocked is true where producers go on while the consumer processes.
	Unlocked bool `json:"unlocked"`
	// HandsOver says whose the things are that the consumer is handed; empty
	// means [Owned].
	HandsOver Ownership `json:"handsOver,omitempty"`
	// Trusts names what is taken on the sender's word where other variants of
	// the family look for themselves; empty means nothing.
	Trusts string `json:"trusts,omitempty"`
	// DropIn names the upstream interface that an instance satisfies, such as
	// "cache.QueueWithBatch"; empty where upstream exports none.
	DropIn string `json:"dropIn,omitempty"`
}

// String returns the guarantees on one line, as tables show them.
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
	if g.HandsOver != "" && g.HandsOver != Owned {
		parts = append(parts, "hands over what is "+string(g.HandsOver))
	}
	if g.Trusts != "" {
		parts = append(parts, "trusts "+g.Trusts)
	}
	if g.DropIn != "" {
		parts = append(parts, g.DropIn)
	}
	return strings.Join(parts, ", ")
}

// Variant is one implementation in a family, built from options O into an
// instance T.
type Variant[O, T any] struct {
	// Name by which New finds it; unique in its family.
	Name string
	// Summary says in one line how it works.
	Summary string
	// Upstream names the module and version that a baseline comes from; empty
	// for a contestant of ours.
	Upstream string
	// Guarantees, one entry for each mode; the first is the default mode.
	Guarantees []Guarantees
	// New builds an instance. It returns an error wrapping [ErrOptions] for
	// options that the variant does not support.
	New func(O) (T, error)
}

// Baseline reports whether the variant is upstream's own implementation.
func (v Variant[O, T]) Baseline() bool { return v.Upstream != "" }

// Mode returns the guarantees that hold in the named mode; the empty name is
// the default mode. It returns false where the variant has no such mode.
func (v Variant[O, T]) Mode(mode string) (Guarantees, bool) {
	for _, g := range v.Guarantees {
		if mode == "" || g.Mode == mode {
			return g, true
		}
	}
	return Guarantees{}, false
}

var (
	// ErrUnknownVariant is wrapped by the error for a name that is not
	// registered.
	ErrUnknownVariant = errors.New("unknown variant")
	// ErrOptions is wrapped by the error for options that are malformed,
	// contradict each other or are not supported by the variant.
	ErrOptions = errors.New("invalid options")
)

// Registry holds the variants of one family, in the order in which they were
// registered. The zero value is not usable; see [NewRegistry].
type Registry[O, T any] struct {
	family Family

	mu sync.RWMutex
	// variants is guarded by mu and only ever grows.
	variants []Variant[O, T]
}

// NewRegistry returns the empty registry of a family.
func NewRegistry[O, T any](f Family) *Registry[O, T] {
	return &Registry[O, T]{family: f}
}

// Register adds a variant. It panics where the name is empty or taken, or the
// variant lacks guarantees or a constructor: all are mistakes of the program,
// met when it starts.
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

// Variants returns what is registered, oldest first. The slice is the
// caller's.
func (r *Registry[O, T]) Variants() []Variant[O, T] {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.variants)
}

// Lookup returns the variant of that name, or an error wrapping
// [ErrUnknownVariant] that says which names there are.
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

// New builds an instance of the named variant. The error says what is allowed
// and wraps [ErrUnknownVariant] or [ErrOptions].
func (r *Registry[O, T]) New(name string, opts O) (T, error) {
	v, err := r.Lookup(name)
	if err != nil {
		var none T
		return none, err
	}
	t, err := v.New(opts)
	if err != nil {
		var none T
		return none, fmt.Errorf("%s %s: %w", r.family, name, err)
	}
	return t, nil
}
