package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	comparison "watchlab/bench/compare"
)

func newGate() *cobra.Command {
	var against, file string
	var strict bool
	var out outputFlag[*comparison.GateResult]
	cmd := &cobra.Command{
		Use:   "gate NEW",
		Short: "Hold a new run against an old one, and fail where it regressed",
		Long: `gate compares the results folder or benchmark file NEW with an old one by rules, also of two runs of
watchlab controller. Exit code: 1 if figures regressed, broke, are missing or different; 3 if the rounds cannot tell, for all figures or,
with --strict, for any. Play both runs with --out: each round then has its own process.
docs/statistics.md has the tests and the rules.`,
		Example: `  watchlab gate --against results/2026-11-21-quick results/mine

  # In CI, with rules of your own
  watchlab gate init > gate.yaml
  watchlab gate --strict --against old.txt --rules gate.yaml new.txt`,
		Args: takes(1, 1, "the new run: one file or results folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if against == "" {
				return badFlag("against", errors.New("names no run to hold it against"))
			}
			rules, name, err := comparison.ReadRules(file)
			if err != nil {
				return badFlag("rules", err)
			}
			old, err := comparison.OpenRun(against)
			if err != nil {
				return badFlag("against", err)
			}
			now, err := comparison.OpenRun(args[0])
			if err != nil {
				return usageError{err}
			}
			verdict, err := comparison.Gate(old, now, name, rules, strict)
			if err != nil {
				return badFlag("rules", err)
			}
			if err := out.show(cmd.OutOrStdout(), verdict); err != nil {
				return err
			}
			switch {
			case verdict.Failed:
				return errInvalid
			case verdict.CannotTell:
				return errCannotTell
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "results folder or benchmark file that the new run is held against")
	cmd.Flags().BoolVar(&strict, "strict", false, "fail with exit code 3 where the rounds cannot tell")
	cmd.Flags().StringVar(&file, "rules", "", "YAML file of rules (default: those that gate init prints)")
	out.addText(cmd, "text", method((*comparison.GateResult).Text))
	cmd.AddCommand(&cobra.Command{
		Use:       "init [controller]",
		Short:     "Print the default rules, to start a file of your own",
		Args:      takes(0, 1, "controller for the rules of watchlab controller"),
		ValidArgs: []string{"controller"},
		RunE: func(cmd *cobra.Command, args []string) error {
			rules := comparison.DefaultRules
			if len(args) > 0 {
				if args[0] != "controller" {
					return usageError{fmt.Errorf("%q has no rules (there is controller)", args[0])}
				}
				rules = comparison.ControllerRules
			}
			_, err := cmd.OutOrStdout().Write(rules)
			return err
		},
	})
	return cmd
}
