// Package fidelity asks two API servers the same questions and tells where their
// answers differ.
//
//  1. A [Question] is a script of client-go calls. An [Asker] makes them of one
//     server, in a namespace that nothing else is in, and writes down all that the
//     server says: the code, the headers that clients act on, the whole body, the
//     events of watches.
//  2. What has to differ from run to run is given a name by the order in which it
//     is seen: versions, uids, generated names, times (normal.go). So "unchanged"
//     is still told from "changed".
//  3. What is left is compared, field by field (compare.go).
//  4. A difference that is known has a reason, which is part of the question. One
//     that has none is an error, and so is a reason without a difference.
//     [Result.Page] writes all of them down.
//
// Turned down: comparing what client-go makes of the answers. It hides what other
// clients see, and every difference of bodies is one of objects anyway.
package fidelity

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Question is one thing that servers are asked.
type Question struct {
	Area string

	Asked string

	Ask func(*Asker)

	Why string
}

// Errors of questions.
var (
	// ErrUnexplained is wrapped where answers differ for no reason that is known.
	ErrUnexplained = errors.New("the answers differ, and nothing says why")
	// ErrAgreed is wrapped where answers are the same and a reason says why they
	// are not.
	ErrAgreed = errors.New("the answers are the same by now")
	// ErrSetup is wrapped where a question could not be asked.
	ErrSetup = errors.New("could not be asked")
)

// Result is what came of a question.
type Result struct {
	Question

	Answers int

	Differences []Difference
}

// Check returns what is wrong with a result, or nil.
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

// Compare asks both servers a question, at the same time, and compares what they
// say. namespace is made for it, and is left behind.
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
