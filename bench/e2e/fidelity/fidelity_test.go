// Package fidelity sends the same requests to two API servers and reports how
// their answers differ.
//
//  1. A [Question] is a script of client-go calls. An [Asker] runs it against one
//     server, in an empty namespace, and records every answer: the code, the
//     headers that clients act on, the whole body, the events of watches.
//  2. Values that differ between runs (versions, uids, generated names, times)
//     are replaced by numbered placeholders in order of appearance
//     (normal_test.go). An unchanged version keeps its number.
//  3. The results are compared field by field (compare_test.go).
//  4. A known difference has a reason, which is part of the question. A difference
//     without a reason is an error, and so is a reason without a difference.
//     [Page] writes all of them.
//
// Rejected: comparing the objects that client-go decodes. That hides what other
// clients see.
package fidelity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Question is a script of requests and the reason of its known differences.
type Question struct {
	Area string

	Asked string

	Ask func(*Asker)

	Why string
}

// Errors of a [Result].
var (
	// ErrUnexplained: the answers differ and the question gives no reason.
	ErrUnexplained = errors.New("unexplained difference")
	// ErrAgreed: the answers are equal although the question gives a reason for a
	// difference.
	ErrAgreed = errors.New("reason without a difference")
	// ErrSetup: a question could not be prepared.
	ErrSetup = errors.New("setup failed")
)

// Result is the comparison of the answers to one question.
type Result struct {
	Question

	Answers int

	Differences []Difference
}

// Check returns an error for an unexplained difference or an unused reason.
func (r *Result) Check() error {
	switch {
	case len(r.Differences) > 0 && r.Why == "":
		var b strings.Builder
		for _, d := range r.Differences {
			fmt.Fprintf(&b, "\n\t%s", d)
		}
		return fmt.Errorf("%s: %s: %w:%s", r.Area, r.Asked, ErrUnexplained, b.String())
	case len(r.Differences) == 0 && r.Why != "":
		return fmt.Errorf("%s: %s: %w: %s", r.Area, r.Asked, ErrAgreed, r.Why)
	}
	return nil
}

// Compare runs a question against both servers concurrently and compares the
// answers. It creates the namespace and leaves it behind.
func Compare(ctx context.Context, ours, theirs *Server, q Question, namespace string) (*Result, error) {
	var answers [2][]Answer
	var errs [2]error
	var wg sync.WaitGroup
	for i, s := range []*Server{theirs, ours} {
		wg.Go(func() { answers[i], errs[i] = s.ask(ctx, q, namespace) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", q.Area, q.Asked, err)
	}
	return &Result{Question: q, Answers: len(answers[0]), Differences: compare(answers[0], answers[1])}, nil
}
