package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
	"watchlab/bench/report"
	"watchlab/bench/telemetry"
)

// playing is an experiment run by this process.
type playing struct {
	*experiment.Plan
	dir    string
	resume bool
	// show prints the outcome; nil selects [defaultShow].
	show      func(io.Writer, *lab.Outcome) error
	telemetry telemetryFlags
	// stays: telemetry is served until the command is interrupted.
	stays bool
	args  []string
}

// shower returns the printer of an output format; nil for the default.
func shower(output string) (func(io.Writer, *lab.Outcome) error, error) {
	switch output {
	case "":
		return nil, nil
	case "brief":
		return report.Brief, nil
	case "table":
		return report.Table, nil
	case "json":
		return report.JSON, nil
	case "bench":
		return report.Bench, nil
	}
	return nil, badFlag("output", experiment.OneOf(output, "brief", "table", "json", "bench"))
}

// defaultShow returns the brief report for an experiment with parts, else the full
// table.
func defaultShow(p *experiment.Plan) func(io.Writer, *lab.Outcome) error {
	if len(p.Spec.Parts) > 0 {
		return report.Brief
	}
	return report.Table
}

// run plays the plan and prints the outcome.
func (r *playing) run(ctx context.Context, stdout, stderr io.Writer) error {
	for _, note := range r.Notes {
		fmt.Fprintf(stderr, "watchlab: %s\n", note)
	}
	session, err := r.telemetry.start(ctx, runName(r.Options.Name, r.dir, time.Now()), stderr)
	if err != nil {
		return err
	}
	err = r.play(ctx, session, stdout, stderr)
	if r.stays && (err == nil || errors.Is(err, errInvalid)) {
		fmt.Fprintf(stderr, "watchlab: the run is over; %s stays until Ctrl-C\n", session.URL())
		<-ctx.Done()
	}
	session.Close(ctx, err)
	return err
}

func (r *playing) play(ctx context.Context, session *telemetry.Session, stdout, stderr io.Writer) error {
	opts := r.Options
	opts.Dir, opts.Resume, opts.Build, opts.Args = r.dir, r.resume, build(), r.args
	if r.Spec.Memory {
		opts.Fresh = func(ctx context.Context, name string) (result, error) { return playFresh(ctx, r.Spec, name) }
	}
	if len(r.Profiles) > 0 {
		opts.Profile = profile.NewProfiler(r.dir, r.Profiles)
	}
	status := newStatus(stderr)
	defer status.clear()
	opts.Progress = session.Progress(status.show)
	o, err := lab.Run(ctx, session.Watch(r.Comparisons), opts)
	status.clear()
	err = errors.Join(err, r.Close())
	switch {
	case errors.Is(err, lab.ErrExists):
		return badFlag("out", err)
	case o == nil && r.resume:
		return badFlag("resume", err)
	case o == nil:
		return err
	}
	// Finished cells are printed and kept even if the run failed.
	r.Finish(o)
	errs := []error{err}
	if r.dir != "" {
		errs = append(errs, o.Save(r.dir))
	}
	errs = append(errs, r.show(stdout, o))
	if r.dir != "" {
		if err := report.Write(r.dir, o); err != nil {
			errs = append(errs, err)
		} else {
			fmt.Fprintf(stderr, "watchlab: results are in %s\n", r.dir)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if failed := o.Failed(); len(failed) > 0 {
		for _, f := range failed {
			fmt.Fprintf(stderr, "watchlab: %s\n", f)
		}
		return errInvalid
	}
	if o.Interrupted {
		finished, all := 0, 0
		for _, c := range o.Comparisons {
			for _, cl := range c.Cells {
				finished += len(cl.Rounds)
				all += o.RoundsOf(c)
			}
		}
		fmt.Fprintf(stderr, "watchlab: interrupted; %d of %d measurements were finished and are kept\n", finished, all)
		return errInterrupted
	}
	return nil
}

// today is the date of a results folder.
func today() string { return time.Now().Format(time.DateOnly) }

// freeFolder returns the name of a new results folder. The second run of a day at one
// commit gets the suffix -2.
func freeFolder(root, date string, b lab.Build, name string) string {
	dir := filepath.Join(root, fmt.Sprintf("%s-%s-%s", date, b.Revision(), name))
	for n, free := 2, dir; ; n++ {
		if _, err := os.Lstat(free); err != nil {
			return free
		}
		free = fmt.Sprintf("%s-%d", dir, n)
	}
}
