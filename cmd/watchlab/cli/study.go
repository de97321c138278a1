package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"watchlab/bench/controller"
)

// study has what the verbs share that play to a PROGRAM: its command line, the results folder and the output.
type study[T any] struct {
	verb   string
	dir    string // of the results
	output outputFlag[T]
}

// add completes a verb and adds the flags.
func (s *study[T]) add(cmd *cobra.Command, text func(io.Writer, T) error) {
	s.verb = cmd.Use
	cmd.Use += " [flags] -- PROGRAM [ARGUMENTS]"
	cmd.Args = cobra.ArbitraryArgs
	cmd.Flags().StringVar(&s.dir, "out", "", "results folder to create (default results/DATE-COMMIT-"+s.verb+")")
	s.output.addText(cmd, "text", text)
}

// required requires a program.
func (s *study[T]) required(cmd *cobra.Command, args []string, example string) error {
	if n := cmd.ArgsLenAtDash(); n != 0 || len(args) == 0 {
		return usageError{fmt.Errorf("no program: it follows -- (watchlab %s -- %s)", s.verb, example)}
	}
	return nil
}

// options are those of a run in the results folder.
func (s *study[T]) options(cmd *cobra.Command) (controller.Options, error) {
	dir, err := newFolder(s.dir, s.verb)
	s.dir = dir
	stderr := cmd.ErrOrStderr()
	return controller.Options{
		Dir: dir, Stdin: cmd.InOrStdin(), Build: build(), Args: os.Args[1:],
		Notify:   func(text string) { warn(stderr, "%s", text) },
		Progress: func(p controller.Progress) { warn(stderr, "%s", p) },
	}, err
}

// conclude shows a result, and returns the error for the exit code. err is that of its run.
func (s *study[T]) conclude(cmd *cobra.Command, result T, interrupted, failed bool, err error) error {
	if err := errors.Join(err, s.output.show(cmd.OutOrStdout(), result)); err != nil {
		return err
	}
	warn(cmd.ErrOrStderr(), "results are in %s", s.dir)
	switch {
	case interrupted:
		return errInterrupted
	case failed:
		return errInvalid
	}
	return nil
}
