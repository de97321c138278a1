package lab

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

// folder is the results folder of a run in progress. The methods of a nil folder do
// nothing.
//
// Files are replaced by rename, so that a reader always sees one whole version, even
// after a kill. The folder does not sync each file: a sync between cells would disturb
// the next measurement, and a killed process loses none of its writes.
type folder struct {
	dir      string
	bench    *os.File           // bench.txt, open for appending
	writer   *stats.Writer      // writes to bench
	lock     *os.File           // held until the folder is closed
	withheld map[string][]Round // rounds that run.json does not show, by the cell's benchmark name
}

// withheldFile holds the withheld rounds as gob. It exists only while there are some
// and the run is in progress.
const withheldFile = ".withheld"

// createFolder creates the folder and writes env.json, then run.json and bench.txt
// without results.
func createFolder(dir string, o *Outcome) (*folder, error) {
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(dir)), 0o755); err != nil {
		return nil, fmt.Errorf("results folder: %w", err)
	}
	// Mkdir is atomic: it fails for the second of two runs that create the folder.
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("results folder %s: %w", dir, ErrExists)
	} else if err != nil {
		return nil, fmt.Errorf("results folder: %w", err)
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	f := &folder{dir: dir, lock: lock, withheld: map[string][]Round{}}
	return f, f.begin(o)
}

// openFolder opens the folder of an interrupted run and returns its outcome.
func openFolder(dir string) (*folder, *Outcome, error) {
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, nil, err
	}
	f := &folder{dir: dir, lock: lock}
	o, err := Load(dir)
	if err == nil {
		f.withheld, err = readWithheld(dir)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.abandon())
	}
	return f, o, nil
}

// begin writes the files that exist from the start of a run.
func (f *folder) begin(o *Outcome) error {
	err := f.rewriteBench(o)
	if err == nil {
		err = o.Save(f.dir)
	}
	if err != nil {
		return errors.Join(err, f.abandon())
	}
	return nil
}

// abandon closes the folder and leaves its files unchanged.
func (f *folder) abandon() error {
	if f == nil {
		return nil
	}
	var err error
	if f.bench != nil {
		err, f.bench = f.bench.Close(), nil
	}
	if f.lock != nil {
		err, f.lock = errors.Join(err, f.lock.Close()), nil
	}
	return err
}

// cellPlayed writes the changes after the cell at [comparison][i] has finished a round
// or become invalid. wasShown reports whether bench.txt held its lines before. kept are
// its rounds, which the outcome may withhold.
func (f *folder) cellPlayed(o *Outcome, comparison, i int, wasShown bool, kept []Round) error {
	if f == nil {
		return nil
	}
	c := &o.Comparisons[comparison]
	result := &c.Cells[i]
	name := result.BenchName()
	withhold := len(kept) > 0 && len(result.Rounds) == 0
	_, had := f.withheld[name]
	var err error
	// At any moment the rounds are in run.json, in withheldFile, or in both.
	if withhold {
		f.withheld[name] = kept
		if err := f.writeWithheld(); err != nil {
			return err
		}
	}
	switch n := len(result.Rounds); {
	case n == 1 || n > 1 && wasShown:
		err = f.writer.Write(result.BenchName(), result.Rounds[n-1].Result, c.Latency)
	case wasShown != (n > 0):
		// Figures were withdrawn, or became valid again.
		err = f.rewriteBench(o)
	}
	err = errors.Join(err,
		f.writeLatency(comparison, i, result),
		writeJSON(filepath.Join(f.dir, RunFile), o))
	if err == nil && had && !withhold {
		delete(f.withheld, name)
		err = f.writeWithheld()
	}
	return err
}

// writeWithheld writes or removes withheldFile.
func (f *folder) writeWithheld() error {
	path := filepath.Join(f.dir, withheldFile)
	if len(f.withheld) == 0 {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return replaceFile(path, func(w io.Writer) error { return gob.NewEncoder(w).Encode(f.withheld) })
}

func readWithheld(dir string) (map[string][]Round, error) {
	withheld := map[string][]Round{}
	path := filepath.Join(dir, withheldFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return withheld, nil
	}
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(data)).Decode(&withheld)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	return withheld, nil
}

// rewriteBench replaces bench.txt with the rounds of the outcome, and keeps it open for
// appending.
func (f *folder) rewriteBench(o *Outcome) error {
	if f.bench != nil {
		if err := f.bench.Close(); err != nil {
			return err
		}
		f.bench = nil
	}
	path := filepath.Join(f.dir, BenchFile)
	file, err := createTemp(path)
	if err != nil {
		return err
	}
	w, err := writeBench(file, o)
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, file.Close(), os.Remove(file.Name()))
	}
	f.bench, f.writer = file, w
	return nil
}

// WriteBench writes the rounds of all cells as benchfmt: bench.txt.
func (o *Outcome) WriteBench(w io.Writer) error {
	_, err := writeBench(w, o)
	return err
}

func writeBench(w io.Writer, o *Outcome) (*stats.Writer, error) {
	out := stats.NewWriter(w, o.BenchConfig())
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			for _, r := range cl.Rounds {
				if err := out.Write(cl.BenchName(), r.Result, c.Latency); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

// writeLatency writes the cell's histograms: one interval per round and boundary,
// tagged with the boundary. It removes the file if the cell has no rounds.
func (f *folder) writeLatency(comparison, i int, result *CellResult) error {
	path := latencyFile(f.dir, comparison, i, result)
	if !measuredLatency(result) {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	// Not MkdirAll: it would recreate a results folder that was removed.
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return replaceFile(path, func(w io.Writer) error { return writeHlog(w, result) })
}

func writeHlog(w io.Writer, result *CellResult) error {
	var intervals []cell.Interval
	for _, r := range result.Rounds {
		for _, l := range r.Result.Latency {
			intervals = append(intervals, cell.Interval{
				Boundary: l.Boundary, Round: r.Round, Started: r.Started, Elapsed: r.Result.Elapsed, Quantiles: l.Quantiles,
			})
		}
	}
	if err := cell.WriteLog(w, result.BenchName(), intervals); err != nil {
		return fmt.Errorf("%s: %w", result.BenchName(), err)
	}
	return nil
}

// latencyFile is the path of the histograms of the cell at [comparison][i].
func latencyFile(dir string, comparison, i int, c *CellResult) string {
	return filepath.Join(dir, LatencyDir, fmt.Sprintf("%02d-%02d-%s.hlog", comparison+1, i+1, fileName(c.BenchName())))
}

func measuredLatency(c *CellResult) bool {
	return slices.ContainsFunc(c.Rounds, func(r Round) bool { return len(r.Result.Latency) > 0 })
}

// fileName turns a cell's name into a portable file name.
func fileName(name string) string {
	const longest = 120
	name = strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '=', c == '.':
			return c
		}
		return '_'
	}, name)
	return name[:min(len(name), longest)]
}

// close writes the final run.json and env.json. At the end of a complete run it
// discards the withheld rounds.
func (f *folder) close(o *Outcome) error {
	if f == nil {
		return nil
	}
	err := o.Save(f.dir)
	if err == nil && !o.Interrupted {
		clear(f.withheld)
		err = f.writeWithheld()
	}
	return errors.Join(err, f.abandon())
}

// Create writes a finished run into a new results folder, with the histograms of its
// rounds. The folder must not exist ([ErrExists]); missing parents are created.
// run.json is written last: a folder without it is incomplete.
func (o *Outcome) Create(dir string) error {
	o.Dir = dir
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(dir)), 0o755); err != nil {
		return fmt.Errorf("results folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("results folder %s: %w", dir, ErrExists)
	} else if err != nil {
		return fmt.Errorf("results folder: %w", err)
	}
	f := &folder{dir: dir}
	for i, c := range o.Comparisons {
		for j := range c.Cells {
			if err := f.writeLatency(i, j, &c.Cells[j]); err != nil {
				return err
			}
		}
	}
	if err := replaceFile(filepath.Join(dir, BenchFile), o.WriteBench); err != nil {
		return err
	}
	return o.Save(dir)
}

// Save rewrites run.json, env.json and experiment.yaml of an existing results folder,
// each atomically. Use it for results computed after the run, such as [Outcome].Knees.
// Other files stay unchanged.
func (o *Outcome) Save(dir string) error {
	err := errors.Join(writeJSON(filepath.Join(dir, EnvFile), o.Env), o.writeExperiment(dir))
	return errors.Join(err, writeJSON(filepath.Join(dir, RunFile), o))
}

// writeExperiment writes experiment.yaml if the outcome has an experiment.
func (o *Outcome) writeExperiment(dir string) error {
	if len(o.Experiment) == 0 {
		return nil
	}
	text, err := yaml.JSONToYAML(o.Experiment)
	if err != nil {
		return fmt.Errorf("experiment: %w", err)
	}
	return replaceFile(filepath.Join(dir, ExperimentFile), func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// WriteJSON writes the run in the format of run.json.
func (o *Outcome) WriteJSON(w io.Writer) error { return encodeJSON(w, o) }

func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func writeJSON(path string, v any) error {
	return replaceFile(path, func(w io.Writer) error { return encodeJSON(w, v) })
}

// ReplaceFile writes a file of a results folder atomically: it writes a hidden file in
// the same directory and renames it.
func ReplaceFile(path string, write func(io.Writer) error) error { return replaceFile(path, write) }

func replaceFile(path string, write func(io.Writer) error) error {
	file, err := createTemp(path)
	if err != nil {
		return err
	}
	err = errors.Join(write(file), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}

// createTemp creates the hidden file. Its name is fixed: a run has its folder to
// itself, so a kill leaves at most one such file.
func createTemp(path string) (*os.File, error) {
	return os.Create(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp"))
}

// ErrFormat is wrapped by the errors of [Load] for files in another format.
var ErrFormat = errors.New("not a run's file")

// Load reads a results folder: run.json, env.json, and the latency histograms from
// latency/*.hlog, per round and summed per cell. If such a file is missing, the
// quantiles lack their histograms. Load also reads a killed run; its Ended is nil.
func Load(dir string) (*Outcome, error) {
	var o Outcome
	if err := readJSON(filepath.Join(dir, RunFile), &o); err != nil {
		return nil, err
	}
	if o.Format != Format {
		return nil, fmt.Errorf("%s: %w: format %d, want %d", filepath.Join(dir, RunFile), ErrFormat, o.Format, Format)
	}
	o.Dir = dir
	var err error
	if o.Env, err = LoadEnv(dir); err != nil {
		return nil, err
	}
	for i := range o.Comparisons {
		for j := range o.Comparisons[i].Cells {
			if err := loadLatency(dir, i, j, &o.Comparisons[i].Cells[j]); err != nil {
				return nil, err
			}
		}
	}
	return &o, nil
}

// LoadEnv reads a results folder's env.json.
func LoadEnv(dir string) (Env, error) {
	var env Env
	err := readJSON(filepath.Join(dir, EnvFile), &env)
	return env, err
}

// loadLatency reads the histograms of a cell. The log may hold one round more than
// run.json, because it is written first.
func loadLatency(dir string, comparison, i int, c *CellResult) error {
	if !measuredLatency(c) {
		return nil
	}
	path := latencyFile(dir, comparison, i, c)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	intervals, err := cell.ReadLog(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	type place struct {
		round    int
		boundary cell.Boundary
	}
	read := map[place]cell.Quantiles{}
	for _, iv := range intervals {
		read[place{iv.Round, iv.Boundary}] = iv.Quantiles
	}
	for _, r := range c.Rounds {
		for k := range r.Result.Latency {
			l := &r.Result.Latency[k]
			q, ok := read[place{r.Round, l.Boundary}]
			if !ok || q.Count != l.Count {
				return fmt.Errorf("%s: %w: round %d of %s has %d values, not the %d that %s tells of",
					path, ErrFormat, r.Round, l.Boundary, q.Count, l.Count, RunFile)
			}
			l.Histogram = q.Histogram
		}
	}
	c.Latency = pool(c.Rounds)
	return nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	return nil
}
