package lab

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"watchlab/bench/cell"
)

// ErrResume is wrapped by the errors for a run that cannot be resumed: its folder holds
// a different run, or another process is writing to it. The folder stays unchanged.
var ErrResume = errors.New("cannot be resumed")

// resume opens the run in the folder and plans its missing rounds.
func (r *runner) resume(comparisons []Comparison, env Env) error {
	planned := r.out
	r.out = nil
	folder, old, err := openFolder(r.opts.Dir)
	if err != nil {
		return err
	}
	r.folder = folder
	if old.Ended != nil && !old.Interrupted {
		r.over, r.out = true, old
		return nil
	}
	err = errors.Join(sameMachine(old.Env, env), sameRun(old, planned, comparisons))
	if err == nil {
		r.out = old
		err = r.continueFrom(old, comparisons, env)
	}
	if err != nil {
		r.out = nil
		return fmt.Errorf("results folder %s: %w", r.opts.Dir, err)
	}
	return nil
}

// continueFrom continues the outcome of the folder.
func (r *runner) continueFrom(old *Outcome, comparisons []Comparison, env Env) error {
	for i, c := range old.Comparisons {
		for j := range c.Cells {
			if err := wholeLatency(r.opts.Dir, i, j, &c.Cells[j]); err != nil {
				return err
			}
		}
	}
	if err := r.plan(comparisons, reached(old, r.folder.withheld), r.folder.withheld); err != nil {
		return err
	}
	// Cells that are shown or have failed are no longer withheld.
	for _, c := range old.Comparisons {
		for _, cl := range c.Cells {
			if len(cl.Rounds) > 0 || cl.Verdict.Failed() {
				delete(r.folder.withheld, cl.BenchName())
			}
		}
	}
	env.Started, env.Args = old.Env.Started, old.Env.Args
	env.Resumed = append(old.Env.Resumed, r.opts.Now())
	old.Env = env
	old.Ended, old.Interrupted = nil, false
	r.before = old.Spent
	return errors.Join(r.folder.writeWithheld(), r.folder.begin(old))
}

// reached is the index of the last comparison with a finished round. Earlier
// comparisons are complete.
func reached(o *Outcome, withheld map[string][]Round) int {
	last := 0
	for i, c := range o.Comparisons {
		for _, cl := range c.Cells {
			if len(cl.Rounds) > 0 || len(withheld[cl.BenchName()]) > 0 || cl.Verdict.Failed() {
				last = i
			}
		}
	}
	return last
}

// was returns the error for a value that has changed.
func was(what string, then, now any) error {
	return fmt.Errorf("%w: %s was %v, and is %v", ErrResume, what, then, now)
}

// sameMachine compares program and machine: all rounds of a run must share both.
func sameMachine(then, now Env) error {
	return cmp.Or(
		same("the program's commit", then.Build.Revision(), now.Build.Revision()),
		same("Go", then.GoVersion, now.GoVersion),
		same("GOOS", then.GOOS, now.GOOS),
		same("GOARCH", then.GOARCH, now.GOARCH),
		same("the processor", then.CPU, now.CPU),
		same("the number of cores", then.Cores, now.Cores),
		same("GOMAXPROCS", then.GOMAXPROCS, now.GOMAXPROCS),
		same("GOGC", then.GOGC, now.GOGC),
	)
}

// sameRun compares the options. Cells are compared when they are planned.
func sameRun(old, now *Outcome, comparisons []Comparison) error {
	err := cmp.Or(
		same("Seed", old.Seed, now.Seed),
		same("Budget", old.Budget, now.Budget),
		same("a process for each play", old.Fresh, now.Fresh),
		same("the number of comparisons", len(old.Comparisons), len(comparisons)),
	)
	if old.Budget == 0 {
		err = cmp.Or(err, same("Rounds", old.Rounds, now.Rounds))
	}
	if err != nil {
		return err
	}
	for i, c := range comparisons {
		then := old.Comparisons[i]
		if err := cmp.Or(
			same("the family", then.Family, c.Family),
			same("the title of comparison "+c.Family, then.Title, c.Title),
			same("the input of comparison "+c.Family, then.Input, c.Input),
		); err != nil {
			return err
		}
	}
	return nil
}

func same[T comparable](what string, then, now T) error {
	if then == now {
		return nil
	}
	return was(what, then, now)
}

// sameCell compares a planned cell with the cell at its index in the resumed run.
func sameCell(then, now CellResult) error {
	return cmp.Or(
		same("a cell", then.BenchName(), now.BenchName()),
		same("what "+now.BenchName()+" guarantees", then.Guarantees, now.Guarantees),
		same("the class of "+now.BenchName(), then.Class, now.Class),
		same("what "+now.BenchName()+" repeats", then.Repeats, now.Repeats),
	)
}

// wholeLatency checks that all histograms of a cell were read.
func wholeLatency(dir string, comparison, i int, c *CellResult) error {
	for _, r := range c.Rounds {
		for _, l := range r.Result.Latency {
			if l.Histogram == "" {
				return fmt.Errorf("%w: %s lacks round %d of %s", ErrResume,
					filepath.Base(latencyFile(dir, comparison, i, c)), r.Round, l.Boundary)
			}
		}
	}
	return nil
}

// restore restores a cell of the resumed run. A failed verdict stays. The rounds are
// the shown ones, or else the withheld ones.
func (t *cellRun) restore(c *CellResult, withheld []Round, headline cell.Boundary) {
	if c.Verdict.Failed() {
		t.failed, t.closed = true, true
		return
	}
	t.rounds = slices.Clone(c.Rounds)
	if len(t.rounds) == 0 {
		t.rounds = withheld
	}
	c.Verdict = judge(c.Labels, t.rounds)
	publish(c, t.rounds, headline)
}
