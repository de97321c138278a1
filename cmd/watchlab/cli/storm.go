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

func stormNames() string {
	return "a profile (" + strings.Join(storm.Names(), ", ") + "), a recording (" + strings.Join(trace.Names(), ", ") +
		"), or the file of a trace"
}

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
		Short: "Show a storm: its parameters, phases, rates and events",
		Long: `show prints the parameters of a profile, its events by type and the rate of each phase. Of a
recording it shows what trace inspect does.`,
		Example: `  watchlab storm show leases --nodes 130000`,
		Args:    takes(1, 1, stormNames()),
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
	return printDigest(w, digestOf(g), g.Phases())
}

// digest is of one resource.
type digest struct {
	name    string
	initial int
	count   map[storm.Kind]int // number of steps by kind
	at      []time.Duration    // times of the events in order
}

func digestOf(g *storm.Generator) []digest {
	var all []digest
	for _, res := range g.Resources() {
		all = append(all, digest{name: res.Resource, count: map[storm.Kind]int{}})
	}
	for s := range g.Initial {
		all[s.Stream].initial++
	}
	for s := (storm.Step{}); g.Next(&s); {
		d := &all[s.Stream]
		d.count[s.Kind]++
		if s.Kind != storm.RelistStep && s.Kind != storm.ResyncStep {
			d.at = append(d.at, s.At)
		}
	}
	return all
}

// peak returns the most events in one second of the clock, and the time of the last event.
func (d *digest) peak() (most int, last time.Duration) {
	seconds := map[time.Duration]int{}
	for _, at := range d.at {
		last = max(last, at)
		second := at.Truncate(time.Second)
		seconds[second]++
		most = max(most, seconds[second])
	}
	return most, last
}

func printDigest(w io.Writer, all []digest, phases []storm.Phase) error {
	events := chart.NewTable("", nil, "resource", "at first", "events", "added", "modified", "deleted", "peak/s", "last")
	for _, d := range all {
		peak, last := d.peak()
		line := []string{d.name}
		for _, n := range []int{d.initial, len(d.at), d.count[storm.Added], d.count[storm.Modified], d.count[storm.Deleted], peak} {
			line = append(line, strconv.Itoa(n))
		}
		events.Add(append(line, last.Round(time.Millisecond).String())...)
	}
	if _, err := io.WriteString(w, events.Fitted("  ", math.MaxInt)); err != nil {
		return err
	}
	for _, d := range all {
		if relists, resyncs := d.count[storm.RelistStep], d.count[storm.ResyncStep]; relists+resyncs > 0 {
			fmt.Fprintf(w, "  %s: %d times relisted, %d times resynced\n", d.name, relists, resyncs)
		}
	}
	if len(phases) == 0 {
		return nil
	}
	rates := chart.NewTable("", nil, "phase", "from", "to")
	for _, d := range all {
		rates.Figures(d.name + "/s")
	}
	for _, p := range phases {
		line := []string{p.Name, p.From.String(), p.To.String()}
		for _, d := range all {
			from, _ := slices.BinarySearch(d.at, p.From)
			to, _ := slices.BinarySearch(d.at, p.To)
			line = append(line, fmt.Sprintf("%.1f", float64(to-from)/(p.To-p.From).Seconds()))
		}
		rates.Add(line...)
	}
	_, err := io.WriteString(w, rates.Fitted("  ", math.MaxInt))
	return err
}
