package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"watchlab/bench/experiment"
)

// nextProcess is the error of a command that a new process continues with these arguments.
type nextProcess struct{ args []string }

func (nextProcess) Error() string { return "the next process continues" }

// continued returns err; for a paused run the arguments that resume it.
func continued(cmd *cobra.Command, dir string, err error) error {
	if !errors.Is(err, errPaused) {
		return err
	}
	return nextProcess{resumed(cmd, dir)}
}

// resumed returns the arguments that resume a run, with the flags that resuming allows.
func resumed(cmd *cobra.Command, dir string) []string {
	next := []string{cmd.Name(), "--resume", dir}
	all := cmd.Name() == "reproduce" // resuming takes all arguments again
	if all {
		next = append(next, cmd.Flags().Args()...)
	}
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		switch fl.Name {
		case "resume", "out", "experiment":
		default:
			if all || experiment.Path(fl.Name) == "" {
				next = append(next, "--"+fl.Name+"="+fl.Value.String())
			}
		}
	})
	return next
}

// newProcess replaces this process by one that continues the command. Process id, terminal and parent stay. It
// returns only if it fails.
func newProcess(_ context.Context, args []string, _, stderr io.Writer) int {
	self, err := os.Executable()
	if err == nil {
		err = syscall.Exec(self, append(os.Args[:1:1], args...), os.Environ())
	}
	warn(stderr, "%v", err)
	return exitInvalid
}

// newCell returns the hidden command that --memory runs for each play of a cell.
func newCell() *cobra.Command {
	return &cobra.Command{
		Use:    experiment.CellVerb + " NAME",
		Short:  "Play one cell of the experiment on standard input",
		Hidden: true,
		Args:   takes(1, 1, "a cell's name, and a Spec on standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return badField(experiment.ServeCell(cmd.Context(), args[0]))
		},
	}
}
