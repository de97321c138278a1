// Package compare makes benchstat's tables of benchfmt files and results folders, and
// holds the regression gate.
//
//  1. [Open] finds the inputs: benchfmt files, or folders with a bench.txt, each with an
//     optional label.
//  2. [Build] projects each measurement to a table, a row and a column, by the
//     expressions of golang.org/x/perf/benchproc; golang.org/x/perf/benchmath computes
//     medians, intervals and tests.
//  3. [Tables.Text], [Tables.CSV], [Tables.Markdown] and [Tables.JSON] lay the tables
//     out. Text and CSV have benchstat's figures and form (golang.org/x/perf/cmd/benchstat).
//  4. The gate ([Judge]) decides whether a new run regressed; see gate.go.
//
// A results folder also says which cells are invalid and which guarantees differ. No
// difference is shown for either ([Tables.Refused] and the cells' warnings say why).
package compare

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"watchlab/bench/lab"
)

// The errors of an input.
var (
	// ErrInput is wrapped by the errors for inputs that cannot be read.
	ErrInput = errors.New("not a benchmark file or results folder")
	// ErrEmpty: nothing that was read passes the filter.
	ErrEmpty = errors.New("no benchmark to compare")
)

// Input is one column's worth of measurements, where columns are files.
type Input struct {
	Label string       // name of the column
	Path  string       // of the benchfmt file
	Run   *lab.Outcome // nil for a bare file
}

// Open finds the inputs. Each argument is a file in benchmark format, or a
// results folder, or label=path of either. Two that are called the same are told
// apart by #0, #1 and so on, unless they were called so by label: then they are
// one column, as benchstat has it.
//
// Errors wrap [ErrInput] and name the argument; nothing but run.json and
// env.json is read yet.
func Open(args []string) ([]Input, error) {
	inputs := make([]Input, 0, len(args))
	labelled := make([]bool, len(args))
	times := map[string]int{}
	for i, arg := range args {
		in := Input{Label: arg, Path: arg}
		info, err := os.Stat(arg)
		if label, path, ok := strings.Cut(arg, "="); ok && errors.Is(err, fs.ErrNotExist) {
			in.Label, in.Path, labelled[i] = label, path, true
			info, err = os.Stat(path)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInput, err)
		}
		if info.IsDir() {
			if in.Run, err = lab.Load(in.Path); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Path, err)
			}
			if !labelled[i] {
				in.Label = strings.TrimRight(arg, `/\`)
			}
			in.Path = filepath.Join(in.Path, lab.BenchFile)
		}
		if !labelled[i] {
			times[in.Label]++
		}
		inputs = append(inputs, in)
	}
	next := map[string]int{}
	for i := range inputs {
		if label := inputs[i].Label; !labelled[i] && times[label] > 1 {
			inputs[i].Label = fmt.Sprintf("%s#%d", label, next[label])
			next[label]++
		}
	}
	return inputs, nil
}
