package lab

import (
	"errors"
	"fmt"
	"time"
)

// ErrResume is wrapped by the errors for a run that cannot be resumed: its folder holds
// a different run, or another process is writing to it. The folder stays unchanged.
var ErrResume = errors.New("cannot be resumed")

// resume opens the run in the folder and plans its missing rounds; finished: there are none.
func (r *runner) resume(comparisons []Comparison) (finished bool, err error) {
	if r.lock, err = lockFolder(r.opts.Dir); err != nil {
		return false, err
	}
	planned := r.out
	if r.out, err = Load(r.opts.Dir); err != nil {
		return false, err
	}
	r.out.files = r.opts.files
	if r.out.Ended != nil && !r.out.Interrupted {
		return true, nil
	}
	if err := r.continueFrom(planned, comparisons); err != nil {
		return false, fmt.Errorf("results folder %s: %w", r.opts.Dir, err)
	}
	return false, r.out.Save(r.opts.Dir)
}

// continueFrom plans the missing rounds of the run in the folder, which must be the planned one.
func (r *runner) continueFrom(planned *Outcome, comparisons []Comparison) error {
	old, env := r.out, planned.Env
	// All rounds of a run must share program and machine.
	if err := sameProperties(append(old.Env.properties(), old.properties()...), append(env.properties(), planned.properties()...)); err != nil {
		return err
	}
	for _, cl := range old.Cells() {
		for _, round := range cl.played() {
			r.process = max(r.process, round.Process+1)
		}
	}
	if err := r.plan(comparisons); err != nil {
		return err
	}
	env.Started, env.Args, env.Resumed, env.Processes = old.Env.Started, old.Env.Args, old.Env.Resumed, r.process
	if old.Paused {
		env.Before, env.LoadAverage = old.Env.Before, old.Env.LoadAverage
	} else {
		env.Resumed = append(env.Resumed, time.Now())
	}
	old.Env = env
	old.Ended, old.Interrupted, old.Paused = nil, false, false
	r.before = old.Spent
	return nil
}

// property is a value that parts of a run have in common.
type property struct {
	name  string
	value any
}

// difference returns the names and values of the first properties that differ.
func difference(a, b []property) (name string, then, now any) {
	for i, p := range a {
		if p != b[i] {
			return b[i].name, p.value, b[i].value
		}
	}
	return "", nil, nil
}

func sameProperties(then, now []property) error {
	if name, was, is := difference(then, now); name != "" {
		return fmt.Errorf("%w: %s was %v, and is %v", ErrResume, name, was, is)
	}
	return nil
}

func (e Env) properties() []property {
	return []property{
		{"the program's commit", e.Revision()}, {"Go", e.GoVersion}, {"GOOS", e.GOOS}, {"GOARCH", e.GOARCH}, {"the processor", e.CPU},
		{"the number of cores", e.Cores}, {"GOMAXPROCS", e.GOMAXPROCS}, {"GOGC", e.GOGC},
	}
}

// properties of a run without its cells. Those of each comparison follow the number of comparisons.
func (o *Outcome) properties() []property {
	rounds := o.Rounds
	if o.Budget > 0 {
		rounds = 0 // It grows.
	}
	all := []property{
		{"Seed", o.Seed}, {"Budget", o.Budget}, {"a process for each play", o.Fresh}, {"Rounds", rounds},
		{"Processes", max(o.Processes, 1)},
		{"the number of comparisons", len(o.Comparisons)},
	}
	for _, c := range o.Comparisons {
		all = append(all, property{"the family", c.Family}, property{"the title of comparison " + c.Family, c.Title},
			property{"the input of comparison " + c.Family, c.Input})
	}
	return all
}

func (c *CellResult) properties() []property {
	name := c.BenchName()
	return []property{
		{"a cell", name}, {"what " + name + " guarantees", c.Guarantees}, {"the class of " + name, c.Class},
		{"what " + name + " repeats", c.Repeats}, {"whether " + name + " is the baseline", c.Baseline},
		{"whether the verdict on " + name + " ignores the host", c.IgnoreHost},
	}
}
