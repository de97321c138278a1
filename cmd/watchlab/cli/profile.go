package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/profile"
)

func newProfile() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "Look into the profiles of a run, and compare two",
		Long: `profile reads the profiles that run --profile takes, and those of any other Go
program. Where the events of a cell are known, figures are per event, so that runs of
different lengths can be compared; else they are shares of all.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newProfileTop(), newProfileDiff())
	return cmd
}

// profileFlags are the common flags of both verbs.
type profileFlags struct {
	cells  []string
	kind   string
	value  string
	by     string
	stage  string
	sort   string
	rows   int
	pprof  string
	output string
}

func (f *profileFlags) add(cmd *cobra.Command, cells string) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.cells, "cell", nil, "parts of a cell's name, as in impl=ring,rate=max"+cells)
	fl.StringVar(&f.kind, "kind", string(profile.CPU), "of a results folder: cpu, heap, allocs, mutex, block or goroutine")
	fl.StringVar(&f.value, "value", "", "value of the samples, as alloc_objects (default: the kind's)")
	fl.StringVar(&f.by, "by", "function", "function, or a label: stage, family, variant, storm")
	fl.StringVar(&f.stage, "stage", "", "only what has this label of a stage, as pop")
	fl.StringVar(&f.sort, "sort", "flat", "order of rows: flat (own), cum (with callees)")
	fl.IntVarP(&f.rows, "rows", "n", 20, "how many rows are printed; 0 for all")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
}

func newProfileTop() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "top PROFILE|DIR",
		Short: "What took most",
		Example: `  # Where the time goes in a cell, by stage and by function
  watchlab profile top results/mine --cell impl=ring,rate=max --by stage
  watchlab profile top results/mine --cell impl=ring,rate=max --stage pop`,
		Args: profileArgs(1, "a profile, or a results folder"),
		RunE: f.show,
	}
	f.add(cmd, "")
	return cmd
}

func newProfileDiff() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two profiles per event",
		Long: `diff compares two profiles, each a file or a results folder of which --cell and
--kind name one. It marks a difference within sampling error (3 standard errors)
with ~.

diff also writes both profiles with their values per 1,000,000 events, and prints the
command that opens their difference, with its flame graph, in go tool pprof.`,
		Example: `  # The same cell before and after a change
  watchlab profile diff results/old results/new --cell impl=ring,rate=max

  # Two variants of one run
  watchlab profile diff results/mine results/mine --cell impl=cond,rate=max --cell impl=ring,rate=max

  # Where the memory goes, in any two files
  watchlab profile diff old.pb.gz new.pb.gz --value alloc_objects --sort cum`,
		Args: profileArgs(2, "two profiles, or results folders"),
		RunE: f.show,
	}
	f.add(cmd, "; twice for both")
	cmd.Flags().StringVar(&f.pprof, "pprof", "", "folder for both profiles per event (default: a temporary one)")
	return cmd
}

func profileArgs(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s needs %s, not %d arguments", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}

// check rejects invalid values.
func (f *profileFlags) check(profiles int) error {
	kind := profile.Kind(f.kind)
	switch {
	case !slices.Contains(profile.Kinds(), kind):
		_, err := profile.Parse(f.kind)
		return badFlag("kind", err)
	case kind == profile.Trace:
		return badFlag("kind", errors.New("an execution trace is for go tool trace"))
	case f.sort != "flat" && f.sort != "cum":
		return badFlag("sort", experiment.OneOf(f.sort, "flat", "cum"))
	case f.output != "text" && f.output != "json":
		return badFlag("output", experiment.OneOf(f.output, "text", "json"))
	case f.rows < 0:
		return badFlag("rows", fmt.Errorf("%d (want 0 or more)", f.rows))
	case len(f.cells) > profiles:
		return badFlag("cell", fmt.Errorf("given %d times for %d profiles", len(f.cells), profiles))
	}
	return nil
}

func (f *profileFlags) show(cmd *cobra.Command, args []string) error {
	if err := f.check(len(args)); err != nil {
		return err
	}
	// before is nil with a single profile.
	sources := make([]*profile.Source, 2)
	for i, arg := range args {
		cell := ""
		if len(f.cells) > 0 {
			cell = f.cells[min(i, len(f.cells)-1)]
		}
		var err error
		if sources[2-len(args)+i], err = openProfile(arg, cell, profile.Kind(f.kind)); err != nil {
			return err
		}
	}
	before, after := sources[0], sources[1]
	o := profile.Options{Value: f.value, Stage: f.stage}
	if f.by != "function" {
		o.By = f.by
	}
	table, err := profile.Compare(before, after, o)
	switch {
	case errors.Is(err, profile.ErrValue):
		return badFlag("value", err)
	case errors.Is(err, profile.ErrLabel):
		return badFlag("by", err)
	case err != nil:
		return usageError{err}
	}
	if len(table.Rows) == 0 {
		return badFlag("stage", fmt.Errorf("no sample has the stage %q", f.stage))
	}
	if f.sort == "cum" {
		table.SortByCum()
	}
	if before != nil {
		if err := f.perEvent(cmd.ErrOrStderr(), before, after); err != nil {
			return err
		}
	}
	if f.output == "json" {
		enc := json.NewEncoder(cmd.OutOrStdout())
		enc.SetIndent("", "  ")
		return enc.Encode(table)
	}
	return table.Text(cmd.OutOrStdout(), f.rows)
}

// perEvent writes both profiles for go tool pprof, and prints its command.
func (f *profileFlags) perEvent(stderr io.Writer, before, after *profile.Source) error {
	dir := f.pprof
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "watchlab-profile-"); err != nil {
			return err
		}
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	command := "go tool pprof -http=:"
	if before.Events == 0 || after.Events == 0 {
		command += " -normalize" // pprof then compares shares
	}
	paths := []string{filepath.Join(dir, "before.pb.gz"), filepath.Join(dir, "after.pb.gz")}
	if err := errors.Join(before.WritePerEvent(paths[0]), after.WritePerEvent(paths[1])); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stderr, "watchlab: flame graph: %s -diff_base %s %s\n", command, paths[0], paths[1])
	return err
}

// openProfile reads a file, or the profile of a results folder's cell.
func openProfile(arg, cell string, kind profile.Kind) (*profile.Source, error) {
	info, err := os.Stat(arg)
	if err != nil {
		return nil, usageError{err}
	}
	if info.IsDir() {
		return profileOfCell(arg, cell, kind)
	}
	if cell != "" {
		return nil, badFlag("cell", fmt.Errorf("%s is a file: cells are those of a results folder", arg))
	}
	source, err := profile.Read(arg)
	if err != nil {
		return nil, usageError{err}
	}
	// A file in a results folder is the profile of a cell.
	if dir := filepath.Dir(filepath.Clean(arg)); source.Cell != "" && filepath.Base(dir) == profile.Dir {
		results := filepath.Dir(dir)
		if o, err := lab.Load(results); err == nil {
			source.Name, source.Events = cellIn(source.Cell, results), eventsOf(o, source.Cell)*float64(source.Plays)
		}
	}
	return source, nil
}

// profileOfCell finds the only cell of a run whose name has all parts and that has a
// profile of the kind.
func profileOfCell(dir, parts string, kind profile.Kind) (*profile.Source, error) {
	o, err := lab.Load(dir)
	if err != nil {
		return nil, usageError{err}
	}
	var profiled, found []string
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			name := cl.BenchName()
			if _, err := os.Stat(filepath.Join(dir, profile.Dir, kind.FileName(name))); err != nil {
				continue
			}
			profiled = append(profiled, name)
			if hasParts(name, parts) {
				found = append(found, name)
			}
		}
	}
	switch {
	case len(profiled) == 0:
		return nil, usageError{fmt.Errorf("%s has no %s profiles (run --profile %s takes them)", dir, kind, kind)}
	case len(found) == 0:
		return nil, badFlag("cell", fmt.Errorf("no cell of %s has %q and a %s profile (have %s)", dir, parts, kind, listed(profiled)))
	case len(found) > 1:
		return nil, badFlag("cell", fmt.Errorf("%q is not one cell of %s but %d: %s", parts, dir, len(found), listed(found)))
	}
	source, err := profile.Read(filepath.Join(dir, profile.Dir, kind.FileName(found[0])))
	if err != nil {
		return nil, usageError{err}
	}
	source.Name, source.Events = cellIn(found[0], dir), eventsOf(o, found[0])*float64(source.Plays)
	return source, nil
}

func cellIn(cell, dir string) string { return cell + " in " + filepath.Clean(dir) }

// hasParts reports whether each part, separated by commas, is one of the name's parts,
// separated by slashes.
func hasParts(name, parts string) bool {
	if parts == "" || parts == name {
		return true
	}
	have := strings.Split(name, "/")
	for part := range strings.SplitSeq(parts, ",") {
		if !slices.Contains(have, strings.TrimSpace(part)) {
			return false
		}
	}
	return true
}

// listed joins the first few names.
func listed(names []string) string {
	const most = 6
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}

// eventsOf returns the number of events of a cell's round; 0 if no round was kept.
func eventsOf(o *lab.Outcome, name string) float64 {
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			if cl.BenchName() == name && len(cl.Rounds) > 0 {
				return float64(cl.Rounds[0].Result.EventsIn)
			}
		}
	}
	return 0
}
