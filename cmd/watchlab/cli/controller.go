package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"watchlab/bench/controller"
	"watchlab/bench/controller/program"
	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/loadgen/manifest"
)

// controllerFlags fill a controller.Spec.
type controllerFlags struct {
	study[*controller.Result]
	spec    specFlags[controller.Spec]
	against string
	shrink  bool
}

func newController() *cobra.Command {
	var f controllerFlags
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Play a storm to a controller and judge it",
		Long: `controller starts an API server (--server) with a storm, starts PROGRAM with KUBECONFIG, and waits for its
watches. It plays the storm, the requests of users and the faults, and judges what the program did: lost
updates, hot loops, relists, stale writes, leaks, convergence. In the arguments, {kubeconfig} is the path of the
kubeconfig, {metrics} a free host:port whose /metrics are scraped, {dir} a folder, {client} the replica's name.

Each plan of --faults is played by itself: none, all, each (one plan a fault), explore (plans aimed at what the
program does without faults, until one fails), or faults. The first plan that fails is shrunk to the smallest one that still fails. Exit code: 1 if a verdict failed. The results folder has
junit.xml; in a step of a GitHub workflow, the step summary gets the report. docs/controller.md has the rules,
the workloads and the verdicts.`,
		Example: `  # The loss of 4 of 20 nodes, without faults and with those that are aimed at what the program does
  watchlab controller -- ./my-controller

  # Objects of your own, created and changed at a rate, and what must hold in the end
  watchlab controller --manifest crds/ --workload workload.yaml --rules rules.yaml -- ./my-controller

  # Is it worse than last week's?
  watchlab controller --against ./old-controller -- ./my-controller`,
		RunE: f.run,
	}
	fl := cmd.Flags()
	f.spec.add(cmd, anyField)
	fl.Lookup("storm").Usage = "profile, recording or file (default: nodeloss on 20 nodes)"
	f.spec.addFile(cmd, "spec", "controller.yaml to play; flags win over it")
	fl.BoolVar(&f.shrink, "shrink", true, "shrink the first fault plan that fails")
	fl.StringVar(&f.against, "against", "", "command of the baseline, words without quotes, compared side by side")
	f.add(cmd, report.ControllerText)
	return cmd
}

// read makes the Spec of the file, the flags and the arguments.
func (f *controllerFlags) read(cmd *cobra.Command, args []string) (spec controller.Spec, err error) {
	if n := cmd.ArgsLenAtDash(); n > 0 || n < 0 && len(args) > 0 {
		return spec, usageError{fmt.Errorf("%q is no flag; the program follows -- (watchlab controller -- ./my-controller)", args[0])}
	}
	if spec, err = f.spec.read(cmd); err != nil {
		return spec, err
	}
	changed := cmd.Flags().Changed
	if changed("shrink") {
		spec.Unshrunk = !f.shrink
	}
	if len(args) > 0 {
		spec.Programs = []controller.Program{{Label: controller.New, Command: args}}
	}
	if changed("against") {
		if err := spec.CompareWith(f.against); err != nil {
			return spec, f.blame(cmd, err)
		}
	}
	return spec, f.blame(cmd, spec.Validate())
}

// blame names the flag, or the line of the file, of a mistake in the Spec.
func (f *controllerFlags) blame(cmd *cobra.Command, err error) error {
	if field, ok := errors.AsType[*manifest.Error](err); ok && field.Field == "programs" {
		return usageError{field.Err}
	}
	return f.spec.blame(cmd, err)
}

func (f *controllerFlags) run(cmd *cobra.Command, args []string) error {
	spec, err := f.read(cmd, args)
	if err != nil {
		return err
	}
	opts, err := f.options(cmd)
	if err != nil {
		return err
	}
	o, err := controller.Run(cmd.Context(), spec, opts)
	switch {
	case errors.Is(err, lab.ErrExists):
		return badFlag("out", err)
	case o == nil:
		if _, named := errors.AsType[*manifest.Error](err); !named && errors.Is(err, program.ErrCommand) {
			return usageError{err}
		}
		return f.blame(cmd, err)
	}
	err = errors.Join(err, report.WriteController(f.dir, o), report.StepSummary(o))
	failed := slices.ContainsFunc(o.Plays, func(p controller.Play) bool { return p.Failed() })
	return f.blame(cmd, f.conclude(cmd, o, o.Interrupted, failed, err))
}
