package trace

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/perf/benchunit"
	"k8s.io/apimachinery/pkg/watch"
)

// Stats measures a recording: rates, object sizes, and the distribution of events over keys.
// Set Name, call Add for each frame, then Finish once to compute the other fields.
type Stats struct {
	Name      string           `json:"name"`      // name of the recording
	Resources []*ResourceStats `json:"resources"` // one entry per resource, in order of appearance
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
	Counts    []int   `json:"-"`         // events of each key, in descending order

	sizes       []int64
	pending     []keyEvent // events before the end of the initial list, if there is one
	ended       bool
	first, last time.Duration
	perKey      map[string]int
}

type keyEvent struct {
	at  time.Duration
	typ watch.EventType
	key string
}

// Add counts a frame. It returns an error for an invalid object. Memory grows by
// about 50 bytes per event.
func (m *Stats) Add(f Frame) error {
	if f.Break != nil || f.Type == watch.Error {
		return nil
	}
	name := f.Resource.String()
	i := slices.IndexFunc(m.Resources, func(r *ResourceStats) bool { return r.Resource == name })
	if i < 0 {
		i = len(m.Resources)
		m.Resources = append(m.Resources, &ResourceStats{Resource: name, perKey: map[string]int{}})
	}
	r := m.Resources[i]
	if f.Type == watch.Bookmark {
		if !r.ended && f.EndsInitial() {
			r.Initial, r.pending, r.ended = len(r.pending), nil, true
		}
		return nil
	}
	key, _, err := f.Key()
	if err != nil {
		return err
	}
	r.sizes = append(r.sizes, int64(len(f.Object)))
	r.Bytes += int64(len(f.Object))
	e := keyEvent{f.Offset, f.Type, key}
	if !r.ended {
		// Only its end shows whether there is an initial list.
		r.pending = append(r.pending, e)
		return nil
	}
	r.count(e)
	return nil
}

func (r *ResourceStats) count(e keyEvent) {
	if r.Added+r.Modified+r.Deleted == 0 {
		r.first = e.at
	}
	r.last = e.at
	switch e.typ {
	case watch.Added:
		r.Added++
	case watch.Modified:
		r.Modified++
	case watch.Deleted:
		r.Deleted++
	}
	r.perKey[e.key]++
	second := int(min(e.at/time.Second, maxSeconds-1))
	if n := second + 1 - len(r.Rate); n > 0 {
		r.Rate = append(r.Rate, make([]int, n)...)
	}
	r.Rate[second]++
}

const maxSeconds = 31 * 24 * 3600 // a month; limits the memory for a recording with absurd times

// Finish computes the fields from all frames.
func (m *Stats) Finish() {
	for _, r := range m.Resources {
		for _, e := range r.pending {
			r.count(e)
		}
		r.pending = nil
		r.finish()
	}
}

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
	for _, n := range r.perKey {
		r.Counts = append(r.Counts, n)
	}
	slices.SortFunc(r.Counts, func(a, b int) int { return cmp.Compare(b, a) })
	r.Keys = len(r.Counts)
	if r.Keys == 0 {
		return
	}
	r.MostOfOne = r.Counts[0]
	top := 0
	for _, n := range r.Counts[:(r.Keys+9)/10] {
		top += n
	}
	r.TopTenth = float64(top) / float64(events)
}

// FormatBytes writes a number of bytes with a decimal prefix.
func FormatBytes(n int64) string { return benchunit.Scale(float64(n), benchunit.Decimal) + "B" }

// Table writes the statistics.
func (m *Stats) Table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "RESOURCE\tINITIAL\tEVENTS\tADDED\tMODIFIED\tDELETED\tEVENTS/S\tPEAK/S\tAT\tKEYS\tMOST OF ONE\tTOP 10%")
	for _, r := range m.Resources {
		events := r.Added + r.Modified + r.Deleted
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s\t%.1f\t%d\t%ds\t%d\t%d\t%.0f%%\n", r.Resource, r.Initial, events,
			percent(r.Added, events), percent(r.Modified, events), percent(r.Deleted, events),
			r.PerSecond, r.Peak, r.PeakAt, r.Keys, r.MostOfOne, 100*r.TopTenth)
	}
	fmt.Fprintln(tw, "\nRESOURCE\tOBJECTS\tMIN\tMEDIAN\tP99\tMAX")
	for _, r := range m.Resources {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Resource, FormatBytes(r.Bytes), FormatBytes(r.SizeMin), FormatBytes(r.SizeP50), FormatBytes(r.SizeP99), FormatBytes(r.SizeMax))
	}
	return tw.Flush()
}

func percent(n, all int) string {
	return fmt.Sprintf("%.0f%%", 100*float64(n)/float64(max(all, 1)))
}
