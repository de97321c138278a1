package cli

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

	"github.com/spf13/cobra"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
)

const cellVerb = "cell" // hidden command that --memory runs for each play of a cell

// resultFile is the descriptor of the result's pipe. Any code may write to standard output.
const resultFile = 3

const freshDelay = 30 * time.Second // grace period of an interrupted cell process

type result = cell.Result

// newCell returns the command. It stops at the end of standard input: the parent has ended.
func newCell() *cobra.Command {
	return &cobra.Command{
		Use:    cellVerb + " NAME",
		Short:  "Play one cell of the experiment on standard input",
		Hidden: true,
		Args:   takes(1, 1, "a cell's name, and a Spec on standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			var spec experiment.Spec
			in := json.NewDecoder(os.Stdin)
			in.DisallowUnknownFields()
			if err := in.Decode(&spec); err != nil {
				return usageError{fmt.Errorf("standard input: %w", err)}
			}
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin) // However it ends, it has.
				cancel()
			}()
			p, err := experiment.New(spec)
			if err != nil {
				return usageError{err}
			}
			res, err := lab.PlayCell(ctx, p.Comparisons, args[0], &cell.Recorder{Alone: true})
			return lab.WriteResult(os.NewFile(resultFile, "result"), res, err)
		},
	}
}

// playFresh plays a cell of a Spec in a new process.
func playFresh(ctx context.Context, spec experiment.Spec, name string) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return result{}, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, cellVerb, name)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{to}, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = freshDelay
	// The pipe closes when this process ends, even if it is killed.
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return result{}, errors.Join(err, from.Close())
	}
	_, wrote := stdin.Write(spec.JSON())
	res, err := lab.ReadResult(from)
	ended := errors.Join(wrote, stdin.Close(), cmd.Wait(), from.Close())
	if err == nil && ended == nil {
		return res, nil
	}
	// A dump of goroutines follows a blank line. Verdicts are published, and need none.
	if text, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n\n"); text != "" {
		ended = errors.Join(ended, fmt.Errorf("it said: %s", text))
	}
	return result{}, errors.Join(err, ended)
}
