// Package client tries a watch client, in any language, against what API servers do.
//
// The program lists and watches the configmaps of namespace default by KUBECONFIG. For each line "view" of its standard
// input it writes a line "NAME VERSION" for each object that it sees to its standard output, and then "end". For each
// [Behaviour], [Run] starts a server and the program, lets the server behave that way while objects change, and asks for
// the view until it is the server's state. A program whose view differs too long, that ends, or that hammers fails.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/loadgen/fault"
)

// The verdicts.
const (
	Passed  = "passed"
	Failed  = "failed"
	Skipped = "skipped" // this machine cannot play it
)

// Outcome is what a program did with a behaviour.
type Outcome struct {
	Behaviour string
	Does      string         // what the server does
	Verdict   string         // Passed, Failed or Skipped
	After     fault.Duration `json:",omitzero"` // from the last change until the views were equal
	Requests  int            // lists and watches
	Why       string         `json:",omitzero"` // how it failed, after "the program"
	Bytes     string         `json:",omitzero"` // what it had been sent last
}

// Result has the outcomes, in the order of [Behaviours].
type Result struct {
	Command     []string
	Build       lab.Build
	Outcomes    []Outcome
	Interrupted bool // some are missing
}

// Options configure [Run].
type Options struct {
	Command    []string      // of the program; see [program.Options]
	Behaviours []Behaviour   // see [Named]; the first is Plain
	Within     time.Duration // bound for equal views after the last change
	Dir        string        // existing folder, absolute
	Build      lab.Build
	Done       func(Outcome) // receives each outcome; nil for none
}

// parallel is the number of plays at a time. They wait most of the time.
const parallel = 8

// Run plays the behaviours, Plain first: with a program that fails that, all others say nothing. If ctx ends, the
// result has what was finished.
func Run(ctx context.Context, opts Options) (*Result, error) {
	result := &Result{Command: lab.RedactAll(opts.Command), Build: opts.Build}
	outcomes, errs := make([]Outcome, len(opts.Behaviours)), make([]error, len(opts.Behaviours))
	one := func(i int) {
		p := play{Options: opts, Behaviour: opts.Behaviours[i]}
		if outcomes[i], errs[i] = p.run(ctx); errs[i] == nil && opts.Done != nil {
			opts.Done(outcomes[i])
		}
	}
	one(0)
	if errs[0] == nil && outcomes[0].Verdict == Passed {
		var others errgroup.Group
		others.SetLimit(parallel)
		for i := 1; i < len(outcomes); i++ {
			others.Go(func() error { one(i); return nil })
		}
		_ = others.Wait()
	}
	for i, o := range outcomes {
		if o.Verdict != "" {
			result.Outcomes = append(result.Outcomes, o)
		}
		if errors.Is(errs[i], context.Canceled) {
			result.Interrupted, errs[i] = true, nil
		}
	}
	write := func(w io.Writer) error { return lab.EncodeJSON(w, result) }
	return result, errors.Join(append(errs, lab.ReplaceFile(filepath.Join(opts.Dir, "client.json"), write))...)
}

// Failed reports whether a behaviour broke the program.
func (r *Result) Failed() bool { return len(r.named(Failed)) > 0 }

func (r *Result) named(verdict string) (names []string) {
	for _, o := range r.Outcomes {
		if o.Verdict == verdict {
			names = append(names, o.Behaviour)
		}
	}
	return names
}

// Text writes a sentence, a table, and how each behaviour failed.
func (r *Result) Text(w io.Writer) error {
	failed := r.named(Failed)
	switch {
	case len(failed) > 0 && failed[0] == Plain:
		fmt.Fprintln(w, "The program does not follow a server without any fault; nothing else was played.")
	case len(failed) > 0:
		fmt.Fprintf(w, "%d of %d behaviours of servers break the program: %s.\n", len(failed), len(r.Outcomes), strings.Join(failed, ", "))
	default:
		fmt.Fprintf(w, "The program follows the server through %d of %d behaviours.\n", len(r.named(Passed)), len(r.Outcomes))
	}
	table := chart.NewTable("", []string{"  behaviour", "verdict"}, "after", "requests")
	table.Words("the server")
	for _, o := range r.Outcomes {
		after := chart.None
		if o.Verdict == Passed {
			after = fmt.Sprintf("%.1f s", time.Duration(o.After).Seconds())
		}
		table.Add("  "+o.Behaviour, o.Verdict, after, strconv.Itoa(o.Requests), o.Does)
	}
	fmt.Fprintln(w)
	if err := table.Text(w); err != nil {
		return err
	}
	for _, o := range r.Outcomes {
		switch o.Verdict {
		case Failed:
			fmt.Fprintf(w, "\n%s: the program %s\n  %s\n", o.Behaviour, o.Why, o.Bytes)
		case Skipped:
			fmt.Fprintf(w, "\n%s: not played: %s\n", o.Behaviour, o.Why)
		}
	}
	return nil
}
