// This file, judge.go, judgement.go and rules.go are the regression gate. It compares a
// new run with an old one. Rules state the allowed change of each figure.
//
//   1. [ParseRules] reads the rules; [DefaultRules] is a default file.
//   2. [OpenRun] reads a run from a results folder or a benchfmt file.
//   3. [Judge] applies each rule to its cells and returns one [Finding] per figure.
//
// A figure regresses only if all of these hold. This keeps false alarms rare:
//
//   - the medians differ by more than the rule allows;
//   - the difference is significant by the Mann-Whitney test, at 0.05;
//   - the nearer end of the confidence interval also exceeds the allowed change;
//   - Welch's test on the logarithms rejects a change of just the allowed size, at 0.05
//     for all tests of the gate together (Holm's correction). Without the correction,
//     10 of 200 figures would differ by chance.
//
// The gate cannot detect that the machine was slower in one of the runs, because all
// figures change together. "per: baseline" helps: each figure is a multiple of the
// baseline's in the same round of the same run. If noise may hide a forbidden change,
// the finding is [Blind].

package compare

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/perf/benchfmt"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Run is the old or the new side of the gate.
type Run struct {
	// Name appears in messages.
	Name string
	// Cells are in order of appearance, without the second cells of A/A pairs.
	Cells []*gateCell
	// Machine holds the known properties of the machine: cpu, goos, goarch, GOMAXPROCS.
	Machine map[string]string
	// Folder is true for a results folder. Only a folder has verdicts, guarantees and
	// baselines.
	Folder bool
	byName map[string]*gateCell
}

// gateCell is one benchmark of a run.
type gateCell struct {
	// Name has no GOMAXPROCS suffix.
	Name string
	// Samples holds the rounds by unit; empty for an invalid cell.
	Samples stats.Samples
	// Verdict, Class and Input come from the results folder; zero for a bare file.
	Verdict  lab.Verdict
	Class    string
	Input    string
	result   benchfmt.Result
	rounds   []lab.Round
	headline cell.Boundary
	// baseline is nil if the cell has none or is itself a baseline.
	baseline *gateCell
}

// OpenRun reads a run from a results folder or a benchfmt file. Errors wrap [ErrInput]
// or [stats.ErrFormat].
func OpenRun(path string) (*Run, error) {
	inputs, err := Open([]string{path})
	if err != nil {
		return nil, err
	}
	in := inputs[0]
	r := &Run{Name: in.Label, Machine: map[string]string{}, byName: map[string]*gateCell{}, Folder: in.Run != nil}
	if r.Folder {
		r.readOutcome(in.Run)
	} else if err := r.readFile(in.Path); err != nil {
		return nil, err
	}
	if len(r.Cells) == 0 {
		return nil, fmt.Errorf("%w: %s has no benchmarks", ErrInput, path)
	}
	return r, nil
}

func (r *Run) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	read, err := stats.Read(file, path)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	for _, key := range []string{"cpu", "goos", "goarch"} {
		r.know(key, read.Config[key])
	}
	for _, name := range read.Names {
		r.add(&gateCell{Name: name, Samples: read.Samples[name], Verdict: lab.Verdict{Status: lab.Valid}}, read.Config)
	}
	return nil
}

// readOutcome reads a results folder, assigns the baselines, and skips the second cells
// of A/A pairs.
func (r *Run) readOutcome(o *lab.Outcome) {
	config := o.BenchConfig()
	r.know("cpu", config.CPU)
	r.know("goos", config.GOOS)
	r.know("goarch", config.GOARCH)
	if config.GOMAXPROCS > 0 {
		r.know("GOMAXPROCS", fmt.Sprint(config.GOMAXPROCS))
	}
	keys := map[string]string{"goos": config.GOOS, "goarch": config.GOARCH, "pkg": config.Pkg, "cpu": config.CPU, "commit": config.Commit}
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		baselines, others := map[string]*gateCell{}, map[*gateCell]string{}
		for j := range c.Cells {
			cl := &c.Cells[j]
			if cl.Repeats != "" {
				continue
			}
			mine := &gateCell{
				Name: cl.BenchName(), Samples: cl.Samples(c.Latency), Verdict: cl.Verdict, Class: cl.Class, Input: c.Input,
				rounds: cl.Rounds, headline: c.Latency,
			}
			r.add(mine, keys)
			knobs := cl.NameWithout("impl")
			if cl.Baseline {
				baselines[knobs] = mine
			} else {
				others[mine] = knobs
			}
		}
		for mine, knobs := range others {
			mine.baseline = baselines[knobs]
		}
	}
}

// know records a known property of the machine.
func (r *Run) know(key, value string) {
	if value != "" {
		r.Machine[key] = value
	}
}

func (r *Run) add(c *gateCell, config map[string]string) {
	c.result.Name = benchfmt.Name(c.Name)
	for key, value := range config {
		if value != "" {
			c.result.SetConfig(key, value)
		}
	}
	r.Cells = append(r.Cells, c)
	r.byName[c.Name] = c
}

// values returns a metric's figures: plain, or as multiples of the baseline's in the
// same round.
func (c *gateCell) values(metric string, perBaseline bool) []float64 {
	if !perBaseline {
		return c.Samples[metric]
	}
	if c.baseline == nil {
		return nil
	}
	base := map[int]float64{}
	for _, round := range c.baseline.rounds {
		if v, ok := figure(round, metric, c.headline); ok && v > 0 {
			base[round.Round] = v
		}
	}
	var out []float64
	for _, round := range c.rounds {
		if v, ok := figure(round, metric, c.headline); ok && base[round.Round] > 0 {
			out = append(out, v/base[round.Round])
		}
	}
	return out
}

func figure(round lab.Round, metric string, headline cell.Boundary) (float64, bool) {
	for _, v := range stats.Values(round.Result, headline) {
		if v.Unit == metric {
			return v.Value, true
		}
	}
	return 0, false
}
