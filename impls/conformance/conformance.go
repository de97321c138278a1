// Package conformance is the engine of the conformance suites and the suite of family merge. The
// suites of the families whose contract is client-go's are in package clientgo: bench/kubelet links
// this one with a release of client-go that lacks parts of those contracts. A family has its own
// model, operations and checks. The engine has the common parts:
//
//  1. [Run] runs a list of [Check] in one setup; concurrent checks run with
//     GOMAXPROCS 1, 2 and 8.
//  2. [Statements] reads a script.
//  3. [Async] observes a call that may block; [Watchdog] ends a check that hangs.
//  4. [Client] records a concurrent history, and [Linearizable] checks it
//     against a sequential [Machine] with porcupine.
//  5. RunMutants (build tag mutants) shows that checks of named invariants fail for
//     variants with the matching bug.
//
// Every variant passes the suite of its family, including the upstream baselines: if a baseline
// fails, the suite is wrong. What a model covers, in random operations and histories, has no further
// check. A variant from another module calls the suite from its own test:
//
//	func TestConformance(t *testing.T) { clientgo.RunDeltaFIFO(t, myVariant) }
package conformance

import (
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Check tests one guarantee in a setup S.
type Check[S any] struct {
	Name string // name of the subtest
	// For reports whether the check applies to a setup; nil means all.
	For func(S) bool
	// Concurrent checks depend on scheduling and run with a value of GOMAXPROCS.
	Concurrent bool
	// Run tests the guarantee and fails the test if it is violated.
	Run func(*testing.T, S)
}

// Run runs the checks that apply to a setup, each as a subtest: sequential ones
// as NAME, concurrent ones as procs=N/NAME, with one value of N that the name of the test chooses.
// With -short, as under the race detector, it runs only the concurrent ones, with the next value of N.
// TestMutants runs all values, since a mutant may fail with one alone.
func Run[S any](t *testing.T, setup S, checks []Check[S]) {
	run := func(t *testing.T, concurrent bool) {
		for _, c := range checks {
			if c.Concurrent == concurrent && (c.For == nil || c.For(setup)) {
				t.Run(c.Name, func(t *testing.T) { c.Run(t, setup) })
			}
		}
	}
	all := []int{1, 2, 8}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	one := h.Sum32()
	if testing.Short() {
		one++
	} else {
		run(t, false)
	}
	if !strings.HasPrefix(t.Name(), "TestMutants/") {
		one %= uint32(len(all))
		all = all[one : one+1]
	}
	for _, procs := range all {
		t.Run(fmt.Sprintf("procs=%d", procs), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			run(t, true)
		})
	}
}

// Statements yields the statements of a script, each as its words. A line end or a comma before a
// space separates two statements.
func Statements(script string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(script) {
			for statement := range strings.SplitSeq(line, ", ") {
				if words := strings.Fields(statement); len(words) > 0 && !yield(words) {
					return
				}
			}
		}
	}
}

// TB is the common part of testing.T and rapid.T.
type TB interface {
	rapid.TB
	Cleanup(f func())
}

// Call is a call that runs in a goroutine of its own.
type Call struct{ done chan error }

// Async starts f.
func Async(f func() error) Call {
	c := Call{make(chan error, 1)}
	go func() { c.done <- f() }()
	return c
}

// Returned reports whether the call has returned, and its error. It returns true only once.
func (c Call) Returned() (ok bool, err error) {
	select {
	case err := <-c.done:
		return true, err
	default:
		return false, nil
	}
}

// Await waits for [Patience] at most, and reports whether the call has returned, and its error.
func (c Call) Await() (ok bool, err error) {
	select {
	case err := <-c.done:
		return true, err
	case <-time.After(Patience):
		return false, nil
	}
}

// Wait waits for the call and returns its error.
func (c Call) Wait() error { return <-c.done }

// Sleeps fails the test if the call has returned, when all goroutines of the bubble sleep.
func (c Call) Sleeps(t TB, when string) {
	t.Helper()
	synctest.Wait()
	if ok, err := c.Returned(); ok {
		t.Fatalf("%s: the call returned %v", when, err)
	}
}

// Returns fails the test unless the call has returned that error, when all goroutines of
// the bubble sleep.
func (c Call) Returns(t TB, want error, when string) {
	t.Helper()
	synctest.Wait()
	if ok, err := c.Returned(); !ok || !errors.Is(err, want) {
		t.Fatalf("%s: returned=%t, err=%v, want %v", when, ok, err, want)
	}
}

// Bubble runs a check in a bubble of [synctest], which a goroutine that spins keeps from settling.
func Bubble(t *testing.T, check func(*testing.T)) {
	t.Helper()
	Watchdog(t, func() { panic("a goroutine spins or sleeps for ever") })
	synctest.Test(t, check)
}

// Watchdog fails a test that runs longer than [Patience], and calls unblock to end it.
func Watchdog(t TB, unblock func()) {
	t.Helper()
	timer := time.AfterFunc(Patience, func() {
		t.Error("the watchdog closed the instance: a goroutine was not woken")
		unblock()
	})
	t.Cleanup(func() { timer.Stop() })
}
