package impls_test

import (
	"errors"
	"strings"
	"testing"

	"watchlab/impls"
)

func newRegistry() *impls.Registry[int, string] {
	r := impls.NewRegistry[int, string](impls.Queue)
	for _, name := range []string{"one", "two"} {
		r.Register(impls.Variant[int, string]{
			Name:       name,
			Guarantees: []impls.Guarantees{{Mode: "a", Order: impls.OrderTotal}, {Mode: "b", Order: impls.OrderPerKey}},
			New: func(o int) (string, error) {
				if o < 0 {
					return "", impls.ErrOptions
				}
				return name, nil
			},
		})
	}
	return r
}

func TestRegistry(t *testing.T) {
	r := newRegistry()
	if got, err := r.New("two", 1); got != "two" || err != nil {
		t.Errorf("New returned %q, %v", got, err)
	}
	if _, err := r.New("three", 1); !errors.Is(err, impls.ErrUnknownVariant) || err.Error() != `queue: unknown variant "three" (have one, two)` {
		t.Errorf("New of an unknown name returned %v", err)
	}
	if _, err := r.New("one", -1); !errors.Is(err, impls.ErrOptions) || !strings.HasPrefix(err.Error(), "queue one: ") {
		t.Errorf("New with bad options returned %v", err)
	}
	vs := r.Variants()
	vs[0].Name = "changed"
	if r.Variants()[0].Name != "one" {
		t.Error("Variants hands out the registry's own slice")
	}
}

func TestMode(t *testing.T) {
	v := newRegistry().Variants()[0]
	for mode, want := range map[string]impls.Order{"": impls.OrderTotal, "a": impls.OrderTotal, "b": impls.OrderPerKey} {
		if g, ok := v.Mode(mode); !ok || g.Order != want {
			t.Errorf("Mode(%q) is %v, %t", mode, g, ok)
		}
	}
	if _, ok := v.Mode("c"); ok {
		t.Error("a mode that does not exist was found")
	}
}

func TestRegisterMistakes(t *testing.T) {
	good := newRegistry().Variants()[0]
	for name, spoil := range map[string]func(*impls.Variant[int, string]){
		"no name":        func(v *impls.Variant[int, string]) { v.Name = "" },
		"no constructor": func(v *impls.Variant[int, string]) { v.New = nil },
		"no guarantees":  func(v *impls.Variant[int, string]) { v.Guarantees = nil },
		"taken":          func(*impls.Variant[int, string]) {},
	} {
		v := good
		spoil(&v)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: Register did not panic", name)
				}
			}()
			newRegistry().Register(v)
		}()
	}
}

func TestGuaranteesString(t *testing.T) {
	g := impls.Guarantees{Order: impls.OrderTotal, Coalesces: impls.CoalesceNone, Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.Queue"}
	if got, want := g.String(), "order total, coalesces none, unbounded, one consumer, handler unlocked, cache.Queue"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
