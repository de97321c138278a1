package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/yaml"

	"watchlab/bench/cell"
	"watchlab/bench/stats"
)

// Create writes the run into a new results folder, with the histograms of its rounds.
// The folder must not exist ([ErrExists]); missing parents are created. It appears with all its
// files, by rename: a crash before leaves only a hidden folder beside it.
func (o *Outcome) Create(dir string) error {
	clean := filepath.Clean(dir)
	if _, err := os.Lstat(clean); err == nil {
		return fmt.Errorf("results folder %s: %w", dir, ErrExists)
	}
	// A random suffix avoids reuse of a killed process's folder.
	o.Dir = filepath.Join(filepath.Dir(clean), fmt.Sprintf(".%s-%x.tmp", filepath.Base(clean), rand.Uint64()))
	err := o.fill()
	if err == nil {
		err = o.disk().Rename(o.Dir, clean)
	}
	if err == nil {
		err = o.disk().Sync(filepath.Dir(clean))
	} else {
		_ = o.disk().Remove(o.Dir) // The first error counts.
	}
	o.Dir = dir
	switch {
	case errors.Is(err, fs.ErrExist): // Another run created it meanwhile.
		return fmt.Errorf("results folder %s: %w", dir, ErrExists)
	case err != nil:
		return fmt.Errorf("results folder: %w", err)
	}
	return nil
}

// fill creates Dir with all files.
func (o *Outcome) fill() error {
	if err := makeDir(o.disk(), o.Dir); err != nil {
		return err
	}
	if err := o.eachCell(o.writeLatency); err != nil {
		return err
	}
	return o.Save(o.Dir)
}

// Save rewrites bench.txt, env.json, experiment.yaml and run.json of an existing results folder,
// each atomically. Use it for results computed after the run, such as [Outcome].Knees.
// Other files stay unchanged.
func (o *Outcome) Save(dir string) error {
	err := o.ReplaceFile(filepath.Join(dir, EnvFile), func(w io.Writer) error { return EncodeJSON(w, o.Env) })
	if err == nil && len(o.Experiment) > 0 {
		err = o.ReplaceFile(filepath.Join(dir, ExperimentFile), func(w io.Writer) error {
			text, err := yaml.JSONToYAML(o.Experiment)
			if err == nil {
				_, err = w.Write(text)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	return o.saveRounds(dir)
}

// saveRounds rewrites the files that change with each round.
func (o *Outcome) saveRounds(dir string) error {
	if err := o.ReplaceFile(filepath.Join(dir, BenchFile), o.WriteBench); err != nil {
		return err
	}
	return o.ReplaceFile(filepath.Join(dir, RunFile), func(w io.Writer) error { return EncodeJSON(w, o) })
}

// saveCell writes the changes after a round of the cell at [comparison][i], or its failure.
func (o *Outcome) saveCell(comparison, i int) error {
	if err := o.writeLatency(comparison, i); err != nil {
		return err
	}
	if err := o.saveRounds(o.Dir); err != nil {
		return err
	}
	return o.removeLatency(comparison, i)
}

// close drops the withheld rounds at the end of a complete run, and writes the final
// run.json and env.json.
func (o *Outcome) close() error {
	if !o.Interrupted && !o.Paused {
		for _, cl := range o.Cells() {
			cl.Withheld = nil
		}
	}
	if o.Dir == "" {
		return nil
	}
	if err := o.Save(o.Dir); err != nil {
		return err
	}
	return o.eachCell(o.removeLatency)
}

// eachCell calls f with the indexes of each comparison and cell, until an error.
func (o *Outcome) eachCell(f func(comparison, i int) error) error {
	for i, c := range o.Comparisons {
		for j := range c.Cells {
			if err := f(i, j); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteBench writes all cells as benchfmt, a line for each replicate ([CellResult.Replicates]): bench.txt.
func (o *Outcome) WriteBench(w io.Writer) error {
	out := stats.NewWriter(w, o.BenchConfig())
	for _, cl := range o.Cells() {
		out.Describe(cl.Class, string(cl.Verdict.Status))
		for _, rounds := range cl.Replicates() {
			if err := out.Write(cl.BenchName(), results(rounds)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// EncodeJSON writes a value as indented JSON, with <, > and & as they are.
func EncodeJSON[T any](w io.Writer, v T) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (o *Outcome) latencyFile(comparison, i int) string {
	name := FileName(o.Comparisons[comparison].Cells[i].BenchName())
	return filepath.Join(o.Dir, LatencyDir, fmt.Sprintf("%02d-%02d-%s.hlog", comparison+1, i+1, name))
}

// writeLatency writes the cell's histograms: one interval per round and boundary,
// tagged with the boundary. It comes before run.json, which may not refer to a missing round.
func (o *Outcome) writeLatency(comparison, i int) error {
	c, path := &o.Comparisons[comparison].Cells[i], o.latencyFile(comparison, i)
	var intervals []cell.Interval
	for _, r := range c.played() {
		for _, l := range r.Result.Latency {
			intervals = append(intervals, cell.Interval{Boundary: l.Boundary, Started: r.Started, Elapsed: r.Result.Elapsed, Histogram: l.Histogram})
		}
	}
	if len(intervals) == 0 {
		return nil
	}
	// Not MakeDir: it would recreate a results folder that was removed.
	switch err := o.disk().Mkdir(filepath.Dir(path)); {
	case err == nil:
		if err := o.disk().Sync(o.Dir); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrExist):
		return err
	}
	return o.ReplaceFile(path, func(w io.Writer) error { return cell.WriteLog(w, c.BenchName(), intervals) })
}

// removeLatency removes the histograms of a cell without rounds. It comes after run.json: a run
// whose rounds lack their histograms cannot be resumed.
func (o *Outcome) removeLatency(comparison, i int) error {
	if len(o.Comparisons[comparison].Cells[i].played()) > 0 {
		return nil
	}
	return o.disk().Remove(o.latencyFile(comparison, i))
}

// ErrFormat is wrapped by the errors of [Load] for files in another format.
var ErrFormat = errors.New("not a run's file")

// Load reads a results folder: run.json, env.json, and the latency histograms from
// latency/*.hlog, per round and summed per cell. If such a file is missing, the
// quantiles lack their histograms. Load also reads a killed run; its Ended is nil.
func Load(dir string) (*Outcome, error) {
	o := Outcome{Dir: dir}
	path := filepath.Join(dir, RunFile)
	if err := readJSON(path, &o); err != nil {
		return nil, err
	}
	if o.Format != Format {
		return nil, fmt.Errorf("%s: %w: format %d, want %d", path, ErrFormat, o.Format, Format)
	}
	if err := readJSON(filepath.Join(dir, EnvFile), &o.Env); err != nil {
		return nil, err
	}
	if err := o.eachCell(o.readLatency); err != nil {
		return nil, err
	}
	return &o, nil
}

// readLatency reads the histograms of a cell. The log may hold one round more than
// run.json, because it is written first.
func (o *Outcome) readLatency(comparison, i int) error {
	c, path := &o.Comparisons[comparison].Cells[i], o.latencyFile(comparison, i)
	rounds := c.played()
	if len(rounds) == 0 {
		return nil
	}
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	logs, err := cell.ReadLog(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	for _, r := range rounds {
		for k := range r.Result.Latency {
			l := &r.Result.Latency[k]
			log := logs[l.Boundary]
			if len(log) == 0 || log[0].Count != l.Count {
				return fmt.Errorf("%s: %w: round %d of %s is not that of %s", path, ErrFormat, r.Round, l.Boundary, RunFile)
			}
			l.Histogram, logs[l.Boundary] = log[0].Histogram, log[1:]
		}
	}
	if len(c.Rounds) > 0 {
		c.Latency = pool(results(c.Rounds))
	}
	return nil
}

func readJSON(path string, into any) error {
	data, err := readFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w: %w", path, ErrFormat, err)
	}
	return nil
}

// FreeFolder returns root/<date>-<commit>-<name>, with the suffix -2 and so on if it exists.
func FreeFolder(root string, b Build, name string) string {
	dir := filepath.Join(root, fmt.Sprintf("%s-%s-%s", time.Now().Format(time.DateOnly), b.Revision(), name))
	for n, free := 2, dir; ; n++ {
		if _, err := os.Lstat(free); err != nil {
			return free
		}
		free = fmt.Sprintf("%s-%d", dir, n)
	}
}
