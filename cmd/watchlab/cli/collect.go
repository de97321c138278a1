package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

type collectFlags struct {
	place  placeFlags
	out    string
	output outputFlag[*lab.Outcome]
}

func newCollect() *cobra.Command {
	var f collectFlags
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Merge the results of a run into one results folder",
		Long: `collect merges the results of all pods of a run into one results folder. Counts and histograms
add up exactly. It refuses results of different builds, seeds, cells or rounds. If pods are
missing, it names them, and exits with 1; the figures are those of the others.`,
		Example: `  watchlab cluster collect --context kind-watchlab --name mine`,
		RunE:    f.run,
		Args:    noArgs,
	}
	f.place.add(cmd)
	cmd.Flags().StringVar(&f.out, "out", "", "results folder to create (default: results/<date>-<commit>-<run>)")
	f.output.add(cmd, "table", tableForm, jsonForm, benchForm)
	return cmd
}

func (f *collectFlags) run(cmd *cobra.Command, _ []string) error {
	if err := checkNew(f.out); err != nil {
		return err
	}
	connected, state, err := f.place.status(cmd)
	if err != nil {
		return err
	}
	maps, err := fleet.NewConfigMaps(connected.Config(), state.Namespace)
	if err != nil {
		return err
	}
	plan, stderr := state.Plan, cmd.ErrOrStderr()
	o, damaged, err := maps.Collect(cmd.Context(), plan.Run, plan.Pods, lab.MergeOptions{
		Name: plan.Run, Experiment: plan.Experiment,
		Args: []string{"cluster", "run", "--name", plan.Run, "--pods", fmt.Sprint(plan.Pods), "--", "--experiment", lab.ExperimentFile},
	})
	for _, d := range damaged {
		warn(stderr, "%s", d)
	}
	early := errors.Is(err, fleet.ErrNoResult) || err == nil && (o.Interrupted || len(o.Merged.Missing) > 0)
	switch {
	case early && !state.Over: // A retry may still upload.
		return fmt.Errorf("run %s has not ended: %s; collect it when %s shows its end",
			plan.Run, state.Line(), state.Ref.Command("status"))
	case errors.Is(err, fleet.ErrNoResult):
		return fmt.Errorf("no complete result of run %s: %s", state.Ref, strings.Join(state.Unfinished(), "; "))
	case errors.Is(err, lab.ErrShares):
		return usageError{fmt.Errorf("run %s: %w", state.Ref, err)}
	case err != nil:
		return fmt.Errorf("run %s: %w", state.Ref, err)
	}
	dir := f.out
	if dir == "" {
		dir = lab.FreeFolder("results", o.Env.Build, state.Run)
	}
	if err := o.Create(dir); errors.Is(err, lab.ErrExists) {
		return badFlag("out", err)
	} else if err != nil {
		return err
	}
	if err := errors.Join(report.Write(dir, o), f.output.show(cmd.OutOrStdout(), o)); err != nil {
		return err
	}
	warnEach(stderr, o.Merged.Missing, func(i int) string { return fmt.Sprintf("pod %d is missing: %s", i, state.Pods[i]) })
	warn(stderr, "%s merged; results are in %s", o.Merged, dir)
	failed := o.Failed()
	for _, cell := range failed {
		warn(stderr, "%s", cell)
	}
	if len(failed) > 0 || len(o.Merged.Missing) > 0 {
		return errInvalid
	}
	return nil
}
