package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/profile"
)

func newProfile() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "profile",
		Short: "Look into the profiles of a run, and compare two",
		Long: `profile shows the profiles that run --profile takes, and those of any other Go program, in go
tool pprof. Where the events of a cell are known, values are those of 1,000,000 events, so
that runs of different lengths can be compared. Arguments after -- are pprof's (default: -top).`,
	}, newProfileTop(), newProfileDiff())
}

type profileFlags struct {
	cells        []string
	kind, folder string
}

// command completes a command that shows a number of profiles.
func (f *profileFlags) command(cmd *cobra.Command, profiles int, cells, what string) *cobra.Command {
	own := func(cmd *cobra.Command, args []string) int {
		if n := cmd.ArgsLenAtDash(); n >= 0 {
			return n
		}
		return len(args)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		return takes(profiles, profiles, what)(cmd, args[:own(cmd, args)])
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n := own(cmd, args)
		return f.show(cmd, args[:n], args[n:])
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.cells, "cell", nil, "parts of a cell's name, as in impl=ring,rate=max"+cells)
	fl.StringVar(&f.kind, "kind", string(profile.CPU), "of a results folder: cpu, heap, allocs, mutex, block or goroutine")
	fl.StringVar(&f.folder, "pprof", "", "folder to keep the profiles per event in (default none)")
	return cmd
}

func newProfileTop() *cobra.Command {
	return new(profileFlags).command(&cobra.Command{
		Use:   "top PROFILE|DIR [-- PPROF-FLAG…]",
		Short: "What took most",
		Example: `  watchlab profile top results/mine --cell impl=ring,rate=max
  watchlab profile top results/mine --cell impl=ring,rate=max -- -top -tagleaf=stage`,
	}, 1, "", "a profile or a results folder")
}

func newProfileDiff() *cobra.Command {
	return new(profileFlags).command(&cobra.Command{
		Use:   "diff BEFORE AFTER [-- PPROF-FLAG…]",
		Short: "Compare two profiles per event",
		Long: `diff shows what AFTER takes more or less than BEFORE. Each is a file, or a results folder of which
--cell and --kind name one.`,
		Example: `  # The same cell before and after a change
  watchlab profile diff results/old results/new --cell impl=ring,rate=max

  # Two variants of one run, as a differential flame graph in the browser
  watchlab profile diff results/mine results/mine --cell impl=cond,rate=max --cell impl=ring,rate=max -- -http=:`,
	}, 2, "; twice for both", "two profiles or results folders")
}

func (f *profileFlags) check(profiles int) error {
	kind := profile.Kind(f.kind)
	switch {
	case !slices.Contains(profile.Kinds(), kind):
		_, err := profile.Parse(f.kind)
		return badFlag("kind", err)
	case kind == profile.Trace:
		return badFlag("kind", errors.New("an execution trace is for go tool trace"))
	case len(f.cells) > profiles:
		return badFlag("cell", fmt.Errorf("given %d times for %d profiles", len(f.cells), profiles))
	}
	return nil
}

// show writes the profiles per event and opens them in go tool pprof, the first of two as the base.
func (f *profileFlags) show(cmd *cobra.Command, args, pprof []string) (err error) {
	if err := f.check(len(args)); err != nil {
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
	dir := f.folder
	if dir == "" {
		if dir, err = os.MkdirTemp("", "watchlab-profile-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if len(pprof) == 0 {
		pprof = []string{"-top"}
	}
	line := append([]string{"tool", "pprof"}, pprof...)
	names := []string{"before.pb.gz", "after.pb.gz"}[2-len(sources):]
	for i, source := range sources {
		path := filepath.Join(dir, names[i])
		if err := source.WritePerEvent(path); err != nil {
			return err
		}
		if i+1 < len(sources) {
			line = append(line, "-diff_base", path)
		} else {
			line = append(line, path)
		}
		warn(cmd.ErrOrStderr(), "%s: %s", strings.TrimSuffix(names[i], ".pb.gz"), source)
	}
	if len(sources) == 2 && (sources[0].Events == 0 || sources[1].Events == 0) {
		line = slices.Insert(line, 2, "-normalize") // pprof then compares shares.
	}
	shown := exec.CommandContext(cmd.Context(), "go", line...)
	shown.Stdin, shown.Stdout, shown.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := shown.Run(); err != nil {
		return fmt.Errorf("go tool pprof: %w", err)
	}
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
