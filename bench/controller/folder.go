package controller

import (
	"bufio"
	"compress/gzip"
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

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// The files of a results folder. plays/NN-PROGRAM-PLAN has, for each play, the log of each replica, and in
// JSON lines its requests and the changes of the server.
const (
	SpecFile     = "controller.yaml"
	ResultFile   = "result.json"
	BenchFile    = lab.BenchFile
	EnvFile      = lab.EnvFile
	JUnitFile    = "junit.xml"
	requestsFile = "requests.jsonl.gz"
	changesFile  = "changes.jsonl.gz"
	playsDir     = "plays"
)

// create creates the results folder and writes the Spec.
func (r *runner) create() error {
	if err := lab.MakeDir(r.Dir); errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("results folder %s: %w", r.Dir, lab.ErrExists)
	} else if err != nil {
		return fmt.Errorf("results folder: %w", err)
	}
	return file(r.Dir, SpecFile, func(w io.Writer) error {
		text, err := yaml.Marshal(r.result.Spec)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
}

func file(dir, name string, write func(io.Writer) error) error {
	return lab.ReplaceFile(filepath.Join(dir, name), write)
}

// save writes the result so far.
func (r *runner) save() error {
	o := r.result
	return errors.Join(
		file(r.Dir, EnvFile, func(w io.Writer) error { return lab.EncodeJSON(w, o.Env) }),
		file(r.Dir, BenchFile, o.WriteBench),
		file(r.Dir, JUnitFile, o.WriteJUnit),
		file(r.Dir, ResultFile, func(w io.Writer) error { return lab.EncodeJSON(w, o) }),
	)
}

// ReadResult reads result.json of a results folder.
func ReadResult(dir string) (*Result, error) {
	data, err := os.ReadFile(filepath.Join(dir, ResultFile))
	if err != nil {
		return nil, err
	}
	var o Result
	if err := json.Unmarshal(data, &o); err != nil {
		return nil, fmt.Errorf("%s: %w", ResultFile, err)
	}
	return &o, nil
}

func benchWriter(w io.Writer, env lab.Env) *stats.Writer {
	return stats.NewWriter(w, stats.Config{GOOS: env.GOOS, GOARCH: env.GOARCH, Pkg: "watchlab/bench/controller", CPU: env.CPU, Commit: env.Revision()})
}

// WriteBench writes a benchmark line for each play.
func (o *Result) WriteBench(w io.Writer) error {
	out := benchWriter(w, o.Env)
	for i := range o.Plays {
		p := &o.Plays[i]
		if p.Explored() {
			continue // The next run has other plans.
		}
		var values []stats.Value
		for _, u := range Units {
			if v, ok := p.Figures[u.Name]; ok {
				values = append(values, stats.Value{Unit: u.Name, Value: v})
			}
		}
		name := fmt.Sprintf("Controller/impl=%s/storm=%s/faults=%s", p.Program, o.Spec.Played(), fileName(p.Plan))
		if err := out.WriteValues(name, 1, values); err != nil {
			return err
		}
	}
	return nil
}

// Played names storm and workload.
func (s Spec) Played() string {
	names := slices.DeleteFunc([]string{s.Storm.Name, s.Workload}, func(name string) bool { return name == "" })
	for i := range names {
		names[i] = filepath.Base(names[i])
	}
	return strings.Join(names, "+")
}

// saveRecords writes the requests and the changes of a play.
func (p *Play) saveRecords(dir string) error {
	changes := slices.Clone(p.Changes)
	for i := range changes {
		changes[i].Object, changes[i].Before = nil, nil // They may hold secrets.
	}
	return errors.Join(writeLines(filepath.Join(dir, requestsFile), p.Accesses), writeLines(filepath.Join(dir, changesFile), changes))
}

// writeLines writes JSON lines in gzip.
func writeLines[T any](path string, lines []T) error {
	return lab.ReplaceFile(path, func(w io.Writer) error {
		zip := gzip.NewWriter(w)
		buffered := bufio.NewWriter(zip)
		enc := json.NewEncoder(buffered)
		for i := range lines {
			if err := enc.Encode(&lines[i]); err != nil {
				return err
			}
		}
		return errors.Join(buffered.Flush(), zip.Close())
	})
}
