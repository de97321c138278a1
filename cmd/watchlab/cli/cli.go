// Package cli is the watchlab command: one file for each verb. A verb fills a Spec and
// makes one call.
//
// [Main] is public API, like impls/…: a program of another module registers its own
// variants and calls Main. Every verb then knows these variants.
//
//	func main() {
//		deltafifo.Register(mine)
//		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
//	}
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"watchlab/bench/controller"
	"watchlab/bench/controller/program"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/source"
)

// Exit codes.
const (
	exitOK          = 0   // done; every verdict is valid, or noisy with a reason
	exitInvalid     = 1   // a cell broke an invariant, or the run failed
	exitUsage       = 2   // bad input; nothing was run or written
	exitCannotTell  = 3   // compare, gate: the rounds cannot tell; controller: nothing could be judged
	exitInterrupted = 130 // what shells use for SIGINT
)

// usageError is an error in the input: a flag, a file or a name.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

func badFlag(flag string, err error) error {
	return usageError{fmt.Errorf("--%s: %w", flag, err)}
}

// badField names the flag of a field of an error; see [flagOf].
func badField(err error, fields ...experiment.Field) error {
	at, ok := errors.AsType[*manifest.Error](err)
	switch {
	case !ok:
		return err
	case at.Field == "":
		return usageError{err}
	}
	return badFlag(flagOf(fields, at.Field), at.Err)
}

// badFile names the flag, the file and the line of a mistake in the file of a flag. The flag is empty for an argument.
func badFile(flag, file string, data []byte, err error) error {
	if err = manifest.Locate(file, data, err); flag == "" {
		return usageError{err}
	}
	return badFlag(flag, err)
}

// Errors that are not printed, as the output already has the reason.
var (
	errInvalid     = errors.New("invalid")     // a broken invariant, a regression, missing pods
	errCannotTell  = errors.New("cannot tell") // too few rounds, or too much noise
	errInterrupted = errors.New("interrupted") // by a signal
	errPaused      = errors.New("paused")      // the next process continues the run
)

// Main runs the command and returns its exit code. Call it at the start of main: some commands start
// the program again, and Main never returns there. A run with several processes replaces the program, whose standard
// output and error then have what follows.
func Main(args []string, stdout, stderr io.Writer) int {
	source.RunChild()
	program.RunChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return execute(ctx, args, stdout, stderr, newProcess)
}

// execute runs the command. further continues it with other arguments in a new process.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer, further func(context.Context, []string, io.Writer, io.Writer) int) int {
	klog.SetLogger(klog.New(nil)) // A Reflector stopped at the end of a cell logs an error.
	root := newRoot(args)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	source.Wait() // A child that ends later would be nobody's.
	var usage usageError
	var next nextProcess
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil && (errors.As(err, &next) || errors.Is(err, context.Canceled)):
		warn(stderr, "interrupted; what was finished is kept")
		if next.args != nil {
			warn(stderr, "continue with: %s", lab.CommandLine(append([]string{"watchlab"}, next.args...)))
		}
		return exitInterrupted
	case errors.As(err, &next):
		return further(ctx, next.args, stdout, stderr)
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	case errors.Is(err, errInvalid):
		return exitInvalid
	case errors.Is(err, errCannotTell):
		return exitCannotTell
	}
	warn(stderr, "%s", lab.OneLine(err.Error()))
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, controller.ErrNoWatch):
		return exitCannotTell
	}
	return exitInvalid
}

func warn(stderr io.Writer, format string, args ...any) {
	fmt.Fprintln(stderr, lab.Redact(fmt.Sprintf("watchlab: "+format, args...)))
}

// parent completes a verb that only has verbs of its own.
func parent(cmd *cobra.Command, verbs ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(verbs...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				names = append(names, c.Name())
			}
		}
		return usageError{fmt.Errorf("unknown command %q (have %s)", args[0], strings.Join(names, ", "))}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

func newRoot(args []string) *cobra.Command {
	root := parent(&cobra.Command{
		Use:     "watchlab",
		Version: build().Revision() + ", " + runtime.Version(),
		Short:   "The performance lab for the Kubernetes event pipeline",
		Long: `watchlab plays watch storms through interchangeable implementations of each stage of the
Kubernetes event pipeline, beside client-go's and kubelet's own, checks that nothing was lost,
reordered or duplicated, and compares what it costs.

Exit code: 0; 1 if a cell broke an invariant or the command failed; 2 for bad input, before
anything is played or written; 3 if the rounds cannot tell (compare, gate); 130 after Ctrl-C, with
finished rounds kept.`,
		Example: `  watchlab list   # what can be compared, and what each guarantees
  watchlab run    # everything that is built in, in a minute and a half`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}, newCell())
	group(root, "Play", newRun(args), newController(), newClient(), newSize(), newDash(args), newKnee(args), newScale(args), newReproduce())
	group(root, "Look", newList(), newReport(), newCompare(), newGate())
	group(root, "Storms", newStorm(), newTrace(), newRecord(), newServe())
	group(root, "Cluster", newCluster(), newPod())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return root
}

// takes requires least to most positional arguments; what names them.
func takes(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usageError{fmt.Errorf("%s takes %s, not %q", cmd.CommandPath(), what, args)}
		}
		return nil
	}
}

var noArgs = takes(0, 0, "only flags") // rejects positional arguments

// commit is the revision, set by the Makefile; it ends in -dirty if the tree differed.
var commit string

// build identifies this program.
func build() lab.Build { return lab.ThisBuild(commit) }
