package storetest

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"watchlab/impls/conformance"
	"watchlab/impls/store"
)

// player makes the same calls of a store and of the model.
type player struct {
	conformance.TB
	store, model store.Store
	version      int
}

func (s setup) newPlayer(t conformance.TB) *player {
	return &player{TB: t, store: s.new(t, indexers()), model: newModel()}
}

// run makes calls, separated by semicolons or lines, and compares the errors.
func (p *player) run(script string, after ...func(text string)) {
	p.Helper()
	for _, text := range strings.FieldsFunc(script, func(c rune) bool { return c == ';' || c == '\n' }) {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p.version++
		o := op{text, p.version}
		if got, want := errorWords(o.apply(p.store)), errorWords(o.apply(p.model)); got != want {
			p.Fatalf("%s returned %s, want %s", text, got, want)
		}
		for _, f := range after {
			f(text)
		}
	}
}

// look compares everything that can be read.
func (p *player) look(after string) {
	p.Helper()
	for _, r := range reads {
		if got, want := r.of(p.store), r.of(p.model); !slices.Equal(got, want) {
			p.Fatalf("after %s: %v is %q, want %q", after, r, got, want)
		}
	}
}

// script returns the function of a check that looks after each call.
func script(calls string) func(*testing.T, setup) {
	return func(t *testing.T, s setup) {
		p := s.newPlayer(t)
		p.look("New")
		p.run(calls, p.look)
	}
}

// randomOperations compares random calls. rapid prints the seed and reduces a difference to a short
// sequence.
func randomOperations(t *testing.T, s setup) {
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
