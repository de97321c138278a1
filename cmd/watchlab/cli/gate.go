package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	comparison "watchlab/bench/compare"
	"watchlab/bench/experiment"
)

// errRegressed ends a failed gate. It is not printed, as the table names the
// regressions.
var errRegressed = fmt.Errorf("%w, or regressed", errInvalid)

func newGate() *cobra.Command {
	var against, file string
	output := "text"
	cmd := &cobra.Command{
		Use:   "gate NEW",
		Short: "Hold a new run against an old one, and fail where it regressed",
		Long: `gate judges the results folder or benchmark file NEW by an old one and by rules:
which figure of which cells may change for the worse by how much, and why. It exits
with 1 and names what regressed, is broken, missing, or not what it was.

A figure has regressed if its median and the near end of its interval are worse
than is allowed, the Mann-Whitney test tells the difference from chance, and so
does Welch's test of what is beyond the allowed, corrected for the number of
figures judged. Where noise would hide a regression, the gate says "blind".

Rules are per baseline where they say so: then figures are multiples of the
upstream variant's in the same round of the same run, and a machine that is slower
today doesn't count. "watchlab gate init" prints the default rules.`,
		Example: `  # Stop what is slower than the published run
  watchlab gate --against results/2026-11-21-quick results/mine

  # With rules of your own
  watchlab gate init > gate.yaml
  watchlab gate --against old.txt --rules gate.yaml new.txt`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) != 1:
				return usageError{fmt.Errorf("gate needs the new run: one file or results folder (got %d)", len(args))}
			case against == "":
				return badFlag("against", errors.New("names no run to hold it against"))
			case output != "text" && output != "json":
				return badFlag("output", experiment.OneOf(output, "text", "json"))
			}
			rules, name, err := gateRules(file)
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
			verdict, err := comparison.Gate(old, now, name, rules)
			if err != nil {
				return badFlag("rules", err)
			}
			if output == "json" {
				err = verdict.JSON(cmd.OutOrStdout())
			} else {
				err = verdict.Text(cmd.OutOrStdout())
			}
			if err == nil && verdict.Failed {
				err = errRegressed
			}
			return err
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "results folder or benchmark file that the new run is held against")
	cmd.Flags().StringVar(&file, "rules", "", "YAML file of rules (default: those that gate init prints)")
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	cmd.AddCommand(&cobra.Command{
		Use:   "init",
		Short: "Print the default rules, to start a file of your own",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(comparison.DefaultRules)
			return err
		},
	})
	return cmd
}

// gateRules reads the rules and returns their name for the output.
func gateRules(file string) ([]comparison.Rule, string, error) {
	if file == "" {
		rules, err := comparison.ParseRules(comparison.DefaultRulesName, comparison.DefaultRules)
		return rules, comparison.DefaultRulesName, err
	}
	rules, err := comparison.ReadRules(file)
	return rules, file, err
}
