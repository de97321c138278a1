package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// groups has the verbs in the order of --help.
var groups = []struct {
	id, title string
	verbs     []string
}{
	{"play", "Play:", []string{"run", "controller", "client", "dash", "knee", "scale", "reproduce"}},
	{"look", "Look:", []string{"list", "report", "compare", "gate"}},
	{"storms", "Storms:", []string{"storm", "trace", "record", "serve"}},
	{"cluster", "Cluster:", []string{"cluster", "pod"}},
}

func group(root *cobra.Command) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
		for _, verb := range root.Commands() {
			if slices.Contains(g.verbs, verb.Name()) {
				verb.GroupID = g.id
			}
		}
	}
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
