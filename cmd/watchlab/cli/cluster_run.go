package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/pipeline"
	"watchlab/loadgen/manifest"
)

type clusterRunFlags struct {
	place                placeFlags
	pods                 int
	image, overlay       string
	barrier, waitForPods time.Duration
	wait, dryRun         bool

	telemetry telemetryFlags
	playing   specFlags[experiment.Spec]
	given     *cobra.Command // flags after --
}

const defaultBarrier = 2 * time.Minute // covers the start of pods on new nodes

func newClusterRun() *cobra.Command {
	var f clusterRunFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- [flags of run]",
		Short: "Start a load Job in a cluster and follow it",
		Long: `run plays an experiment from many pods of a cluster. Each pod plays its share of the storm in
its own pipelines.

The run continues after Ctrl-C and with --wait=false. run exits with 1 if a pod failed for good.`,
		Example: `  # A node loss from four pods, in kind
  watchlab cluster run --context kind-watchlab --overlay kind --name mine -- --storm nodeloss --nodes 100 --pace max,2000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
				return usageError{fmt.Errorf("%s takes no argument %q; put flags of run after --", cmd.CommandPath(), args[0])}
			}
			return f.run(cmd, args)
		},
	}
	f.place.add(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.pods, "pods", 4, "playing pods")
	fl.StringVar(&f.image, "image", "", "image of the pods (default watchlab:dev)")
	fl.StringVar(&f.overlay, "overlay", "", "overlay: "+strings.Join(fleet.Overlays(), ", ")+", or a file of manifests (default: base)")
	fl.DurationVar(&f.barrier, "barrier", defaultBarrier, "barrier timeout before each cell; 0 for no barrier")
	fl.DurationVar(&f.waitForPods, "wait-for-pods", 2*time.Minute, "limit for a pod's wait for a node or its image")
	fl.BoolVar(&f.wait, "wait", true, "follow the run until it ends")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the manifests and apply nothing")
	f.playing.addFile(cmd, "experiment", "experiment in YAML; flags after -- win over it")
	f.telemetry.addPyroscope(cmd)
	return cmd
}

func (f *clusterRunFlags) run(cmd *cobra.Command, args []string) error {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	_, fl, err := f.place.connect(cmd, true)
	if err != nil {
		return err
	}
	spec, err := f.spec(cmd, args)
	if err != nil {
		return err
	}
	objects, err := fleet.Build(spec)
	if err != nil {
		return f.blame(err)
	}
	if f.dryRun {
		for _, o := range objects {
			data, err := yaml.Marshal(o.Object)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "---\n%s", data)
		}
		return nil
	}
	hint := func(p fleet.Pod) string { return fleet.StartHint(p, f.place.context, f.overlay, f.place.namespace) }
	err = fl.Play(ctx, spec, fleet.PlayOptions{
		Detach: !f.wait, WaitForPods: f.waitForPods, Hint: hint, Say: func(text string) { warn(stderr, "%s", text) },
	})
	switch {
	case errors.Is(err, fleet.ErrExists):
		return badFlag("name", err)
	case errors.Is(err, fleet.ErrContinues):
		return errInterrupted
	}
	return err
}

// blame names the flag, or the line of the file, of a mistake in the plan or in the experiment.
func (f *clusterRunFlags) blame(err error) error {
	at, ok := errors.AsType[*manifest.Error](err)
	switch {
	case ok && experiment.FlagOf(at.Field) == "":
		return badFlag(cmp.Or(map[string]string{"run": "name"}[at.Field], at.Field), at.Err)
	case ok, errors.Is(err, pipeline.ErrConfig):
		return f.playing.blame(f.given, manifest.Locate("", nil, err))
	}
	return err
}

func (f *clusterRunFlags) spec(cmd *cobra.Command, args []string) (fleet.Spec, error) {
	if f.place.name == "" && !cmd.Flags().Changed("name") {
		f.place.name = "run-" + time.Now().Format("0102-150405")
	}
	spec := fleet.Spec{
		Plan: fleet.Plan{
			Run: f.place.name, Pods: f.pods, Barrier: metav1.Duration{Duration: f.barrier},
			Pyroscope: f.telemetry.Pyroscope,
		},
		Namespace: f.place.namespace, Image: f.image, Overlay: f.overlay,
	}
	if err := f.blame(spec.Plan.Validate()); err != nil {
		return spec, err
	}
	if slices.Contains(args, "-h") || slices.Contains(args, "--help") {
		return spec, usageError{errors.New("watchlab run --help-all lists the flags after --")}
	}
	f.given = &cobra.Command{Use: "run"}
	f.playing.addFile(f.given, "experiment", experimentUsage)
	f.playing.add(f.given, anyField)
	f.given.SetContext(cmd.Context())
	if err := f.given.ParseFlags(args); err != nil {
		return spec, usageError{err}
	}
	if rest := f.given.Flags().Args(); len(rest) > 0 {
		return spec, usageError{fmt.Errorf("run takes no argument %q, only flags", rest[0])}
	}
	e, err := f.playing.read(f.given)
	if err != nil {
		return spec, err
	}
	return spec, f.blame(spec.SetExperiment(e))
}
