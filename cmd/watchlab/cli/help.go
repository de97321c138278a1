package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// group adds verbs under a title of --help.
func group(root *cobra.Command, title string, verbs ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
	for _, verb := range verbs {
		verb.GroupID = title
	}
	root.AddCommand(verbs...)
}

// shortFlags are in the short help of a verb that plays, beside the common fields of a Spec.
var shortFlags = []string{"experiment", "out", "output", "resume", "metrics-addr", "help-all"}

// shortHelp makes --help show the common flags and --help-all all flags.
func (f *runFlags) shortHelp(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.helpAll, "help-all", false, "help with all flags")
	common := slices.Clone(shortFlags)
	for _, fl := range f.fields {
		if fl.Common || f.flagged.Search != nil && fl.Search() {
			common = append(common, fl.Flag)
		}
	}
	hidden := 0
	cmd.Flags().VisitAll(func(fl *pflag.Flag) {
		if !slices.Contains(common, fl.Name) {
			fl.Hidden = true
			hidden++
		}
	})
	full := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if f.helpAll {
			cmd.Flags().VisitAll(func(fl *pflag.Flag) { fl.Hidden = false })
		}
		if full(cmd, args); !f.helpAll {
			fmt.Fprintf(cmd.OutOrStdout(), "\n%d more flags: %s --help-all\n", hidden, cmd.CommandPath())
		}
	})
}
