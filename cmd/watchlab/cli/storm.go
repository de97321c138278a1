package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/chart"
	"watchlab/bench/experiment"
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
		RunE:    func(cmd *cobra.Command, _ []string) error { return listStorms(cmd.OutOrStdout()) },
	}
}

func listStorms(w io.Writer) error {
	t := chart.NewTable("", []string{"NAME", "NODES", "PODS", "LENGTH", "RESOURCES", "WHAT HAPPENS"})
	number := func(n int) string {
		if n == 0 {
			return "-"
		}
		return strconv.Itoa(n)
	}
	for _, p := range storm.Profiles() {
		row := []string{p.Name(), number(p.Nodes), number(p.Pods), p.Length().String()}
		// The resources do not depend on the size, so the smallest storm is enough.
		p.Resize(0, 0, 1e-3)
		g, err := p.Generator(1)
		if err != nil {
			return err
		}
		var resources []string
		for _, r := range g.Resources() {
			resources = append(resources, r.Resource)
		}
		t.Add(append(row, strings.Join(resources, ", "), p.Summary())...)
	}
	for _, name := range trace.Names() {
		t.Add(name, "-", "-", "-", "-", "a recording that is built in")
	}
	return t.Text(w)
}

func newStormShow() *cobra.Command {
	f := specFlags{}
	cmd := &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Show a storm: its parameters, rates and events",
		Long: `show prints the parameters of a profile, among them the lengths of its phases, its events by type and their mean rate.
Of a recording it shows what trace inspect does.`,
		Example: `  watchlab storm show leases --nodes 130000`,
		Args: takes(1, 1, "a profile ("+strings.Join(storm.Names(), ", ")+"), a recording ("+strings.Join(trace.Names(), ", ")+
			"), or the file of a trace"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(cmd)
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
	f.add(cmd, nil, func(fl experiment.Field) bool { return stormField(fl) && fl.Path != "storm.name" })
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
	fmt.Fprintf(w, "%s: %s\n%s\n", p.Name(), p.Summary(), strings.Join(p.Params(), "\n"))
	return printEvents(w, g)
}

// printEvents prints the numbers of objects and events of each resource, and the mean rate.
func printEvents(w io.Writer, g *storm.Generator) error {
	resources := g.Resources()
	initial, counts, last := make([]int, len(resources)), make([][4]int, len(resources)), time.Duration(0)
	for s := range g.Initial {
		initial[s.Stream]++
	}
	kinds := []storm.Kind{storm.Added, storm.Modified, storm.Deleted}
	for s := (storm.Step{}); g.Next(&s); {
		last = max(last, s.At)
		if k := slices.Index(kinds, s.Kind); k >= 0 {
			counts[s.Stream][0]++
			counts[s.Stream][k+1]++
		}
	}
	t := chart.NewTable("", nil, "resource", "at first", "events", "added", "modified", "deleted", "events/s")
	for i, r := range resources {
		row := []string{r.Resource, strconv.Itoa(initial[i])}
		for _, n := range counts[i] {
			row = append(row, strconv.Itoa(n))
		}
		t.Add(append(row, fmt.Sprintf("%.1f", float64(counts[i][0])/last.Seconds()))...)
	}
	_, err := io.WriteString(w, t.Fitted("  ", math.MaxInt))
	return err
}
