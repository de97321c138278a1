package lab

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"

	"watchlab/bench/cell"
)

// PlayCell plays one cell of the comparisons once, by its name as benchmarks have
// it: set up, run with the recorder, checked and torn down. It is what a process
// does that [Options].Fresh started. The error is the workload's, or wraps
// [ErrOptions] where there is no such cell.
func PlayCell(ctx context.Context, comparisons []Comparison, name string, rec *cell.Recorder) (cell.Result, error) {
	for _, c := range comparisons {
		for _, cl := range c.Cells {
			if cl.BenchName() == name {
				return play(ctx, cl, rec, nil)
			}
		}
	}
	return cell.Result{}, invalid("there is no cell %s", name)
}

// handover is what a process that played a cell tells the one that asked for it.
type handover struct {
	Result cell.Result
	Err    string
	Broken []Cause
}

// WriteResult hands over what came of a cell that was played in this process, for
// [ReadResult] in another one of the same program.
func WriteResult(w io.Writer, result cell.Result, err error) error {
	h := handover{Result: result}
	if err != nil {
		h.Err = err.Error()
		for _, inv := range invariants {
			if errors.Is(err, inv.err) {
				h.Broken = append(h.Broken, inv.cause)
			}
		}
	}
	return gob.NewEncoder(w).Encode(h)
}

// ReadResult reads what [WriteResult] wrote. The error is the one that was handed
// over, and wraps the same invariants; or it says that nothing whole came.
func ReadResult(r io.Reader) (cell.Result, error) {
	var h handover
	if err := gob.NewDecoder(r).Decode(&h); err != nil {
		return cell.Result{}, fmt.Errorf("the process that played it handed nothing over: %w", err)
	}
	if h.Err == "" {
		return h.Result, nil
	}
	told := toldError{text: h.Err}
	for _, inv := range invariants {
		for _, c := range h.Broken {
			if c == inv.cause {
				told.broken = append(told.broken, inv.err)
			}
		}
	}
	return cell.Result{}, told
}

// toldError is an error of another process.
type toldError struct {
	text   string
	broken []error
}

func (e toldError) Error() string   { return e.text }
func (e toldError) Unwrap() []error { return e.broken }
