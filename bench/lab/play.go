package lab

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"

	"watchlab/bench/cell"
)

// play plays a cell once: New, Setup, Run, Check, Teardown. A panic in one of them
// becomes an error. A panic in a goroutine of the workload ends the process. hook, if
// not nil, is called between Setup and Run. If ctx ends during Run, play skips Check and the
// cell is dropped.
func play(ctx context.Context, c Cell, rec *cell.Recorder, hook func(context.Context) error) (cell.Result, error) {
	var w Workload
	err := guard("new", func() (err error) {
		if w, err = c.New(); err == nil && w == nil {
			err = errors.New("no workload")
		}
		return err
	})
	if err != nil {
		return cell.Result{}, err
	}
	err = guard("setup", func() error { return w.Setup(ctx) })
	if err == nil && hook != nil {
		err = hook(ctx)
	}
	if err == nil {
		err = guard("run", func() error { return w.Run(ctx, rec) })
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = guard(checkStep, w.Check)
	}
	if err = errors.Join(err, guard("teardown", w.Teardown)); err != nil {
		return cell.Result{}, err
	}
	return rec.Result()
}

// checkStep is the step whose errors carry no step name, so that the verdict begins
// with the invariant.
const checkStep = "check"

// guard calls a step, prefixes its error with its name, and turns a panic into an error.
func guard(step string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in %s: %v (%s)", step, p, panicSite())
		}
	}()
	if err = f(); err != nil && step != checkStep {
		err = fmt.Errorf("%s: %w", step, err)
	}
	return err
}

// panicSite names up to three functions nearest to the panic. It omits paths, because
// verdicts are published.
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

// PlayCell plays the named cell once. A process started by [Options].PlayInFreshProcess calls it.
// The error is the workload's, or wraps [ErrOptions] for an unknown cell.
func PlayCell(ctx context.Context, comparisons []Comparison, name string, rec *cell.Recorder) (cell.Result, error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	for _, c := range comparisons {
		for _, cl := range c.Cells {
			if cl.BenchName() == name {
				return play(ctx, cl, rec, nil)
			}
		}
	}
	return cell.Result{}, invalid("there is no cell %s", name)
}

// processResult is a gob message.
type processResult struct {
	Result cell.Result
	Failed *failedPlay // nil for none
}

// WriteResult writes the result of [PlayCell] for [ReadResult] in another process of
// the same program.
func WriteResult(w io.Writer, result cell.Result, err error) error {
	h := processResult{Result: result}
	if err != nil {
		h.Failed = &failedPlay{failure(err)}
	}
	return gob.NewEncoder(w).Encode(h)
}

// ReadResult reads the output of [WriteResult]. The error has the verdict on the written one, or reports
// incomplete data.
func ReadResult(r io.Reader) (cell.Result, error) {
	var h processResult
	if err := gob.NewDecoder(r).Decode(&h); err != nil {
		return cell.Result{}, fmt.Errorf("the process of the cell returned no result: %w", err)
	}
	if h.Failed != nil {
		return cell.Result{}, h.Failed
	}
	return h.Result, nil
}

// failedPlay is an error of another process.
type failedPlay struct{ Verdict Verdict }

func (f *failedPlay) Error() string { return f.Verdict.String() }

// Play identifies a play of a cell after Setup and before Run.
type Play struct {
	Position   int    // from 0, ascending; equal in all runs of the same comparisons, as skipped plays count
	Comparison int    // index in the run, from 0
	Cell       string // benchmark name
	Round      int    // 0 is the warm-up
}

// Plays returns the number of plays of a run: one more than the highest [Play].Position.
func Plays(comparisons []Comparison, opts Options) int {
	n := 0
	for _, c := range comparisons {
		n += c.positions(opts)
	}
	return n * (opts.Rounds + 1)
}

// positions is the number of positions of one round.
func (c *Comparison) positions(opts Options) int {
	if opts.NoAA {
		return len(c.Cells)
	}
	return len(c.Cells) + 1
}

// hook returns the call of [Options].BeforeRun for this play; nil without BeforeRun.
func (p *cellPlay) hook() func(context.Context) error {
	r := p.c.r
	if r.opts.BeforeRun == nil {
		return nil
	}
	id := Play{
		Position: r.perRound*p.round + p.c.offset + p.place - 1, Comparison: p.c.index, Cell: p.BenchName(), Round: p.round,
	}
	return func(ctx context.Context) error {
		return guard("start", func() error { return r.opts.BeforeRun(ctx, id) })
	}
}
