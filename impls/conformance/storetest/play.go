package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// player makes the same calls of a store and of the reference.
type player struct {
	conformance.TB
	store   store.Store
	model   *reference
	version int
}

func (s setup) newPlayer(t conformance.TB) *player {
	return &player{TB: t, store: s.new(t, indexers()), model: newReference()}
}

// played returns the function of a scripted check.
func played(script func(*player)) func(*testing.T, setup) {
	return func(t *testing.T, s setup) {
		p := s.newPlayer(t)
		script(p)
		p.look("at the end")
	}
}

// object returns one with the next version.
func (p *player) object(key string, values ...string) *object {
	p.version++
	return newObject(key, p.version, values...)
}

// do makes a call of both, and fails if their errors differ.
func (p *player) do(what string, call func(store.Store) error) {
	p.Helper()
	if got, want := errorWords(call(p.store)), errorWords(call(p.model)); got != want {
		p.Fatalf("%s returned %s, want %s", what, got, want)
	}
}

func errorWords(err error) string {
	var transaction *cache.TransactionError
	switch {
	case err == nil:
		return "nil"
	case errors.As(err, &transaction):
		words := fmt.Sprint(transaction.SuccessfulIndices, " of ", transaction.TotalTransactions)
		for _, err := range transaction.Errors {
			words += ", " + errorWords(err)
		}
		return words
	case errors.As(err, new(cache.KeyError)):
		return "a KeyError"
	default:
		return "an error"
	}
}

func (p *player) add(obj any)    { p.do("Add", func(s store.Store) error { return s.Add(obj) }) }
func (p *player) update(obj any) { p.do("Update", func(s store.Store) error { return s.Update(obj) }) }
func (p *player) delete(obj any) { p.do("Delete", func(s store.Store) error { return s.Delete(obj) }) }

func (p *player) bookmark(version string) {
	p.do("Bookmark", func(s store.Store) error { s.Bookmark(version); return nil })
}

func (p *player) transact(txns ...cache.Transaction) {
	p.do("Transaction", func(s store.Store) error { return transact(s, txns...) })
}

// transact returns nil rather than a nil error of the type.
func transact(s store.Store, txns ...cache.Transaction) error {
	if err := s.Transaction(txns...); err != nil {
		return err
	}
	return nil
}

func (p *player) replace(list ...any) {
	p.version++
	version := strconv.Itoa(p.version)
	p.do("Replace", func(s store.Store) error { return s.Replace(slices.Clone(list), version) })
}

func (p *player) addIndexers(names ...string) {
	p.do(fmt.Sprint("AddIndexers ", names), func(s store.Store) error {
		more := cache.Indexers{}
		for _, name := range names {
			more[name] = valuesOf
		}
		return s.AddIndexers(more)
	})
}

// look compares everything that can be read.
func (p *player) look(when string) {
	p.Helper()
	for _, r := range reads {
		if got, want := r.of(p.store), r.of(p.model); !slices.Equal(got, want) {
			p.Fatalf("%s: %v is %q, want %q", when, r, got, want)
		}
	}
}

// tombstone returns what an informer deletes whose watch missed the deletion.
func tombstone(obj *object) cache.DeletedFinalStateUnknown {
	key, _ := keyOf(obj)
	return cache.DeletedFinalStateUnknown{Key: key, Obj: obj}
}

func moves(p *player) {
	p.add(p.object("a/k0", "x"))
	p.add(p.object("a/k1", "x"))
	p.look("after Add")
	p.update(p.object("a/k0", "y"))
	p.look("after Update")
	p.transact(
		cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p.object("a/k0", "z")},
		cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p.object("a/k0", "x")},
		cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p.object("a/k1", "y")})
	p.look("after Transaction")
	p.delete(p.object("a/k1"))
	p.look("after Delete")
}

func manyValues(p *player) {
	for _, step := range []string{"", "x", "x,y", "x,y,z", "y,y,z", "z,x,z", "y", "y,y", "", "x,x"} {
		p.update(p.object("a/k0", strings.FieldsFunc(step, func(c rune) bool { return c == ',' })...))
		p.look("with the values " + step)
	}
	p.update(p.object("a/k0", ""))
	p.look("with the value that is empty")
	p.delete(p.object("a/k0"))
}

func replaces(p *player) {
	p.add(p.object("a/k0", "x", "y"))
	p.add(p.object("b/k0", "x"))
	p.addIndexers("late")
	p.replace(p.object("a/k1", "x"), p.object("b/k0", "z"))
	p.look("after Replace")
	p.replace(p.object("a/k1", "x"), p.object("a/k1", "y"), p.object("k0"))
	p.look("after Replace with a key twice")
	p.replace()
	p.look("after an empty Replace")
	p.add(p.object("k0", "x"))
}

// keyErrors: an object without a key changes nothing, and the rest of its Transaction is stored.
func keyErrors(p *player) {
	p.add(p.object("a/k0", "x"))
	p.add(p.object("a/k1", "x"))
	p.add(nameless{})
	p.update(nameless{})
	p.delete(nameless{})
	p.do("Get", func(s store.Store) error {
		_, _, err := s.Get(nameless{})
		return err
	})
	p.replace(p.object("b/k0"), nameless{})
	p.look("after Replace")
	p.transact(
		cache.Transaction{Type: cache.TransactionTypeDelete, Object: nameless{}},
		cache.Transaction{Type: cache.TransactionTypeUpdate, Object: p.object("a/k0", "y")},
		cache.Transaction{Type: cache.TransactionTypeAdd, Object: nameless{}},
		cache.Transaction{Type: cache.TransactionTypeDelete, Object: p.object("a/k1")},
		cache.Transaction{Type: cache.TransactionTypeUpdate, Object: nameless{}})
	p.look("after Transaction")
	p.transact(cache.Transaction{Type: cache.TransactionTypeAdd, Object: nameless{}})
	p.transact()
}

// versions: a write without metadata, as of a tombstone, leaves the resourceVersion.
func versions(p *player) {
	p.look("of a new store")
	p.add(p.object("a/k0"))
	p.look("after Add")
	p.delete(p.object("a/k0"))
	p.look("after Delete")
	p.delete(p.object("a/k1"))
	p.look("after Delete of an unknown key")
	p.transact(
		cache.Transaction{Type: cache.TransactionTypeAdd, Object: p.object("a/k0")},
		cache.Transaction{Type: cache.TransactionTypeAdd, Object: nameless{}})
	p.look("after Transaction")
	p.delete(tombstone(p.object("a/k0")))
	p.look("after Delete of a tombstone")
	p.bookmark("bookmark")
	p.look("after Bookmark")
	p.replace(p.object("a/k0"))
	p.bookmark("")
	p.look("after an empty Bookmark")
}

func lateIndexers(p *player) {
	p.add(p.object("a/k0", "x"))
	p.add(p.object("b/k0", "x", "y"))
	p.addIndexers("late")
	p.look("after AddIndexers")
	p.update(p.object("b/k0", "z"))
	p.delete(p.object("a/k0"))
	p.look("after a write")
	p.addIndexers()
}

func conflicts(p *player) {
	p.add(p.object("a/k0", "x"))
	p.addIndexers("late", "value")
	p.look("after a conflict")
	p.add(p.object("a/k1", "x"))
	p.addIndexers("late")
	p.addIndexers("late")
	p.look("after a second conflict")
}

// randomOperations compares random operations with the reference. rapid prints the seed and reduces
// a difference to a short sequence.
func randomOperations(t *testing.T, s setup) {
	rapid.Check(t, func(t *rapid.T) {
		p := s.newPlayer(t)
		draw := func(t *rapid.T) any {
			key := rapid.SampledFrom(append(keys, "")).Draw(t, "key")
			if key == "" {
				return nameless{}
			}
			return p.object(key, rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 3).Draw(t, "values")...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"Add":    func(t *rapid.T) { p.add(draw(t)) },
			"Update": func(t *rapid.T) { p.update(draw(t)) },
			"Delete": func(t *rapid.T) { p.delete(draw(t)) },
			"bury": func(t *rapid.T) {
				if obj, ok := draw(t).(*object); ok {
					p.delete(tombstone(obj))
				}
			},
			"Transaction": func(t *rapid.T) {
				var txns []cache.Transaction
				types := rapid.SampledFrom([]cache.TransactionType{cache.TransactionTypeAdd, cache.TransactionTypeUpdate, cache.TransactionTypeDelete})
				for range rapid.IntRange(0, 6).Draw(t, "writes") {
					txns = append(txns, cache.Transaction{Type: types.Draw(t, "type"), Object: draw(t)})
				}
				p.transact(txns...)
			},
			"Replace": func(t *rapid.T) {
				var list []any
				for range rapid.IntRange(0, 6).Draw(t, "objects") {
					list = append(list, draw(t))
				}
				p.replace(list...)
			},
			"Bookmark": func(t *rapid.T) { p.bookmark(rapid.SampledFrom([]string{"", "mark"}).Draw(t, "version")) },
			"AddIndexers": func(t *rapid.T) {
				p.addIndexers(rapid.SliceOfN(rapid.SampledFrom([]string{"late", "value", "later"}), 0, 2).Draw(t, "names")...)
			},
			"look": func(*rapid.T) { p.look("meanwhile") },
		})
		p.look("at the end")
	})
}
