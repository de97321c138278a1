package study

import (
	"bytes"
	"fmt"
	"io"

	"watchlab/bench/lab"
	"watchlab/bench/report"
)

// Entry is a question with what was found so far.
type Entry struct {
	Question Question
	Found    Found
}

// Index writes the page of a whole study: every question with its answer in short, a link
// to its page, and how it was all made.
func Index(w io.Writer, command string, entries []Entry) error {
	var b bytes.Buffer
	b.WriteString("# The study\n\n")
	b.WriteString("The questions that the lab was built for, each with what was measured. " +
		"Answers are made from the figures by the program; a difference that can't be told from chance is said to be none. " +
		"Each question's page says how sure its answer is.\n\n")
	fmt.Fprintf(&b, "    %s\n\n", command)
	if o := first(entries); o != nil {
		fmt.Fprintf(&b, "%s\n\n", report.Escape(where(o)))
	}
	for _, e := range entries {
		fmt.Fprintf(&b, "## [%s](%s/%s)\n\n", e.Question.Asks, e.Question.Name, PageFile)
		answer := e.Question.Answer(e.Found)
		if len(answer.Short) == 0 {
			answer.Short = answer.More
		}
		report.List(&b, answer.Short)
	}
	_, err := w.Write(b.Bytes())
	return err
}

// first returns the first outcome that there is, without its end, which is not the
// study's.
func first(entries []Entry) *lab.Outcome {
	for _, e := range entries {
		for _, p := range e.Question.Parts {
			if o := e.Found[p.Name]; o != nil {
				head := *o
				head.Ended = nil
				return &head
			}
		}
	}
	return nil
}
