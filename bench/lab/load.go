package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"watchlab/bench/cell"
)

// ErrFormat is wrapped by the errors of [Load] for files that are not what a
// run writes.
var ErrFormat = errors.New("not a run's file")

// Load reads a results folder: run.json, env.json, and the latencies' histograms
// from latency/*.hlog, of each round and, added up, of each cell. Where such a
// file is missing, the quantiles are there without their histograms. A run that
// was killed can be loaded too; its Ended is nil.
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

// loadLatency reads the histograms of a cell back. A log may hold a round more
// than run.json does, as it is written first.
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
