package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/perf/benchunit"
	"k8s.io/apimachinery/pkg/watch"
)

// Summary describes a recording: rates, object sizes, the distribution of events over keys, and gaps. Its JSON form is
// the output of watchlab trace inspect.
type Summary struct {
	Name        string           `json:"name"`      // name of the recording
	Resources   []*ResourceStats `json:"resources"` // one entry per resource, in order of appearance
	Format      string           `json:"format"`
	Compression string           `json:"compression,omitempty"`
	Header      *Header          `json:"header,omitempty"`
	Stored      int64            `json:"storedBytes"`
	Text        int64            `json:"textBytes"`
	FirstNs     time.Duration    `json:"firstNs"`
	LastNs      time.Duration    `json:"lastNs"`
	Breaks      []BreakAt        `json:"breaks,omitempty"`
	Faults      []string         `json:"faults,omitempty"` // unreadable parts
}

// ResourceStats measures the events of one resource after its initial list.
type ResourceStats struct {
	Resource  string  `json:"resource"` // resource as [Resource.String] formats it
	Initial   int     `json:"initial"`  // number of objects in the initial list
	Added     int     `json:"added"`    // Added, Modified and Deleted count the events
	Modified  int     `json:"modified"`
	Deleted   int     `json:"deleted"`
	Seconds   float64 `json:"seconds"`   // time from the first event to the last
	PerSecond float64 `json:"perSecond"` // mean rate over Seconds
	Peak      int     `json:"peak"`      // maximum number of events in one second
	PeakAt    int     `json:"peakAt"`    // that second, from the start of the recording
	// Object sizes in bytes of JSON, with the initial list: minimum to maximum, and the sum.
	SizeMin   int64   `json:"sizeMin"`
	SizeP50   int64   `json:"sizeP50"`
	SizeP99   int64   `json:"sizeP99"`
	SizeMax   int64   `json:"sizeMax"`
	Bytes     int64   `json:"bytes"`     // sum of the sizes
	Keys      int     `json:"keys"`      // number of keys with events
	MostOfOne int     `json:"mostOfOne"` // number of events of the busiest key
	TopTenth  float64 `json:"topTenth"`  // fraction of the events of the busiest tenth of the keys
	Rate      []int   `json:"rate"`      // events of each second

	sizes       []int64
	ended       bool // the initial list
	first, last time.Duration
	perKey      map[string]int
}

// BreakAt is a break with its time.
type BreakAt struct {
	AtNs     time.Duration `json:"atNs"`
	Resource string        `json:"resource,omitempty"`
	Break
}

// Inspect reads a recording to its end. Memory grows with the number of events.
func Inspect(ctx context.Context, name string, in *Input) (*Summary, error) {
	s := &Summary{Name: name, Format: in.Format(), Compression: in.Compression(), FirstNs: -1}
	if err := errors.Join(eachFrame(ctx, s.add, in), in.Close()); err != nil {
		return nil, err
	}
	for _, r := range s.Resources {
		r.finish()
	}
	s.FirstNs = max(s.FirstNs, 0)
	if in.Format() == TraceFormat {
		s.Header = new(in.Header())
	}
	s.Stored, s.Text = in.Sizes()
	for _, e := range in.Faults {
		s.Faults = append(s.Faults, e.Error())
	}
	return s, nil
}

func (s *Summary) add(f Frame) error {
	if s.FirstNs < 0 {
		s.FirstNs = f.Offset
	}
	s.LastNs = f.Offset
	if f.Break != nil {
		line := BreakAt{AtNs: f.Offset, Break: *f.Break}
		if f.Resource != (Resource{}) {
			line.Resource = f.Resource.String()
		}
		s.Breaks = append(s.Breaks, line)
		return nil
	}
	if f.Type == watch.Error {
		return nil
	}
	name := f.Resource.String()
	i := slices.IndexFunc(s.Resources, func(r *ResourceStats) bool { return r.Resource == name })
	if i < 0 {
		i = len(s.Resources)
		s.Resources = append(s.Resources, &ResourceStats{Resource: name, perKey: map[string]int{}})
	}
	return s.Resources[i].add(f)
}

func (r *ResourceStats) add(f Frame) error {
	if f.Type == watch.Bookmark {
		if !r.ended && f.EndsInitial() { // Only its end shows that there is an initial list.
			*r = ResourceStats{Resource: r.Resource, Initial: len(r.sizes), Bytes: r.Bytes, sizes: r.sizes, ended: true, perKey: map[string]int{}}
		}
		return nil
	}
	key, _, err := f.Key()
	if err != nil {
		return err
	}
	r.sizes = append(r.sizes, int64(len(f.Object)))
	r.Bytes += int64(len(f.Object))
	if r.Added+r.Modified+r.Deleted == 0 {
		r.first = f.Offset
	}
	r.last = f.Offset
	switch f.Type {
	case watch.Added:
		r.Added++
	case watch.Modified:
		r.Modified++
	case watch.Deleted:
		r.Deleted++
	}
	r.perKey[key]++
	second := int(min(f.Offset/time.Second, maxSeconds-1))
	if n := second + 1 - len(r.Rate); n > 0 {
		r.Rate = append(r.Rate, make([]int, n)...)
	}
	r.Rate[second]++
	return nil
}

const maxSeconds = 31 * 24 * 3600 // a month; limits the memory for a recording with absurd times

// finish computes the other fields.
func (r *ResourceStats) finish() {
	events := r.Added + r.Modified + r.Deleted
	r.Seconds = (r.last - r.first).Seconds()
	if r.Seconds > 0 {
		r.PerSecond = float64(events) / r.Seconds
	}
	for i, n := range r.Rate {
		if n > r.Peak {
			r.Peak, r.PeakAt = n, i
		}
	}
	slices.Sort(r.sizes)
	if n := len(r.sizes); n > 0 {
		r.SizeMin, r.SizeP50, r.SizeP99, r.SizeMax = r.sizes[0], r.sizes[(n-1)/2], r.sizes[(n-1)*99/100], r.sizes[n-1]
	}
	counts := slices.Sorted(maps.Values(r.perKey))
	r.Keys = len(counts)
	if r.Keys == 0 {
		return
	}
	r.MostOfOne = counts[r.Keys-1]
	top := 0
	for _, n := range counts[r.Keys-(r.Keys+9)/10:] {
		top += n
	}
	r.TopTenth = float64(top) / float64(events)
}

// Print prints the summary.
func (s *Summary) Print(w io.Writer) error {
	dash := func(text string) string { return cmp.Or(text, "-") }
	size := func(n int64) string { return benchunit.Scale(float64(n), benchunit.Decimal) + "B" }
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	format := s.Format
	if s.Compression != "" {
		format += ", " + s.Compression
	}
	fmt.Fprintf(tw, "name\t%s\nformat\t%s\n", s.Name, format)
	if h := s.Header; h != nil {
		fmt.Fprintf(tw, "version\t%d\nwritten by\t%s\norigin\t%s\n", h.Format, dash(h.Tool), dash(h.Origin))
		if !h.Started.IsZero() {
			fmt.Fprintf(tw, "started\t%s\n", h.Started.Format(time.RFC3339))
		}
		fmt.Fprintf(tw, "anonymised\t%s\n", map[bool]string{true: "yes", false: "no"}[h.Anonymised])
	}
	fmt.Fprintf(tw, "size\t%s, %s of lines (%.1f×)\n", size(s.Stored), size(s.Text), float64(s.Text)/float64(max(s.Stored, 1)))
	fmt.Fprintf(tw, "span\t%v to %v\n", s.FirstNs.Round(time.Millisecond), s.LastNs.Round(time.Millisecond))
	if len(s.Breaks) > 0 {
		fmt.Fprintln(tw, "\nBREAK AT\tRESOURCE\tREASON\tDOWN\tADDED\tMODIFIED\tDELETED\tMESSAGE")
	}
	for _, b := range s.Breaks {
		fmt.Fprintf(tw, "%v\t%s\t%s\t%v\t%d\t%d\t%d\t%s\n", b.AtNs.Round(time.Millisecond), dash(b.Resource), b.Reason,
			time.Duration(b.DownNs).Round(time.Millisecond), b.Added, b.Modified, b.Deleted, dash(b.Message))
	}
	fmt.Fprintln(tw, "\nRESOURCE\tINITIAL\tEVENTS\tADDED\tMODIFIED\tDELETED\tEVENTS/S\tPEAK/S\tAT\tKEYS\tMOST OF ONE\tTOP 10%")
	for _, r := range s.Resources {
		events := r.Added + r.Modified + r.Deleted
		percent := func(n int) string { return fmt.Sprintf("%.0f%%", 100*float64(n)/float64(max(events, 1))) }
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s\t%.1f\t%d\t%ds\t%d\t%d\t%.0f%%\n", r.Resource, r.Initial, events,
			percent(r.Added), percent(r.Modified), percent(r.Deleted), r.PerSecond, r.Peak, r.PeakAt, r.Keys, r.MostOfOne, 100*r.TopTenth)
	}
	fmt.Fprintln(tw, "\nRESOURCE\tOBJECTS\tMIN\tMEDIAN\tP99\tMAX")
	for _, r := range s.Resources {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Resource, size(r.Bytes), size(r.SizeMin), size(r.SizeP50), size(r.SizeP99), size(r.SizeMax))
	}
	return tw.Flush()
}
