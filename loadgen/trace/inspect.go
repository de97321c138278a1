package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Summary describes a recording. Its JSON form is the output of watchlab trace inspect.
type Summary struct {
	*Stats
	Format      string        `json:"format"`
	Compression string        `json:"compression,omitempty"`
	Header      *Header       `json:"header,omitempty"`
	Stored      int64         `json:"storedBytes"`
	Text        int64         `json:"textBytes"`
	FirstNs     time.Duration `json:"firstNs"`
	LastNs      time.Duration `json:"lastNs"`
	Breaks      []BreakAt     `json:"breaks,omitempty"`
	Faults      []string      `json:"faults,omitempty"` // unreadable parts
}

// BreakAt is a break with its time.
type BreakAt struct {
	AtNs     time.Duration `json:"atNs"`
	Resource string        `json:"resource,omitempty"`
	Break
}

// Inspect reads a recording to its end.
func Inspect(ctx context.Context, name string, in *Input) (*Summary, error) {
	s := &Summary{Stats: &Stats{Name: name}, Format: in.Format(), Compression: in.Compression(), FirstNs: -1}
	if err := errors.Join(eachFrame(ctx, s.add, in), in.Close()); err != nil {
		return nil, err
	}
	s.Finish()
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
	if f.Break == nil {
		return s.Add(f)
	}
	line := BreakAt{AtNs: f.Offset, Break: *f.Break}
	if f.Resource != (Resource{}) {
		line.Resource = f.Resource.String()
	}
	s.Breaks = append(s.Breaks, line)
	return nil
}

// Print prints the summary.
func (s *Summary) Print(w io.Writer) error {
	dash := func(text string) string { return cmp.Or(text, "-") }
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
	fmt.Fprintf(tw, "size\t%s, %s of lines (%.1f×)\n", FormatBytes(s.Stored), FormatBytes(s.Text), float64(s.Text)/float64(max(s.Stored, 1)))
	fmt.Fprintf(tw, "span\t%v to %v\n", s.FirstNs.Round(time.Millisecond), s.LastNs.Round(time.Millisecond))
	if len(s.Breaks) > 0 {
		fmt.Fprintln(tw, "\nBREAK AT\tRESOURCE\tREASON\tDOWN\tADDED\tMODIFIED\tDELETED\tMESSAGE")
	}
	for _, b := range s.Breaks {
		fmt.Fprintf(tw, "%v\t%s\t%s\t%v\t%d\t%d\t%d\t%s\n", b.AtNs.Round(time.Millisecond), dash(b.Resource), b.Reason,
			time.Duration(b.DownNs).Round(time.Millisecond), b.Added, b.Modified, b.Deleted, dash(b.Message))
	}
	fmt.Fprintln(tw)
	if err := tw.Flush(); err != nil {
		return err
	}
	return s.Table(w)
}
