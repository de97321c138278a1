// Package fidelity sends the same requests to two API servers and reports how their answers differ.
//
//  1. A [Question] is a script of client-go calls. An [Session] runs it against one
//     server, in an empty namespace, and records every answer: the code, the
//     headers that clients act on, the whole body, the events of watches.
//  2. Numbered placeholders replace values that differ between runs (versions, uids,
//     generated names, times), in order of appearance (normal_test.go). An unchanged
//     version keeps its number.
//  3. The results are compared field by field (compare_test.go).
//  4. A known difference has a reason, which is part of the question. A difference
//     without a reason is an error, and so is a reason without a difference.
//     [Page] writes all of them.
//
// Rejected: comparing the objects that client-go decodes. That hides differences that
// other clients see.
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
	// Area is the group of the question, such as "List".
	Area string
	// Title is the text of the question in the table.
	Title string
	// Run runs the requests.
	Run func(*Session)
	// Why is the reason of the differences. Empty: the answers must be equal.
	Why string
}

// Errors of a [Result].
var (
	// ErrUnexplained reports different answers to a question without a reason.
	ErrUnexplained = errors.New("unexplained difference")
	// ErrAgreed reports equal answers to a question with a reason for a difference.
	ErrAgreed = errors.New("reason without a difference")
	// ErrSetup reports a failed preparation of a question.
	ErrSetup = errors.New("setup failed")
)

// Result is the comparison of the answers to one question.
type Result struct {
	Question
	// Answers is the number of answers of the real server.
	Answers int
	// Differences are in the order of the answers.
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
		return fmt.Errorf("%s: %s: %w:%s", r.Area, r.Title, ErrUnexplained, b.String())
	case len(r.Differences) == 0 && r.Why != "":
		return fmt.Errorf("%s: %s: %w: %s", r.Area, r.Title, ErrAgreed, r.Why)
	}
	return nil
}

// Compare runs a question against both servers concurrently and compares the answers. It
// creates the namespace and does not delete it.
func Compare(ctx context.Context, ours, theirs *Server, q Question, namespace string) (*Result, error) {
	var answers [2][]Answer
	var errs [2]error
	var wg sync.WaitGroup
	for i, s := range []*Server{theirs, ours} {
		wg.Go(func() { answers[i], errs[i] = s.run(ctx, q, namespace) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", q.Area, q.Title, err)
	}
	return &Result{Question: q, Answers: len(answers[0]), Differences: compare(answers[0], answers[1])}, nil
}
