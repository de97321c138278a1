package clientgo

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// storePlayer makes the same calls of a store and of the model.
type storePlayer struct {
	conformance.TB
	store, model store.Store
	version      int
}

func (s storeSetup) newPlayer(t conformance.TB) *storePlayer {
	return &storePlayer{TB: t, store: s.new(t, indexers()), model: newStoreModel()}
}

// run makes the calls of a script and compares the errors.
func (p *storePlayer) run(script string, after ...func(text string)) {
	p.Helper()
	for words := range conformance.Statements(script) {
		p.version++
		o := storeCall{strings.Join(words, " "), p.version}
		if got, want := errorWords(o.apply(p.store)), errorWords(o.apply(p.model)); got != want {
			p.Fatalf("%s returned %s, want %s", o.text, got, want)
		}
		for _, f := range after {
			f(o.text)
		}
	}
}

// look compares everything that can be read.
func (p *storePlayer) look(after string) {
	p.Helper()
	for _, r := range storeReads {
		if got, want := r.of(p.store), r.of(p.model); !slices.Equal(got, want) {
			p.Fatalf("after %s: %v is %q, want %q", after, r, got, want)
		}
	}
}

// storeScript returns the function of a check that looks after each call.
func storeScript(calls string) func(*testing.T, storeSetup) {
	return func(t *testing.T, s storeSetup) {
		p := s.newPlayer(t)
		p.look("New")
		p.run(calls, p.look)
	}
}

// randomStoreCalls compares random calls. rapid prints the seed and reduces a difference to a short
// sequence.
func randomStoreCalls(t *testing.T, s storeSetup) {
	rapid.Check(t, func(t *rapid.T) {
		p := s.newPlayer(t)
		intn := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") }
		for range intn(40) {
			text := randomOp(intn, append([]string{"!"}, keys...), false)
			t.Log(text)
			if p.run(text); intn(3) == 0 {
				p.look(text)
			}
		}
		p.look("all")
	})
}
