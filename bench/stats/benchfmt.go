package stats

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchunit"

	"watchlab/bench/cell"
)

// ErrFormat is wrapped by the errors for a file or a name that is not benchfmt.
var ErrFormat = errors.New("not in benchmark format")

// Config is the file configuration at the head of a file. Empty values are omitted.
type Config struct {
	GOOS, GOARCH, Pkg, CPU string // as in `go test`
	Commit                 string // of the measuring program, with the suffix -dirty if it was modified
	GOMAXPROCS             int    // suffix of every name, as in `go test`
	Shares                 string // number of merged shares, such as "3 of 4 shares"; empty for one process
	Host                   string // "ignored" if verdicts omit steal and throttling; else empty
}

// Writer writes measurements as benchfmt, one per line.
type Writer struct {
	cfg       Config
	out       *benchfmt.Writer
	file      []benchfmt.Config
	cell      []benchfmt.Config // see Describe
	described map[string]bool   // units whose metadata line is written
}

// NewWriter returns a writer to w. It does not write yet.
func NewWriter(w io.Writer, cfg Config) *Writer {
	out := &Writer{cfg: cfg, out: benchfmt.NewWriter(w), described: make(map[string]bool)}
	for _, kv := range [][2]string{
		{"goos", cfg.GOOS}, {"goarch", cfg.GOARCH}, {"pkg", cfg.Pkg}, {"cpu", cfg.CPU}, {"commit", cfg.Commit},
		{"shares", cfg.Shares}, {"host", cfg.Host},
	} {
		if value := strings.Join(strings.Fields(kv[1]), " "); value != "" {
			out.file = append(out.file, benchfmt.Config{Key: kv[0], Value: []byte(value), File: true})
		}
	}
	return out
}

// Describe sets the keys "guarantees" and "verdict" of the following lines. benchstat separates
// benchmarks that differ in a key. Empty values are omitted.
func (w *Writer) Describe(guarantees, verdict string) {
	w.cell = nil
	for _, kv := range [][2]string{{guaranteesKey, guarantees}, {verdictKey, verdict}} {
		if kv[1] != "" {
			w.cell = append(w.cell, benchfmt.Config{Key: kv[0], Value: []byte(kv[1]), File: true})
		}
	}
}

const guaranteesKey, verdictKey = "guarantees", "verdict"

// Write writes one replicate: a round, or the rounds of one process ([Replicate]). The name has
// neither "Benchmark" nor the GOMAXPROCS suffix, such as "DeltaFIFO/impl=cond", and must pass
// [CheckName]. Iterations are the events.
func (w *Writer) Write(name string, rounds ...cell.Result) error {
	iterations := 0
	for _, r := range rounds {
		iterations += int(min(r.EventsIn, math.MaxInt))
	}
	return w.write(name, iterations, w.cell, Replicate(rounds), Better)
}

// WriteValues writes a replicate of another kind: its values with their units, of which less is better. The
// name is as in [Writer.Write].
func (w *Writer) WriteValues(name string, iterations int, values []Value) error {
	return w.write(name, iterations, nil, values, func(string) Direction { return Lower })
}

// write writes a line, and before it the metadata of its new units.
func (w *Writer) write(name string, iterations int, config []benchfmt.Config, values []Value, better func(unit string) Direction) error {
	if err := CheckName(name); err != nil {
		return err
	}
	// `go test` omits the suffix -1. It is written nevertheless if the name itself ends like a suffix.
	if procs := w.cfg.GOMAXPROCS; procs > 1 || procs == 1 && procsLike.MatchString(name) {
		name += fmt.Sprintf("-%d", procs)
	}
	res := &benchfmt.Result{Config: slices.Concat(w.file, config), Name: benchfmt.Name(name), Iters: iterations}
	for _, v := range values {
		res.Values = append(res.Values, benchfmt.Value{Value: v.Value, Unit: v.Unit})
		direction := better(v.Unit)
		if w.described[v.Unit] || direction == Unknown {
			continue
		}
		w.described[v.Unit] = true
		_, tidy := benchunit.Tidy(1, v.Unit)
		meta := &benchfmt.UnitMetadata{
			UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: tidy, Key: "better"}, OrigUnit: v.Unit, Value: string(direction),
		}
		if err := w.out.Write(meta); err != nil {
			return err
		}
	}
	return w.out.Write(res)
}

var nameForm = regexp.MustCompile(`^\p{Lu}[^\s/=-]*(/[^\s/=]+=[^\s/=]+)*$`)

// CheckName returns an error that wraps [ErrFormat] if a benchmark name cannot be read
// back. A name starts with a capital letter. Its parts are key=value without spaces,
// slashes or further equals signs.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("benchmark name %q: %w (want Name/key=value/key=value, without spaces or slashes in a value)", name, ErrFormat)
	}
	return nil
}

var procsLike = regexp.MustCompile(`-[0-9]+$`)

// File is the content of a benchfmt file.
type File struct {
	Config  map[string]string  // file configuration at the end of the file, such as "goos"
	Names   []string           // without the GOMAXPROCS suffix, in the order of appearance
	Samples map[string]Samples // by name, with units as written
	// Guarantees is the key of that name, by name of the benchmark (see [Writer.Describe]).
	Guarantees map[string]string
	full       map[string]string // package and full name, by name
}

// Read reads a benchfmt file, with or without a byte order mark. fileName is used in errors, which wrap
// [ErrFormat] and name the first invalid line.
func Read(r io.Reader, fileName string) (*File, error) {
	text := bufio.NewReader(r)
	if mark, _ := text.Peek(3); string(mark) == "\ufeff" {
		_, _ = text.Discard(3) // It would hide the first benchmark.
	}
	f := &File{Config: map[string]string{}, Samples: map[string]Samples{}, Guarantees: map[string]string{}, full: map[string]string{}}
	in := benchfmt.NewReader(text, fileName)
	for in.Scan() {
		switch rec := in.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("%w: %w", ErrFormat, rec)
		case *benchfmt.Result:
			if err := checkFinite(rec); err != nil {
				return nil, err
			}
			if err := f.add(rec); err != nil {
				return nil, err
			}
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", fileName, err)
	}
	return f, nil
}

// checkFinite returns an error that wraps [ErrFormat] and names the line if a value is NaN or
// infinite. The tests of golang.org/x/perf/benchmath do not end for NaN.
func checkFinite(rec *benchfmt.Result) error {
	for _, v := range rec.Values {
		if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			file, line := rec.Pos()
			return fmt.Errorf("%w: %s:%d: %v %s", ErrFormat, file, line, v.Value, cmp.Or(v.OrigUnit, v.Unit))
		}
	}
	return nil
}

// bareName returns a benchmark's name without the GOMAXPROCS suffix.
func bareName(full benchfmt.Name) string {
	base, parts := full.Parts()
	var name strings.Builder
	name.Write(base)
	for _, p := range parts {
		if p[0] == '/' {
			name.Write(p)
		}
	}
	return name.String()
}

func (f *File) add(rec *benchfmt.Result) error {
	key := bareName(rec.Name)
	full := rec.GetConfig("pkg") + " " + string(rec.Name)
	if had, ok := f.full[key]; ok && had != full {
		file, line := rec.Pos()
		return fmt.Errorf("%w: %s:%d: %s and %s are two benchmarks of one name; select one (benchstat compares both)", ErrFormat, file, line, strings.TrimSpace(had), strings.TrimSpace(full))
	}
	f.full[key], f.Guarantees[key] = full, rec.GetConfig(guaranteesKey)
	samples, ok := f.Samples[key]
	if !ok {
		samples = make(Samples)
		f.Samples[key] = samples
		f.Names = append(f.Names, key)
	}
	for _, v := range rec.Values {
		unit, value := v.Unit, v.Value
		if v.OrigUnit != "" {
			unit, value = v.OrigUnit, v.OrigValue
		}
		samples[unit] = append(samples[unit], value)
	}
	for _, c := range rec.Config {
		if c.File && c.Key != guaranteesKey && c.Key != verdictKey {
			f.Config[c.Key] = string(c.Value)
		}
	}
	return nil
}
