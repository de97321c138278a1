package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"watchlab/bench/lab"
	"watchlab/bench/profile"
)

// howFlags are the flags that say how a run goes about it, not what it plays.
type howFlags struct {
	budget time.Duration
	memory bool

	profile string
	resume  string
}

// add adds the flags, and gives the command's work over to the run that --resume
// takes up again.
func (f *howFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.DurationVar(&f.budget, "budget", 0, "how long the run may take: as many rounds as fit, one at least, rather than --rounds")
	fl.BoolVar(&f.memory, "memory", false, "play each cell of each round in a process of its own, which tells peak heap and resident memory, too")
	fl.StringVar(&f.profile, "profile", "", "play each cell once more, uncounted, and take profiles of it into the results folder: "+kindNames()+" or all")
	fl.StringVar(&f.resume, "resume", "", "take up the run of a results folder again that was interrupted or killed, with the flags that it had; with none but -o beside it")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("resume") {
			return run(cmd, args)
		}
		return f.takeUp(cmd)
	}
}

// check checks the flags and puts them into the plan.
func (f *howFlags) check(cmd *cobra.Command, p *plan) error {
	given := cmd.Flags().Changed
	switch {
	case given("budget") && f.budget <= 0:
		return badFlag("budget", fmt.Errorf("%v is not more than 0", f.budget))
	case given("budget") && given("rounds"):
		return badFlag("budget", errors.New("is in place of --rounds"))
	}
	if given("profile") {
		kinds, err := profile.Parse(f.profile)
		if err != nil {
			return badFlag("profile", err)
		}
		p.profiles = kinds
	}
	p.budget, p.memory = f.budget, f.memory
	return nil
}

// kindNames are the kinds of profiles, for the help.
func kindNames() string {
	var names []string
	for _, k := range profile.Kinds() {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

// checkHow refuses what can't be measured of these comparisons, can't be planned
// again by another process, or has nowhere to go.
func (p *plan) checkHow() error {
	together := slices.ContainsFunc(p.comparisons, func(c lab.Comparison) bool { return c.Together })
	switch {
	case len(p.profiles) > 0 && together:
		return badFlag("profile", errors.New("is not for a live cluster, whose variants are all played at the same time"))
	case len(p.profiles) > 0 && p.dir == "":
		return badFlag("profile", errors.New("needs --out: profiles are files of the results folder"))
	case p.memory && together:
		return badFlag("memory", errors.New("is not for a live cluster, whose variants are all played at the same time"))
	case p.memory && slices.ContainsFunc(p.comparisons, func(c lab.Comparison) bool { return c.More != nil }):
		return badFlag("memory", errors.New("is not for a search: what it plays depends on what it has found"))
	case p.memory && p.stdin:
		return badFlag("memory", errors.New("is not for -f -: standard input can be read once only"))
	}
	return nil
}

// takeUp runs the command again that the folder's run was made by.
func (f *howFlags) takeUp(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if !slices.Contains([]string{"resume", "output", "v"}, fl.Name) && err == nil {
			err = badFlag(fl.Name, errors.New("is not for --resume: the run goes on with the flags that it had"))
		}
	})
	if err != nil {
		return err
	}
	env, err := lab.LoadEnv(f.resume)
	if err != nil {
		return badFlag("resume", err)
	}
	if len(env.Args) == 0 {
		return badFlag("resume", fmt.Errorf("%s doesn't say by what command its run was made", f.resume))
	}
	again := newRoot(env.Args)
	args := slices.Clone(env.Args)
	if output := cmd.Flags().Lookup("output"); output.Changed {
		args = append(args, "--output", output.Value.String())
	}
	again.SetArgs(args)
	again.SetIn(cmd.InOrStdin())
	again.SetOut(cmd.OutOrStdout())
	again.SetErr(cmd.ErrOrStderr())
	return again.ExecuteContext(mode{resume: f.resume}.in(cmd.Context()))
}

// mode is how a command that plays goes about it where it was another command
// that started it.
type mode struct {
	resume string

	cell string
	to   io.Writer
}

type modeKey struct{}

func (m mode) in(ctx context.Context) context.Context { return context.WithValue(ctx, modeKey{}, m) }

// modeOf returns the mode of a context, which may be nil.
func modeOf(ctx context.Context) mode {
	if ctx == nil {
		return mode{}
	}
	m, _ := ctx.Value(modeKey{}).(mode)
	return m
}

// newFolder reports whether the command makes a results folder, rather than going
// on with one or making none.
func (m mode) newFolder() bool { return m.resume == "" && m.to == nil }
