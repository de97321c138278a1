package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/bench/telemetry"
)

// playing is an experiment run by this process.
type playing struct {
	*experiment.Plan
	dir       string
	resume    bool
	show      func(io.Writer, *lab.Outcome) error // prints the outcome
	brief     bool                                // show names the report
	telemetry telemetryFlags
	stays     bool // telemetry is served until the command is interrupted
	args      []string
}

func (r *playing) run(ctx context.Context, stdout, stderr io.Writer) error {
	status := report.NewStatus(stderr)
	defer status.Clear()
	stderr = status
	session, err := r.telemetry.start(ctx, telemetry.RunName(r.Options.Name, r.dir, time.Now()), stderr)
	if err != nil {
		return err
	}
	err = r.play(ctx, session, status, stdout)
	if server := session.Server(); server != nil && r.stays && (err == nil || errors.Is(err, errInvalid)) {
		warn(stderr, "the run is over; %s stays until Ctrl-C", server.URL())
		<-ctx.Done()
	}
	failure := err
	if errors.Is(err, errPaused) {
		failure = nil
	}
	session.Close(ctx, failure)
	return err
}

func (r *playing) play(ctx context.Context, session *telemetry.Session, stderr *report.Status, stdout io.Writer) error {
	opts := r.Options
	opts.Dir, opts.Resume, opts.Build, opts.Args = r.dir, r.resume, build(), r.args
	opts.Progress = stderr.Show
	o, err := r.Run(ctx, session, opts)
	stderr.Clear()
	switch {
	case errors.Is(err, lab.ErrExists):
		return badFlag("out", err)
	case o == nil && r.resume:
		return badFlag("resume", err)
	case o == nil:
		return err
	case err == nil && o.Paused:
		return errPaused
	}
	return r.conclude(o, err, stdout, stderr)
}

// conclude writes the outcome of a run that returned err.
func (r *playing) conclude(o *lab.Outcome, err error, stdout, stderr io.Writer) error {
	// A full disk fails them all: the first error counts.
	if r.dir != "" {
		err = cmp.Or(err, o.Save(r.dir))
	}
	err = cmp.Or(err, r.show(stdout, o))
	if r.dir != "" {
		failed := report.Write(r.dir, o)
		if failed == nil && !r.brief {
			warn(stderr, "results are in %s", r.dir)
		}
		err = cmp.Or(err, failed)
	}
	if err != nil {
		return err
	}
	if failed := o.Failed(); len(failed) > 0 {
		for _, f := range failed {
			warn(stderr, "%s", f)
		}
		return errInvalid
	}
	if o.Interrupted {
		finished, all := o.Finished()
		warn(stderr, "interrupted; %d of %d cells have all their rounds; finished rounds are kept", finished, all)
		return errInterrupted
	}
	return nil
}

func checkNew(dir string) error {
	if _, err := os.Lstat(dir); dir != "" && err == nil {
		return badFlag("out", fmt.Errorf("%s exists; name a folder that doesn't", dir))
	}
	return nil
}

// newFolder returns the folder of --out, which must not exist, or else a free one for a name.
func newFolder(out, name string) (string, error) {
	if out == "" {
		return lab.FreeFolder("results", build(), name), nil
	}
	return out, checkNew(out)
}
