package lab

import (
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

	"watchlab/bench/stats"
)

// Create writes the run into a new results folder.
// The folder must not exist ([ErrExists]); missing parents are created. It appears with all its
// files, by rename: a crash before leaves only a hidden folder beside it.
func (o *Outcome) Create(dir string) error {
	clean := filepath.Clean(dir)
	if _, err := os.Lstat(clean); err == nil {
		return fmt.Errorf("results folder %s: %w", dir, ErrExists)
	}
	// A random suffix avoids reuse of a killed process's folder.
	o.Dir = filepath.Join(filepath.Dir(clean), fmt.Sprintf(".%s-%x.tmp", filepath.Base(clean), rand.Uint64()))
	err := makeDir(o.disk(), o.Dir)
	if err == nil {
		err = o.Save(o.Dir)
	}
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
	return o.Save(o.Dir)
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

// ErrFormat is wrapped by the errors of [Load] for files in another format.
var ErrFormat = errors.New("not a run's file")

// Load reads a results folder: run.json and env.json. Load also reads a killed run; its Ended is nil.
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
	return &o, nil
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
