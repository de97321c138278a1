package compare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/perf/benchfmt"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Run is one run of a comparison or the gate.
type Run struct {
	name string
	// cells are in order of appearance, without the second cells of A/A pairs.
	cells  []*gateCell
	byName map[string]*gateCell
	config map[string]string // of the benchfmt file, with GOMAXPROCS if known
	// folder: the run is a results folder. Only a folder has verdicts and baselines.
	folder bool
	single bool // one process played all rounds
}

// gateCell is one benchmark of a run.
type gateCell struct {
	name    string        // without the GOMAXPROCS suffix
	samples stats.Samples // rounds by unit; empty for an invalid cell
	// relative holds the figures as multiples of the baseline's in the same round; nil
	// without a baseline.
	relative stats.Samples
	// verdict and input come from the results folder, class also from the key of bench.txt.
	verdict      lab.Verdict
	class, input string
	result       benchfmt.Result // for filters
}

// usable reports whether the cell has valid figures.
func (c *gateCell) usable() bool {
	return c.verdict.Status != lab.Invalid && c.verdict.Status != lab.Unplayed
}

func (c *gateCell) values(r *Rule) []float64 {
	if r.PerBaseline {
		return c.relative[r.Metric]
	}
	return c.samples[r.Metric]
}

// OpenRun reads a run: a results folder or a benchfmt file, or label=path of either. Errors wrap
// [ErrInput] or [stats.ErrFormat] and name the path.
func OpenRun(arg string) (*Run, error) {
	r, path := &Run{name: strings.TrimRight(arg, `/\`), byName: map[string]*gateCell{}}, arg
	info, err := os.Stat(path)
	if label, after, ok := strings.Cut(arg, "="); ok && errors.Is(err, fs.ErrNotExist) {
		r.name, path = label, after
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInput, err)
	}
	bench := path
	if info.IsDir() {
		bench = filepath.Join(path, lab.BenchFile)
		run, err := lab.Load(path)
		if r.folder = err == nil; r.folder {
			r.readFolder(run)
		} else if _, missing := os.Stat(bench); missing != nil || !errors.Is(err, fs.ErrNotExist) {
			// A results folder of another verb, such as controller, has the benchmark file alone.
			return nil, fmt.Errorf("%w: %s: %w", ErrInput, path, err)
		}
	}
	if !r.folder {
		if err := r.readFile(bench); err != nil {
			return nil, err
		}
	}
	if len(r.cells) == 0 {
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
	r.config = read.Config
	for _, name := range read.Names {
		r.add(&gateCell{name: name, samples: read.Samples[name], class: read.Guarantees[name]})
	}
	return nil
}

// readFolder reads a results folder and skips the second cells of A/A pairs.
func (r *Run) readFolder(o *lab.Outcome) {
	c := o.BenchConfig()
	r.config = map[string]string{"goos": c.GOOS, "goarch": c.GOARCH, "pkg": c.Pkg, "cpu": c.CPU, "commit": c.Commit}
	if c.GOMAXPROCS > 0 {
		r.config["GOMAXPROCS"] = fmt.Sprint(c.GOMAXPROCS)
	}
	r.single = o.OneProcess()
	for c, cl := range o.Cells() {
		if cl.Repeats != "" {
			continue
		}
		cell := &gateCell{name: cl.BenchName(), samples: cl.Samples(), verdict: cl.Verdict, class: cl.Class, input: c.Input}
		if base := c.Against(cl); base != nil {
			cell.relative = relative(cl, base)
		}
		r.add(cell)
	}
}

// relative divides the figures of each round by those of the baseline, one value per replicate.
func relative(cl, base *lab.CellResult) stats.Samples {
	type key struct {
		round int
		unit  string
	}
	from := map[key]float64{}
	for _, round := range base.Rounds {
		for _, v := range stats.Values(round.Result) {
			from[key{round.Round, v.Unit}] = v.Value
		}
	}
	out := stats.Samples{}
	for _, rounds := range cl.Replicates() {
		ratios := stats.Samples{}
		for _, round := range rounds {
			for _, v := range stats.Values(round.Result) {
				if b := from[key{round.Round, v.Unit}]; b > 0 {
					ratios[v.Unit] = append(ratios[v.Unit], v.Value/b)
				}
			}
		}
		for unit, values := range ratios {
			out[unit] = append(out[unit], stats.LogMean(values))
		}
	}
	return out
}

func (r *Run) add(c *gateCell) {
	c.result.Name = benchfmt.Name(c.name)
	for key, value := range r.config {
		if value != "" {
			c.result.SetConfig(key, value)
		}
	}
	r.cells = append(r.cells, c)
	r.byName[c.name] = c
}

// machineDiffers describes the differences between the machines, in the properties that
// both runs know.
func (r *Run) machineDiffers(now *Run) string {
	var out []string
	for _, key := range []string{"cpu", "goos", "goarch", "GOMAXPROCS"} {
		if a, b := r.config[key], now.config[key]; a != "" && b != "" && a != b {
			out = append(out, fmt.Sprintf("%s is %q and %q", key, a, b))
		}
	}
	return strings.Join(out, ", ")
}
