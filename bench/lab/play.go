package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

// play plays a cell once: New, Setup, Run, Check, Teardown. A panic in any of
// them becomes an error; one in a goroutine that the workload started cannot
// be caught and ends the process. gate, if not nil, is called between Setup and Run.
func play(ctx context.Context, c Cell, rec *cell.Recorder, gate func(context.Context) error) (res cell.Result, err error) {
	w, err := newWorkload(c)
	if err != nil {
		return cell.Result{}, err
	}
	err = drive(ctx, w, rec, gate)
	if terr := guard("teardown", w.Teardown); terr != nil {
		err = errors.Join(err, terr)
	}
	if err != nil {
		return cell.Result{}, err
	}
	res, err = rec.Result()
	if err != nil {
		return cell.Result{}, err
	}
	return res, checkNotes(res)
}

// checkNotes refuses a note that would stand on the cell's line under the unit of
// another figure: one that cells have, or that of a boundary.
func checkNotes(res cell.Result) error {
	notes := res.Notes
	res.Notes = nil
	taken := map[string]bool{}
	for _, v := range stats.Values(res, "") {
		taken[v.Unit] = true
	}
	for _, n := range notes {
		if taken[n.Unit] || stats.Reserved(n.Unit) {
			return fmt.Errorf("note %q: the unit is that of another figure", n.Unit)
		}
		taken[n.Unit] = true
	}
	return nil
}

func newWorkload(c Cell) (w Workload, err error) {
	err = guard("new", func() (err error) {
		w, err = c.New()
		return err
	})
	if err == nil && w == nil {
		err = errors.New("new: no workload")
	}
	return w, err
}

// drive goes through the steps up to the check. If ctx ended while the
// workload ran, what came out is not checked: the cell is dropped.
func drive(ctx context.Context, w Workload, rec *cell.Recorder, gate func(context.Context) error) error {
	if err := guard("setup", func() error { return w.Setup(ctx) }); err != nil {
		return err
	}
	if gate != nil {
		if err := gate(ctx); err != nil {
			return err
		}
	}
	if err := guard("run", func() error { return w.Run(ctx, rec) }); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return guard(checkStep, w.Check)
}

// checkStep is the step whose errors go without its name, so that the
// invariants' own words stand at the front of the verdict.
const checkStep = "check"

// guard calls a step, puts its name before its error, and turns a panic into an
// error.
func guard(step string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in %s: %v (%s)", step, p, panicSite())
		}
	}()
	if err := f(); err != nil {
		if step == checkStep {
			return err
		}
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

// panicSite names the functions nearest to the panic, without paths: verdicts
// are published.
func panicSite() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	var site []string
	for {
		f, more := frames.Next()
		if !strings.HasPrefix(f.Function, "runtime.") && f.Function != "" {
			site = append(site, fmt.Sprintf("%s %s:%d", f.Function[strings.LastIndex(f.Function, "/")+1:], filepath.Base(f.File), f.Line))
		}
		if !more || len(site) == 3 {
			return strings.Join(site, ", ")
		}
	}
}
