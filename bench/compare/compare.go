// Package compare builds benchstat's tables from benchfmt files and results folders,
// and contains the regression gate.
//
//  1. [Open] finds the inputs: benchfmt files, or folders with a bench.txt, each with
//     an optional label.
//  2. [Build] projects each measurement to a table, a row and a column, by the
//     expressions of golang.org/x/perf/benchproc; golang.org/x/perf/benchmath computes
//     medians, intervals and tests.
//  3. [Tables.Text], [Tables.CSV], [Tables.Markdown] and [Tables.JSON] write the
//     tables. Text and CSV have the figures and the form of
//     golang.org/x/perf/cmd/benchstat.
//  4. The gate ([Gate]) decides whether a new run regressed; see gate.go.
//
// A results folder also holds verdicts and guarantees. Build shows no difference for an invalid
// cell or for unequal guarantees. [Tables.Refused] and the warnings of the cells give the reasons.
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

// The errors of [Open] and [Build].
var (
	// ErrInput is wrapped by the errors for unreadable inputs.
	ErrInput = errors.New("not a benchmark file or results folder")
	// ErrEmpty is wrapped if no measurement passes the filter.
	ErrEmpty = errors.New("no benchmark to compare")
)

// Input is one benchfmt file, with its results folder if it has one.
type Input struct {
	Label string       // name of the column if columns are files
	Path  string       // of the benchfmt file
	Run   *lab.Outcome // of the results folder; nil for a bare file
}

func oneProcess(names []string) string {
	return "one process played all rounds of " + strings.Join(names, " and of ") +
		": no interval contains what differs between processes (run --processes)"
}

// Open finds the inputs. Each argument is a benchfmt file, a results folder, or
// label=path of either. Inputs with equal names get the suffixes #0, #1 and so on.
// Inputs with equal explicit labels form one column, as in benchstat.
//
// Errors wrap [ErrInput] and name the argument. Open reads only run.json and env.json.
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
			bench := filepath.Join(in.Path, lab.BenchFile)
			if in.Run, err = lab.Load(in.Path); err != nil {
				// A results folder of another verb, such as controller, has the benchmark file alone.
				if _, missing := os.Stat(bench); missing != nil || !errors.Is(err, fs.ErrNotExist) {
					return nil, fmt.Errorf("%w: %s: %w", ErrInput, in.Path, err)
				}
				in.Run = nil
			}
			if !labelled[i] {
				in.Label = strings.TrimRight(arg, `/\`)
			}
			in.Path = bench
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
