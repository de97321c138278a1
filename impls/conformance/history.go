package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// Machine is a sequential model of a family. States with the same String are equal.
type Machine[S fmt.Stringer] struct {
	Init func() S // returns the initial state
	// Step returns the possible states after an operation, or an error if the
	// operation is impossible. It must not change before.
	Step     func(before S, in, out any) ([]S, error)
	Describe func(in, out any) string // returns an operation and its output in words
}

// described is a state with its cached String, because porcupine compares states often.
type described[S fmt.Stringer] struct {
	state S
	text  string
}

func (m Machine[S]) porcupine() porcupine.Model {
	wrap := func(s S) any { return described[S]{s, s.String()} }
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{wrap(m.Init())} },
		Step: func(s, in, out any) []any {
			var next []any
			states, _ := m.Step(s.(described[S]).state, in, out)
			for _, s := range states {
				next = append(next, wrap(s))
			}
			return next
		},
		Equal:             func(a, b any) bool { return a.(described[S]).text == b.(described[S]).text },
		DescribeOperation: m.Describe,
		DescribeState:     func(s any) string { return s.(described[S]).text },
	}).ToModel()
}

// Linearizable fails if the machine allows no order of the history. In such an order each call
// takes effect at one moment between its begin and its end. On failure it logs the history, and
// porcupine's picture of it in a file, with its longest valid orders. porcupine gives up after [Patience].
func Linearizable[S fmt.Stringer](t *testing.T, m Machine[S], seed uint64, ops []porcupine.Operation) {
	t.Helper()
	model := m.porcupine()
	res, info := porcupine.CheckOperationsVerbose(model, ops, Patience)
	if res == porcupine.Ok {
		return
	}
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, op := range ops {
		t.Logf("client %d, %d to %d: %s", op.ClientId, op.Call, op.Return, m.Describe(op.Input, op.Output))
	}
	picture := filepath.Join(os.TempDir(), fmt.Sprintf("history-%d.html", seed))
	err := porcupine.VisualizePath(model, info, picture)
	t.Fatalf("seed %d: the history is %s; picture: %s (%v)", seed, res, picture, err)
}

// Client records the operations of one client of a history.
type Client struct {
	*rand.Rand
	id    int
	start time.Time
	ops   []porcupine.Operation
}

// Clients returns n clients with a common clock. Each has its own random numbers.
func Clients(seed uint64, n int) []*Client {
	start := time.Now()
	all := make([]*Client, n)
	for i := range all {
		all[i] = &Client{Rand: rand.New(rand.NewPCG(seed, uint64(i))), id: i, start: start}
	}
	return all
}

// Operations returns the recorded operations of all clients.
func Operations(clients []*Client) []porcupine.Operation {
	var all []porcupine.Operation
	for _, c := range clients {
		all = append(all, c.ops...)
	}
	return all
}

// Now returns the time since the start of the history, in ns.
func (c *Client) Now() int64 { return int64(time.Since(c.start)) }

// Record records an operation that began at the given time and ends now.
func (c *Client) Record(began int64, in, out any) {
	c.ops = append(c.ops, porcupine.Operation{ClientId: c.id, Input: in, Call: began, Output: out, Return: c.Now()})
}

// Call records a call of f. Its output is the error of f, or nil.
func (c *Client) Call(in any, f func() error) {
	began := c.Now()
	if err := f(); err != nil {
		c.Record(began, in, err)
	} else {
		c.Record(began, in, nil)
	}
}

// Yield lets other goroutines run, at random.
func (c *Client) Yield() {
	for range c.IntN(3) {
		runtime.Gosched()
	}
}
