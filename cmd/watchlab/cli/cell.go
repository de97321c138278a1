package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// cellVerb is the hidden command that --memory runs for each play of a cell.
const cellVerb = "cell"

// resultFile is the descriptor on which such a process hands over what came of it:
// the first after the standard three. Standard output is anybody's.
const resultFile = 3

// newCell makes the hidden command. It plans what the other command's arguments
// say, plays one cell of it, and hands it over. It gives up when its standard input
// ends: then nobody waits for it any more.
func newCell() *cobra.Command {
	return &cobra.Command{
		Use:    cellVerb + " NAME COMMAND ARG…",
		Short:  "Play one cell of another command, for --memory",
		Hidden: true,

		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{errors.New("cell takes a cell's name and a command; it is what --memory runs")}
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			go func() {
				_, _ = io.Copy(io.Discard, os.Stdin)
				cancel()
			}()
			other := newRoot(args[1:])
			other.SetArgs(args[1:])
			other.SetOut(cmd.OutOrStdout())
			other.SetErr(cmd.ErrOrStderr())
			return other.ExecuteContext(mode{cell: args[0], to: os.NewFile(resultFile, "result")}.in(ctx))
		},
	}
}

// playOne plays the one cell that was asked for.
func (m mode) playOne(ctx context.Context, comparisons []lab.Comparison) error {
	result, err := lab.PlayCell(ctx, comparisons, m.cell, cell.Alone())
	return lab.WriteResult(m.to, result, err)
}

// fresh plays a cell in a process of its own.
func (p *plan) fresh(ctx context.Context, name string) (cell.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return cell.Result{}, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return cell.Result{}, err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, slices.Concat([]string{cellVerb, name}, p.args)...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{to}, &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = freshDelay
	// The process sees the other end close if this one is killed.
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err := errors.Join(err, to.Close()); err != nil {
		return cell.Result{}, errors.Join(err, from.Close())
	}
	result, err := lab.ReadResult(from)
	ended := errors.Join(stdin.Close(), cmd.Wait(), from.Close())
	if err == nil && ended == nil {
		return result, nil
	}
	if said := strings.TrimSpace(stderr.String()); said != "" {
		ended = errors.Join(ended, fmt.Errorf("it said: %s", said))
	}
	return cell.Result{}, errors.Join(err, ended)
}

// freshDelay is how long a process has to end after it was asked to.
const freshDelay = 30 * time.Second
