package cli

import (
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
	return parent(&cobra.Command{
		Use:   "profile",
		Short: "Look into the profiles of a run, and compare two",
		Long: `profile reads the profiles that run --profile takes, and those of any other Go
program. Where the events of a cell are known, figures are per event, so that runs of
different lengths can be compared; else they are shares of all.`,
	}, newProfileTop(), newProfileDiff())
}

type profileFlags struct {
	cells                                []string
	kind, value, by, stage, sort, folder string
	rows                                 int
	output                               outputFlag[*profile.Table]
}

func (f *profileFlags) add(cmd *cobra.Command, cells string) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.cells, "cell", nil, "parts of a cell's name, as in impl=ring,rate=max"+cells)
	fl.StringVar(&f.kind, "kind", string(profile.CPU), "of a results folder: cpu, heap, allocs, mutex, block or goroutine")
	fl.StringVar(&f.value, "value", "", "value of the samples, as alloc_objects (default: the kind's)")
	fl.StringVar(&f.by, "by", "function", "function, or a label: stage, family, variant, pipeline, storm, rate")
	fl.StringVar(&f.stage, "stage", "", "only what has this label of a stage, as pop")
	fl.StringVar(&f.sort, "sort", "flat", "order of rows: flat (own), cum (with callees)")
	fl.IntVarP(&f.rows, "rows", "n", 20, "how many rows are printed; 0 for all")
	f.output.add(cmd, "text",
		form[*profile.Table]{"text", func(w io.Writer, t *profile.Table) error { return t.Text(w, f.rows) }},
		form[*profile.Table]{"json", printJSON[*profile.Table]})
}

func newProfileTop() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:     "top PROFILE|DIR",
		Short:   "What took most",
		Example: `  watchlab profile top results/mine --cell impl=ring,rate=max --by stage`,
		Args:    takes(1, 1, "a profile or a results folder"),
		RunE:    f.show,
	}
	f.add(cmd, "")
	return cmd
}

func newProfileDiff() *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two profiles per event",
		Long: `diff compares two profiles, each a file or a results folder of which --cell and --kind name one,
and marks a difference within sampling error (3 standard errors) with ~. It writes both with
their values per 1,000,000 events, and prints the command that opens their difference in go
tool pprof.`,
		Example: `  # The same cell before and after a change
  watchlab profile diff results/old results/new --cell impl=ring,rate=max

  # Two variants of one run
  watchlab profile diff results/mine results/mine --cell impl=cond,rate=max --cell impl=ring,rate=max`,
		Args: takes(2, 2, "two profiles or results folders"),
		RunE: f.show,
	}
	f.add(cmd, "; twice for both")
	cmd.Flags().StringVar(&f.folder, "pprof", "", "folder for both profiles per event (default: a temporary one)")
	return cmd
}

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
	write, err := f.output.writer()
	if err != nil {
		return err
	}
	var sources []*profile.Source
	for i, arg := range args {
		cell := ""
		if len(f.cells) > 0 {
			cell = f.cells[min(i, len(f.cells)-1)]
		}
		source, err := openProfile(arg, cell, profile.Kind(f.kind))
		if err != nil {
			return err
		}
		sources = append(sources, source)
	}
	var before *profile.Source // nil with a single profile
	after := sources[len(sources)-1]
	if len(sources) == 2 {
		before = sources[0]
	}
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
	return write(cmd.OutOrStdout(), table)
}

func (f *profileFlags) perEvent(stderr io.Writer, before, after *profile.Source) error {
	dir := f.folder
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
	warn(stderr, "flame graph: %s -diff_base %s %s", command, paths[0], paths[1])
	return nil
}

// openProfile reads a file, which may belong to a results folder, or the profile of a cell.
func openProfile(path, cell string, kind profile.Kind) (*profile.Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, usageError{err}
	}
	results := filepath.Dir(filepath.Dir(filepath.Clean(path)))
	switch {
	case info.IsDir():
		results = filepath.Clean(path)
		if path, err = profileOfCell(results, cell, kind); err != nil {
			return nil, err
		}
	case cell != "":
		return nil, badFlag("cell", fmt.Errorf("%s is a file: cells are those of a results folder", path))
	}
	source, err := profile.Read(path)
	if err != nil {
		return nil, usageError{err}
	}
	if source.Cell == "" || filepath.Base(filepath.Dir(path)) != profile.Dir {
		return source, nil
	}
	o, err := lab.Load(results)
	if err != nil {
		return source, nil //nolint:nilerr // The file was moved: it has shares instead of figures per event.
	}
	source.Name = source.Cell + " in " + results
	for _, c := range o.Cells() {
		if c.BenchName() == source.Cell && len(c.Rounds) > 0 {
			source.Events = float64(c.Rounds[0].Result.EventsIn) * float64(source.Plays)
		}
	}
	return source, nil
}

// profileOfCell returns the path of the profile of the only cell whose name has all parts.
func profileOfCell(dir, parts string, kind profile.Kind) (string, error) {
	o, err := lab.Load(dir)
	if err != nil {
		return "", usageError{err}
	}
	var profiled, found []string
	for _, c := range o.Cells() {
		name := c.BenchName()
		if _, err := os.Stat(filepath.Join(dir, profile.Dir, kind.FileName(name))); err != nil {
			continue
		}
		profiled = append(profiled, name)
		if hasParts(name, parts) {
			found = append(found, name)
		}
	}
	switch {
	case len(profiled) == 0:
		return "", usageError{fmt.Errorf("%s has no %s profiles (run --profile %s takes them)", dir, kind, kind)}
	case len(found) == 0:
		return "", badFlag("cell", fmt.Errorf("no cell of %s has %q and a %s profile (have %s)", dir, parts, kind, listed(profiled)))
	case len(found) > 1:
		return "", badFlag("cell", fmt.Errorf("%q is not one cell of %s but %d: %s", parts, dir, len(found), listed(found)))
	}
	return filepath.Join(dir, profile.Dir, kind.FileName(found[0])), nil
}

// hasParts reports whether a name of the form a/b/c has all parts of the form c,a.
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

func listed(names []string) string {
	const most = 6
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ", ")
}
