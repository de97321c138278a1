package cli

import (
	"cmp"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
	"watchlab/bench/report"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

func newStorm() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "storm",
		Short: "List and show the storms that can be made",
		Example: `  watchlab storm list
  watchlab storm show nodeloss --nodes 100`,
	}, newStormList(), newStormShow())
}

func newStormList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the profiles, and the recordings that are built in",
		Example: `  watchlab storm list`,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return report.Storms(cmd.OutOrStdout()) },
	}
}

func newStormShow() *cobra.Command {
	var f specFlags[experiment.Spec]
	cmd := &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Show a storm: its parameters, rates and events",
		Long: `show prints the parameters of a profile, among them the lengths of its phases, its events by type and their mean rate.
Of a recording it shows what trace inspect does.`,
		Example: `  watchlab storm show leases --nodes 130000`,
		Args: takes(1, 1, "a profile ("+strings.Join(storm.Names(), ", ")+"), a recording ("+strings.Join(trace.Names(), ", ")+
			"), or the file of a trace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.read(cmd)
			if err != nil {
				return err
			}
			spec.Storm.Name = args[0]
			if err := spec.Storm.Validate(); err != nil {
				return f.blame(cmd, err)
			}
			return showStorm(cmd, spec.Storm, cmp.Or(spec.Seed, 1))
		},
	}
	f.addFile(cmd, "experiment", experimentUsage)
	f.add(cmd, func(fl experiment.Field) bool { return stormField(fl) && fl.Path != "storm.name" })
	return cmd
}

func stormField(f experiment.Field) bool {
	return strings.HasPrefix(f.Path, "storm.") || f.Path == "seed"
}

func showStorm(cmd *cobra.Command, s experiment.Storm, seed int64) error {
	w := cmd.OutOrStdout()
	if !s.IsProfile() {
		recording, faults, err := inspect(cmd, s.Name)
		if err != nil {
			return err
		}
		return errors.Join(recording.Print(w), reportFaults(cmd.ErrOrStderr(), faults))
	}
	p, err := s.Profile()
	if err != nil {
		return usageError{err}
	}
	g, err := p.Generator(seed)
	if err != nil {
		return usageError{err}
	}
	return report.Storm(w, p, g)
}
