// Package stats measures recordings: how many events there are a second, how
// large objects are and how events are spread over keys.
package stats

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/trace"
)

// Recording is what was measured of all resources. Frames go in with Add;
// Finish, once, works out the rest.
type Recording struct {
	Name      string      `json:"name"`
	Resources []*Resource `json:"resources"`
}

// Resource is what was measured of one, after its initial list.
type Resource struct {
	Resource string `json:"resource"`

	Initial int `json:"initial"`

	Added    int `json:"added"`
	Modified int `json:"modified"`
	Deleted  int `json:"deleted"`

	Seconds float64 `json:"seconds"`

	PerSecond float64 `json:"perSecond"`
	Peak      int     `json:"peak"`
	PeakAt    int     `json:"peakAt"`

	SizeMin int64 `json:"sizeMin"`
	SizeP50 int64 `json:"sizeP50"`
	SizeP99 int64 `json:"sizeP99"`
	SizeMax int64 `json:"sizeMax"`
	Bytes   int64 `json:"bytes"`

	Keys      int     `json:"keys"`
	MostOfOne int     `json:"mostOfOne"`
	TopTenth  float64 `json:"topTenth"`

	Zipf float64 `json:"zipf"`

	rate  []int
	sizes []int64

	pending     []event
	ended       bool
	first, last time.Duration
	perKey      map[string]int
	counts      []int
}

type event struct {
	at  time.Duration
	typ watch.EventType
	key string
}

// New returns an empty measurement.
func New(name string) *Recording { return &Recording{Name: name} }

// Add takes a frame. The error is about an object that is none. Memory grows
// with the events, some 50 bytes for each.
func (m *Recording) Add(f trace.Frame) error {
	if f.Break != nil || f.Type == watch.Error {
		return nil
	}
	name := f.Resource.String()
	i := slices.IndexFunc(m.Resources, func(r *Resource) bool { return r.Resource == name })
	if i < 0 {
		i = len(m.Resources)
		m.Resources = append(m.Resources, &Resource{Resource: name, perKey: map[string]int{}})
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
	e := event{f.Offset, f.Type, key}
	if !r.ended {
		// Whether there is an initial list shows at its end.
		r.pending = append(r.pending, e)
		return nil
	}
	r.count(e)
	return nil
}

func (r *Resource) count(e event) {
	if len(r.counts) == 0 && r.Added+r.Modified+r.Deleted == 0 {
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
	if n := second + 1 - len(r.rate); n > 0 {
		r.rate = append(r.rate, make([]int, n)...)
	}
	r.rate[second]++
}

// maxSeconds bounds the memory of a recording whose times are absurd: a month.
const maxSeconds = 31 * 24 * 3600

// Finish works out what follows from all frames.
func (m *Recording) Finish() {
	for _, r := range m.Resources {
		for _, e := range r.pending {
			r.count(e)
		}
		r.pending = nil
		r.finish()
	}
}

func (r *Resource) finish() {
	events := r.Added + r.Modified + r.Deleted
	r.Seconds = (r.last - r.first).Seconds()
	if r.Seconds > 0 {
		r.PerSecond = float64(events) / r.Seconds
	}
	for i, n := range r.rate {
		if n > r.Peak {
			r.Peak, r.PeakAt = n, i
		}
	}
	slices.Sort(r.sizes)
	if n := len(r.sizes); n > 0 {
		r.SizeMin, r.SizeP50, r.SizeP99, r.SizeMax = r.sizes[0], r.sizes[(n-1)/2], r.sizes[(n-1)*99/100], r.sizes[n-1]
	}
	for _, n := range r.perKey {
		r.counts = append(r.counts, n)
	}
	slices.SortFunc(r.counts, func(a, b int) int { return cmp.Compare(b, a) })
	r.Keys = len(r.counts)
	if r.Keys == 0 {
		return
	}
	r.MostOfOne = r.counts[0]
	top := 0
	for _, n := range r.counts[:(r.Keys+9)/10] {
		top += n
	}
	r.TopTenth = float64(top) / float64(events)
	r.Zipf = zipf(r.counts)
}

// zipf returns the exponent for which the counts, sorted from the largest, are
// likeliest, between 0 and 5. The likelihood has one maximum, which is where its
// slope is 0.
func zipf(counts []int) float64 {
	if len(counts) < 2 {
		return 0
	}
	total, logs := 0.0, 0.0
	for i, n := range counts {
		total += float64(n)
		logs += float64(n) * math.Log(float64(i+1))
	}
	// The mean of ln r falls as s grows.
	mean := func(s float64) float64 {
		sum, weighted := 0.0, 0.0
		for i := range counts {
			l := math.Log(float64(i + 1))
			w := math.Exp(-s * l)
			sum += w
			weighted += w * l
		}
		return weighted / sum
	}
	low, high := 0.0, 5.0
	if logs/total >= mean(low) {
		return 0
	}
	for range 40 {
		if s := (low + high) / 2; mean(s) > logs/total {
			low = s
		} else {
			high = s
		}
	}
	return (low + high) / 2
}

// Bytes writes a number of bytes with a unit.
func Bytes(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprintf("%d B", n)
	case n < 1000*1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1000*1000*1000:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
}

// Table writes the measurement, and a chart of each resource's rate.
func (m *Recording) Table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "RESOURCE\tINITIAL\tEVENTS\tADDED\tMODIFIED\tDELETED\tEVENTS/S\tPEAK/S\tAT\tKEYS\tMOST OF ONE\tTOP 10%\tZIPF")
	for _, r := range m.Resources {
		events := r.Added + r.Modified + r.Deleted
		fmt.Fprintf(tw, "%s\t%d\t%d\t%s\t%s\t%s\t%.1f\t%d\t%ds\t%d\t%d\t%.0f%%\t%.2f\n", r.Resource, r.Initial, events,
			share(r.Added, events), share(r.Modified, events), share(r.Deleted, events),
			r.PerSecond, r.Peak, r.PeakAt, r.Keys, r.MostOfOne, 100*r.TopTenth, r.Zipf)
	}
	fmt.Fprintln(tw, "\nRESOURCE\tOBJECTS\tMIN\tMEDIAN\tP99\tMAX")
	for _, r := range m.Resources {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Resource, Bytes(r.Bytes), Bytes(r.SizeMin), Bytes(r.SizeP50), Bytes(r.SizeP99), Bytes(r.SizeMax))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, r := range m.Resources {
		if r.Peak == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s: events a second, %d to %d s, peak %d\n%s\n", r.Resource, 0, len(r.rate), r.Peak, chart(r.rate, chartWidth)); err != nil {
			return err
		}
	}
	return nil
}

func share(n, of int) string {
	if of == 0 {
		return "0%"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(n)/float64(of))
}

// chartWidth is how many columns a chart has at most.
const chartWidth = 72

// chart draws counts as a line of bars, each column the highest of its seconds.
func chart(rate []int, width int) string {
	width = min(width, len(rate))
	if width == 0 {
		return ""
	}
	columns := make([]int, width)
	most := 0
	for i, n := range rate {
		c := i * width / len(rate)
		columns[c] = max(columns[c], n)
		most = max(most, n)
	}
	bars := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, n := range columns {
		i := 0
		if n > 0 {
			// What happened at all is seen.
			i = max(1, (n*(len(bars)-1)+most/2)/most)
		}
		b.WriteRune(bars[i])
	}
	return b.String()
}
