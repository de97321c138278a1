package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// stormNames lists the valid names of a storm.
func stormNames() string {
	return "a profile (" + strings.Join(storm.Names(), ", ") + "), a recording (" + strings.Join(trace.Names(), ", ") +
		"), or a file: a trace, or profiles in YAML (*.yaml)"
}

func newStorm() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "storm",
		Short: "List and show the storms that can be made",
		Example: `  watchlab storm list
  watchlab storm show nodeloss --nodes 100
  watchlab storm show nodeloss > mine.yaml    # change it, then: watchlab run --storm mine.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStormList(), newStormShow())
	return cmd
}

func newStormList() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the profiles, and the recordings that are built in",
		Example: `  watchlab storm list
  watchlab storm list -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			profiles, err := listProfiles()
			if err != nil {
				return err
			}
			switch output {
			case "json":
				return printJSON(cmd.OutOrStdout(), profiles)
			case "table":
				return printProfiles(cmd.OutOrStdout(), profiles)
			}
			return badFlag("output", experiment.OneOf(output, "table", "json"))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	return cmd
}

// profileEntry is a line of storm list.
type profileEntry struct {
	Name      string   `json:"name"`
	Nodes     int      `json:"nodes,omitempty"`
	Pods      int      `json:"pods,omitempty"`
	Length    string   `json:"length,omitempty"`
	Resources []string `json:"resources,omitempty"`
	Summary   string   `json:"summary"`
}

func listProfiles() ([]profileEntry, error) {
	var out []profileEntry
	for _, p := range storm.Profiles() {
		e := profileEntry{Name: p.Name(), Nodes: p.Nodes, Pods: p.Pods, Length: p.Length().String(), Summary: p.Summary()}
		// The resources do not depend on the size, so the smallest storm is enough.
		p.Resize(0, 0, 1e-3)
		g, err := storm.Compose(p, 1).Generator()
		if err != nil {
			return nil, err
		}
		for _, r := range g.Resources() {
			e.Resources = append(e.Resources, r.Resource)
		}
		out = append(out, e)
	}
	for _, name := range trace.Names() {
		out = append(out, profileEntry{Name: name, Summary: "a recording that is built in"})
	}
	return out, nil
}

func printProfiles(w io.Writer, profiles []profileEntry) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "NAME\tNODES\tPODS\tLENGTH\tRESOURCES\tWHAT HAPPENS")
	dash := func(s string) string {
		if s == "" || s == "0" {
			return "-"
		}
		return s
	}
	for _, p := range profiles {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", p.Name, dash(fmt.Sprint(p.Nodes)), dash(fmt.Sprint(p.Pods)), dash(p.Length),
			dash(strings.Join(p.Resources, ", ")), p.Summary)
	}
	return tw.Flush()
}

func newStormShow() *cobra.Command {
	f := specFlags{}
	cmd := &cobra.Command{
		Use:   "show NAME|FILE",
		Short: "Show a storm: its parameters, phases, rates, sizes and events",
		Long: `show prints the parameters of a profile, or of a file of profiles, as YAML that
can be changed and fed back with --storm FILE. What follows from them is there as
comments: how many events of which kind, how many a second in each phase, and how
large the objects are. Of a recording there is only the latter.`,
		Example: `  watchlab storm show rollout
  watchlab storm show leases --nodes 130000
  watchlab storm show recorded-gang`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("storm show takes one argument: " + stormNames())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := f.spec(cmd)
			if err != nil {
				return err
			}
			spec.Storm.Name = args[0]
			if err := spec.Storm.Validate(); err != nil {
				return f.blame(cmd, err)
			}
			return showStorm(cmd.OutOrStdout(), spec.Storm, cmp.Or(spec.Seed, 1))
		},
	}
	f.add(cmd, nil, func(fl experiment.Field) bool { return stormField(fl) && fl.Path != "storm.name" })
	cmd.ValidArgs = stormChoices()
	return cmd
}

// stormField reports whether a field selects the generated storm.
func stormField(f experiment.Field) bool {
	return strings.HasPrefix(f.Path, "storm.") || f.Path == "seed"
}

func showStorm(w io.Writer, s experiment.Storm, seed int64) error {
	if !s.IsComposition() {
		set, err := trace.LoadSet(s.Name)
		if err != nil {
			return usageError{err}
		}
		return digestSet(set).print(w, nil)
	}
	c, err := s.Composition(seed)
	if err != nil {
		return usageError{err}
	}
	text, err := c.YAML()
	if err != nil {
		return err
	}
	for _, p := range c.Parts {
		fmt.Fprintf(w, "# %s: %s\n", p.Profile.Name(), p.Profile.Summary())
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	g, err := c.Generator()
	if err != nil {
		return usageError{err}
	}
	return digestGenerator(g).print(w, g.Phases())
}

// digest is a summary of a storm's content.
type digest struct {
	resources []resourceDigest
}

// resourceDigest is the summary of one resource.
type resourceDigest struct {
	name     string
	initial  int
	added    int
	modified int
	deleted  int
	relist   int
	resync   int
	last     time.Duration
	at       []time.Duration
	sizes    []int
}

// sizeSamples is the number of measured objects of a resource.
const sizeSamples = 400

func (d *resourceDigest) event(kind storm.Kind, at time.Duration) {
	switch kind {
	case storm.Added:
		d.added++
	case storm.Modified:
		d.modified++
	case storm.Deleted:
		d.deleted++
	}
	d.at = append(d.at, at)
	d.last = max(d.last, at)
}

func (d *resourceDigest) measure(o any) {
	if b, err := json.Marshal(o); err == nil {
		d.sizes = append(d.sizes, len(b))
	}
}

func digestSet(set *storm.Set) *digest {
	d := &digest{}
	for _, s := range set.Storms {
		r := resourceDigest{name: s.Resource.Resource, initial: s.Initial}
		every := max(1, len(s.Events)/sizeSamples)
		for i := range s.Events {
			e := &s.Events[i]
			if i%every == 0 {
				r.measure(e.Object)
			}
			if i >= s.Initial {
				r.event(kindOf(e), e.At)
			}
		}
		for _, m := range s.Marks {
			r.mark(m.Type)
		}
		d.resources = append(d.resources, r)
	}
	return d
}

func (d *resourceDigest) mark(w storm.MarkType) {
	if w == storm.MarkRelist {
		d.relist++
	} else {
		d.resync++
	}
}

func kindOf(e *storm.Event) storm.Kind {
	for _, k := range []storm.Kind{storm.Added, storm.Modified, storm.Deleted} {
		if k.Type() == e.Type {
			return k
		}
	}
	return storm.Modified
}

// digestGenerator summarises the whole storm of a generator.
func digestGenerator(g *storm.Generator) *digest {
	d := &digest{}
	for i, res := range g.Resources() {
		r := resourceDigest{name: res.Resource}
		keys := g.Keys(uint8(i))
		for k := range keys {
			if state, there := g.Initial(uint8(i), int32(k)); there {
				r.initial++
				if k%max(1, keys/sizeSamples) == 0 {
					r.measure(g.Object(storm.Step{Stream: uint8(i), Key: int32(k), State: state}))
				}
			}
		}
		d.resources = append(d.resources, r)
	}
	for s := (storm.Step{}); g.Next(&s); {
		r := &d.resources[s.Stream]
		switch s.Kind {
		case storm.RelistStep:
			r.relist++
		case storm.ResyncStep:
			r.resync++
		default:
			r.event(s.Kind, s.At)
			// Samples get rarer: marshalling every object would take longer than
			// generating it.
			if n := len(r.at); n&(n-1) == 0 || n%1009 == 0 && len(r.sizes) < 2*sizeSamples {
				r.measure(g.Object(s))
			}
		}
	}
	return d
}

// print writes the digest as YAML comments in columns.
func (d *digest) print(w io.Writer, phases []storm.Phase) error {
	w = &commented{w: w, start: true}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "resource\tat first\tevents\tadded\tmodified\tdeleted\tpeak/s\tlast\tbytes: min\tmedian\tmax\t")
	for i := range d.resources {
		r := &d.resources[i]
		slices.Sort(r.sizes)
		at := func(q float64) string {
			if len(r.sizes) == 0 {
				return "-"
			}
			return fmt.Sprint(r.sizes[int(q*float64(len(r.sizes)-1))])
		}
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%v\t%s\t%s\t%s\t\n", r.name, r.initial, len(r.at), r.added, r.modified, r.deleted,
			r.peak(), r.last.Round(time.Millisecond), at(0), at(0.5), at(1))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i := range d.resources {
		r := &d.resources[i]
		if r.relist+r.resync > 0 {
			fmt.Fprintf(w, "  %s: %d times relisted, %d times resynced\n", r.name, r.relist, r.resync)
		}
	}
	if len(phases) == 0 {
		return nil
	}
	fmt.Fprint(tw, "phase\tfrom\tto\t")
	for i := range d.resources {
		fmt.Fprintf(tw, "%s/s\t", d.resources[i].name)
	}
	fmt.Fprintln(tw)
	for _, p := range phases {
		fmt.Fprintf(tw, "%s\t%v\t%v\t", p.Name, p.From, p.To)
		for i := range d.resources {
			n := 0
			for _, at := range d.resources[i].at {
				if at >= p.From && at < p.To {
					n++
				}
			}
			fmt.Fprintf(tw, "%.1f\t", float64(n)/(p.To-p.From).Seconds())
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// commented is a writer that turns lines into YAML comments.
type commented struct {
	w     io.Writer
	start bool
}

func (c *commented) Write(b []byte) (int, error) {
	for i, line := range bytes.SplitAfter(b, []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		if c.start || i > 0 {
			if _, err := c.w.Write([]byte("#")); err != nil {
				return 0, err
			}
		}
		c.start = line[len(line)-1] == '\n'
		if _, err := c.w.Write(line); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// peak returns the largest number of events in one second of the clock.
func (d *resourceDigest) peak() int {
	seconds := map[int64]int{}
	most := 0
	for _, at := range d.at {
		s := int64(at / time.Second)
		seconds[s]++
		most = max(most, seconds[s])
	}
	return most
}
