// Package impls is the registry of variants: the interchangeable implementations
// of each stage of the Kubernetes event pipeline.
//
// A [Family] is a stage that can be swapped (deltafifo, queue, merge). A
// [Variant] is one implementation of it, with its [Guarantees]. Each family is a
// package with its own contract, options and [Registry]. Registration is all that
// a variant needs to be listed, checked by the conformance suite, benchmarked and
// replayed. Another module registers a variant in an init function, or before it
// calls the command.
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
	// OrderTotal: the consumer receives events in arrival order, across all keys.
	OrderTotal Order = "total"
	// OrderPerKey: the consumer receives the events of one key in arrival order.
	// The contract of the family defines the order between keys.
	OrderPerKey Order = "per-key"
)

// Coalescing defines which queued events a variant merges.
type Coalescing string

const (
	// CoalesceNone: each event is delivered separately.
	CoalesceNone Coalescing = "none"
	// CoalesceDeltas: all queued events of one key are delivered together, oldest
	// first.
	CoalesceDeltas Coalescing = "deltas"
	// CoalesceLatest: only the newest queued event of a key is delivered.
	CoalesceLatest Coalescing = "latest"
)

// Consumers defines how many goroutines may pop from one instance at once.
type Consumers string

const (
	// OneConsumer: one goroutine processes at a time; other callers of Pop wait.
	OneConsumer Consumers = "one"
	// ManyConsumers: several goroutines process at once; each key is processed by
	// one of them at a time.
	ManyConsumers Consumers = "many"
)

// Ownership defines who owns the objects and slices that a consumer receives.
type Ownership string

const (
	// Owned: the consumer may keep and change them.
	Owned Ownership = "owned"
	// Lent: slices are reused after the consumer's function returns. The objects
	// in them may be kept.
	Lent Ownership = "lent"
	// Shared: the consumer may keep them but must not write to them, because the
	// instance and other consumers use them too.
	Shared Ownership = "shared"
)

// Guarantees are those of a variant in one mode. Compare the results of two
// variants only if their guarantees are equal, or report the difference beside
// the results.
type Guarantees struct {
	// Mode is the mode that the guarantees hold for, in the words of the family's
	// options ("per-key", "in-order"). Empty if the variant has one mode.
	Mode string `json:"mode,omitempty"`
	// Order is the order in which a consumer receives events.
	Order Order `json:"order"`
	// Coalesces defines which queued events are merged.
	Coalesces Coalescing `json:"coalesces"`
	// Bounded is true if a capacity can be set and producers wait for room.
	Bounded bool `json:"bounded"`
	// Consumers defines how many goroutines may pop at once.
	Consumers Consumers `json:"consumers"`
	// Unlocked is true if producers do not block while the consumer processes.
	Unlocked bool `json:"unlocked"`
	// HandsOver defines who owns what the consumer receives. Empty means [Owned].
	HandsOver Ownership `json:"handsOver,omitempty"`
	// Trusts names the property that the variant relies on the sender for, while
	// other variants of the family compare. Empty means none.
	Trusts string `json:"trusts,omitempty"`
	// DropIn names the upstream interface that an instance implements, such as
	// "cache.QueueWithBatch". Empty if upstream exports none.
	DropIn string `json:"dropIn,omitempty"`
}

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
	// Name is the argument of New. It is unique in its family.
	Name string
	// Summary describes the implementation in one line.
	Summary string
	// Upstream names the module and version of a baseline. Empty for other
	// variants.
	Upstream string
	// Guarantees has one entry per mode, the default mode first.
	Guarantees []Guarantees
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

var (
	// ErrUnknownVariant is wrapped by the error for an unregistered name.
	ErrUnknownVariant = errors.New("unknown variant")
	// ErrOptions is wrapped by the error for options that are malformed,
	// contradict each other or are not supported by the variant.
	ErrOptions = errors.New("invalid options")
)

// Registry holds the variants of one family in registration order. The zero value
// is not usable; see [NewRegistry].
type Registry[O, T any] struct {
	family Family

	mu sync.RWMutex
	// variants is guarded by mu and only grows.
	variants []Variant[O, T]
}

// NewRegistry returns the empty registry of a family.
func NewRegistry[O, T any](f Family) *Registry[O, T] {
	return &Registry[O, T]{family: f}
}

// Register adds a variant. It panics if the name is empty or taken, or if the
// variant lacks guarantees or a constructor: these are bugs of the program, found
// at start.
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
