package cli

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"watchlab/bench/fleet"
	"watchlab/bench/report"
	"watchlab/bench/telemetry"
)

func newPod() *cobra.Command {
	var metricsAddr string
	var o fleet.PodOptions
	cmd := &cobra.Command{
		Use:   "pod",
		Short: "Play one share of a load Job",
		Long: `pod plays one share of a load Job, starts each cell together with the other pods, and uploads
its result. watchlab cluster run writes the plan. The environment names the pod: ` + fleet.IndexVar + `,
and ` + fleet.PodVar + `, ` + fleet.NodeVar + ` and ` + fleet.NamespaceVar + ` if known.

Exit code: 0 after the upload, whatever the verdicts; 130 after an interruption, with
finished rounds uploaded.`,
		Example: `  ` + fleet.IndexVar + `=1 watchlab pod --plan plan.yaml --kubeconfig ~/.kube/config`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			status := report.NewStatus(cmd.ErrOrStderr())
			defer status.Clear()
			o.Build, o.Args = build(), os.Args[1:]
			o.Progress = status.Show
			o.Warn = func(text string) { warn(status, "%s", text) }
			o.Telemetry = func(ctx context.Context, run, pyroscope string) (*telemetry.Session, error) {
				f := telemetryFlags{telemetry.Options{MetricsAddr: metricsAddr, Public: true, Pyroscope: pyroscope}}
				if err := f.Complete(false); err != nil {
					return nil, err
				}
				return f.start(ctx, run, status)
			}
			err := fleet.RunPod(cmd.Context(), o)
			if errors.Is(err, context.Canceled) {
				return errInterrupted
			}
			return badField(err)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&o.Plan, "plan", fleet.PlanFile, "plan of the run")
	fl.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: the service account)")
	fl.StringVar(&metricsAddr, "metrics-addr", fleet.MetricsAddr, "address of metrics and probes")
	return cmd
}
