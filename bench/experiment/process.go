package experiment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/loadgen/manifest"
)

// CellVerb is the verb of the command that plays one cell with [ServeCell].
const CellVerb = "cell"

// resultFile is the descriptor of the result's pipe. Any code may write to standard output.
const resultFile = 3

const freshDelay = 30 * time.Second // grace period of an interrupted process

// PlayInProcess plays a cell in a new process of this program, which runs [CellVerb].
func (s Spec) PlayInProcess(ctx context.Context, name string) (cell.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return cell.Result{}, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return cell.Result{}, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, CellVerb, name)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{to}, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = freshDelay
	// The pipe closes when this process ends, even if it is killed.
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return cell.Result{}, errors.Join(err, from.Close())
	}
	_, wrote := stdin.Write(s.JSON())
	res, err := lab.ReadResult(from)
	ended := errors.Join(wrote, stdin.Close(), cmd.Wait(), from.Close())
	if err == nil && ended == nil {
		return res, nil
	}
	// A dump of goroutines follows a blank line. Verdicts are published, and need none.
	if text, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n\n"); text != "" {
		ended = errors.Join(ended, fmt.Errorf("it said: %s", text))
	}
	return cell.Result{}, errors.Join(err, ended)
}

// ServeCell plays a cell of the experiment on standard input for [Spec.PlayInProcess]. It stops at the end of
// standard input: the parent has ended. The error of the experiment is a [*manifest.Error].
func ServeCell(ctx context.Context, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var spec Spec
	in := json.NewDecoder(os.Stdin)
	in.DisallowUnknownFields()
	if err := in.Decode(&spec); err != nil {
		return &manifest.Error{File: manifest.StdinName, Err: err}
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // However it ends, it has.
		cancel()
	}()
	p, err := New(spec)
	if err != nil {
		return &manifest.Error{File: manifest.StdinName, Err: err}
	}
	res, err := lab.PlayCell(ctx, p.Comparisons, name, &cell.Recorder{Alone: true})
	return lab.WriteResult(os.NewFile(resultFile, "result"), res, err)
}
