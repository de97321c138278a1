package cli

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"watchlab/bench/experiment"
	"watchlab/bench/pprof"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// groups has the verbs in the order of --help.
var groups = []struct {
	id, title string
	verbs     []string
}{
	{"play", "Play:", []string{"run", "controller", "dash", "knee", "scale", "reproduce"}},
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
var shortFlags = []string{"experiment", "out", "output", "resume", "metrics-addr", "help", "help-all"}

// shortHelp makes --help show the common flags and --help-all all flags.
func (f *runFlags) shortHelp(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.helpAll, "help-all", false, "help with all flags")
	common := slices.Clone(shortFlags)
	for _, fl := range f.fields {
		if fl.Common || f.flagged.Search != nil && fl.Search() {
			common = append(common, fl.Flag)
		}
	}
	full := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if f.helpAll {
			full(cmd, args)
			return
		}
		var hidden []*pflag.Flag
		hide := func(fl *pflag.Flag) {
			if !slices.Contains(common, fl.Name) && !fl.Hidden {
				fl.Hidden = true
				hidden = append(hidden, fl)
			}
		}
		cmd.LocalFlags().VisitAll(hide)
		cmd.InheritedFlags().VisitAll(hide)
		full(cmd, args)
		for _, fl := range hidden {
			fl.Hidden = false
		}
		fmt.Fprintf(cmd.OutOrStdout(), "\n%d more flags: %s --help-all\n", len(hidden), cmd.CommandPath())
	})
}

// complete registers the shell completion of a flag, if the command has it.
func complete(cmd *cobra.Command, flag string, names []string) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if flag == "storm" {
		directive = cobra.ShellCompDirectiveDefault // A storm may also be a file.
	}
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(names, directive))
}

func completeSpec(cmd *cobra.Command) {
	names := map[string][]string{} // of variants, by flag
	for _, e := range entries() {
		flag := "impl"
		switch e.Family {
		case impls.Inflate: // of informers of a program; no flag chooses it
			continue
		case impls.Decode, impls.Store, impls.Workqueue: // flags have their names
			flag = string(e.Family)
		}
		if !slices.Contains(names[flag], e.Name) {
			names[flag] = append(names[flag], e.Name)
		}
	}
	var kinds []string
	for _, k := range pprof.Kinds() {
		kinds = append(kinds, string(k))
	}
	for _, f := range experiment.Fields(new(experiment.Spec)) {
		if f.Values != nil {
			complete(cmd, f.Flag, f.Values)
		}
	}
	maps.Copy(names, map[string][]string{
		"delivery": {string(deltafifo.InOrder), string(deltafifo.PerKey)}, "profile": append(kinds, "all"), "pace": {"max", "trace"},
		"output": {"brief", "table", "json", "bench"}, "storm": stormChoices(),
	})
	for flag, values := range names {
		complete(cmd, flag, values)
	}
}

func stormChoices() []string { return slices.Concat(storm.Names(), trace.Names()) }

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of watchlab, Go and client-go",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			watchlab, clientGo := "", ""
			if info, ok := debug.ReadBuildInfo(); ok {
				watchlab = info.Main.Version
				for _, d := range info.Deps {
					if d.Path == "k8s.io/client-go" {
						clientGo = d.Version
					}
				}
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "watchlab %s\ncommit   %s\nGo       %s %s/%s\nclient-go %s\n",
				cmp.Or(watchlab, "(devel)"), build().Revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH, cmp.Or(clientGo, "unknown"))
			return err
		},
	}
}
