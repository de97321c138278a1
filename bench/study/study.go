// Package study asks the lab's research questions: which runs answer each, and
// what the figures say.
//
//  1. A [Question] names the commands that measure it, each a [Part] with a results
//     folder of its own.
//  2. The command plays them, as a user could.
//  3. [Page] puts the question, the commands, the figures, the answer and how sure it
//     is on a page, and [Index] all questions on one.
//
// Answers are made of what was measured, every time: no figure and no winner stands
// in the program. What can't be told from chance is said to be so, and a part that
// has no figures answers nothing.
package study

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"watchlab/bench/lab"
)

// Question is one that a study asks.
type Question struct {
	Name string

	Asks string

	About string

	Parts []Part

	Tell func(found Found) Answer
}

// Answer is what was found, in lines that can each be read alone.
type Answer struct {
	Short, More []string
}

// Part is one run.
type Part struct {
	Name string

	Shows string

	Args []string

	Weight float64

	Columns []string
}

// Found is what the parts of a question measured, by their names. What wasn't
// played isn't there.
type Found map[string]*lab.Outcome

// ErrUnknownQuestion is wrapped by the error for a name that is no question's.
var ErrUnknownQuestion = errors.New("unknown question")

// Choose returns the named questions in the order of [Questions]; all where none is
// named. The error wraps [ErrUnknownQuestion] and says which there are.
func Choose(names []string) ([]Question, error) {
	all := Questions()
	if len(names) == 0 {
		return all, nil
	}
	var have []string
	for _, q := range all {
		have = append(have, q.Name)
	}
	for _, n := range names {
		if !slices.Contains(have, n) {
			return nil, fmt.Errorf("%w %q (have %s)", ErrUnknownQuestion, n, strings.Join(have, ", "))
		}
	}
	return slices.DeleteFunc(all, func(q Question) bool { return !slices.Contains(names, q.Name) }), nil
}

// Weight is the question's share of the study's time.
func (q Question) Weight() float64 {
	sum := 0.0
	for _, p := range q.Parts {
		sum += p.Weight
	}
	return sum
}
