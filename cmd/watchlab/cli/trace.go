package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/experiment"
	"watchlab/bench/report"
	"watchlab/loadgen/trace"
)

func newTrace() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "trace",
		Short: "Inspect, convert, cut and merge recorded watch streams",
		Long: `A recording is a name (see run --storm), a trace (*.jsonl.zst), JSON lines, or the output of a
watch ({"type":…,"object":…}); the latter two plain or compressed by gzip or zstd. "-" is
stdin. Unreadable parts are reported with their place, the rest is used, and the exit code is 1.`,
		Example: `  watchlab trace inspect storm.jsonl.zst --svg storm.svg
  watchlab trace convert storm.jsonl.zst piece.jsonl.zst --from 30s --to 1m
  watchlab trace convert storm.jsonl.zst - | head -1`,
	}, newTraceInspect(), newTraceConvert())
}

// input is a recording that is being read. It collects unreadable parts as faults.
type input struct {
	*trace.Reader
	frame  trace.Frame   // next frame
	err    error         // of reading it; io.EOF at the end
	shift  time.Duration // added to the times of the frames
	faults []*trace.Error
	close  func() error
	some   bool // at least one frame with content was read
}

// openTrace reads the first frame, too: it names the main resource if there is no header.
func openTrace(cmd *cobra.Command, name string) (*input, error) {
	in := &input{close: func() error { return nil }}
	if name == "-" {
		in.Reader = trace.NewReader(cmd.InOrStdin(), "stdin")
	} else {
		f, err := trace.Open(name)
		if err != nil {
			return nil, usageError{err}
		}
		in.Reader, in.close = trace.NewReader(f, name), f.Close
	}
	in.Tolerate(func(e *trace.Error) { in.faults = append(in.faults, e) })
	in.advance()
	return in, nil
}

// advance reads the next frame. A recording without any readable frame is a usage error.
func (in *input) advance() {
	in.frame, in.err = in.Next()
	switch {
	case in.err == nil && in.frame.Break == nil:
		in.some = true
	case errors.Is(in.err, io.EOF) && !in.some && len(in.faults) > 0:
		in.err, in.faults = usageError{in.faults[0]}, nil // The error already names these faults.
	}
}

// eachFrame calls f for the inputs' frames in order of time; at equal times the first input's
// come first. It stops at the end or at an interrupt.
func eachFrame(cmd *cobra.Command, f func(trace.Frame) error, inputs ...*input) error {
	for cmd.Context().Err() == nil {
		var next *input
		for _, in := range inputs {
			switch {
			case errors.Is(in.err, io.EOF):
			case in.err != nil:
				return in.err
			case next == nil || in.frame.Offset+in.shift < next.frame.Offset+next.shift:
				next = in
			}
		}
		if next == nil {
			return nil
		}
		fr := next.frame
		fr.Offset += next.shift
		if err := f(fr); err != nil {
			return err
		}
		next.advance()
	}
	return errInterrupted
}

type summary struct {
	*trace.Stats
	Format      string        `json:"format"`
	Compression string        `json:"compression,omitempty"`
	Header      *trace.Header `json:"header,omitempty"`
	Stored      int64         `json:"storedBytes"`
	Text        int64         `json:"textBytes"`
	FirstNs     time.Duration `json:"firstNs"`
	LastNs      time.Duration `json:"lastNs"`
	Breaks      []breakLine   `json:"breaks,omitempty"`
	Faults      []string      `json:"faults,omitempty"`

	faults []*trace.Error
}

type breakLine struct {
	AtNs     time.Duration `json:"atNs"`
	Resource string        `json:"resource,omitempty"`
	trace.Break
}

func newTraceInspect() *cobra.Command {
	var svg string
	var overwrite bool
	var out outputFlag[*summary]
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show a recording: origin, rates, sizes, key skew, interruptions, damage",
		Long: `inspect shows the origin and the interruptions of a recording, and each resource after its
initial list: events, mean and peak rate, sizes, and the spread over keys.`,
		Example: `  watchlab trace inspect recorded-gang --svg gang.svg`,
		Args:    takes(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			write, err := out.writer()
			if err != nil {
				return err
			}
			if _, err := os.Lstat(svg); svg != "" && err == nil && !overwrite {
				return badFlag("svg", fmt.Errorf("%s exists (--overwrite replaces it)", svg))
			}
			s, err := inspect(cmd, args[0])
			if err != nil {
				return err
			}
			err = write(cmd.OutOrStdout(), s)
			if err == nil && svg != "" {
				err = writeFile(svg, overwrite, func(w io.Writer) error {
					_, err := w.Write(report.TraceSVG(s.Stats))
					return err
				})
			}
			return errors.Join(err, reportFaults(cmd.ErrOrStderr(), s.faults))
		},
	}
	out.add(cmd, "table", form[*summary]{"table", printSummary}, form[*summary]{"json", printJSON[*summary]})
	cmd.Flags().StringVar(&svg, "svg", "", "SVG file for charts of rates and skew")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace an existing SVG file")
	return cmd
}

func inspect(cmd *cobra.Command, name string) (*summary, error) {
	in, err := openTrace(cmd, name)
	if err != nil {
		return nil, err
	}
	s := &summary{Stats: &trace.Stats{Name: name}, Format: in.Format(), Compression: in.Compression(), FirstNs: -1}
	if err := errors.Join(eachFrame(cmd, s.add, in), in.close()); err != nil {
		return nil, err
	}
	s.Finish()
	s.FirstNs = max(s.FirstNs, 0)
	if in.Format() == trace.TraceFormat {
		h := in.Header()
		s.Header = &h
	}
	s.Stored, s.Text = in.Sizes()
	s.faults = in.faults
	for _, e := range in.faults {
		s.Faults = append(s.Faults, e.Error())
	}
	return s, nil
}

func (s *summary) add(f trace.Frame) error {
	if s.FirstNs < 0 {
		s.FirstNs = f.Offset
	}
	s.LastNs = f.Offset
	if f.Break == nil {
		return s.Add(f)
	}
	line := breakLine{AtNs: f.Offset, Break: *f.Break}
	if f.Resource != (trace.Resource{}) {
		line.Resource = f.Resource.String()
	}
	s.Breaks = append(s.Breaks, line)
	return nil
}

func printSummary(w io.Writer, s *summary) error {
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
		fmt.Fprintf(tw, "anonymised\t%s\n", yesNo(h.Anonymised))
	}
	fmt.Fprintf(tw, "size\t%s, %s of lines (%.1f×)\n", trace.FormatBytes(s.Stored), trace.FormatBytes(s.Text), float64(s.Text)/float64(max(s.Stored, 1)))
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

type convertFlags struct {
	format             string
	from, to           time.Duration
	only               []string
	anonymise, byClock bool
	overwrite          bool
}

const (
	asTrace = "trace"
	asLines = "lines"
	asWatch = "watch"
)

func newTraceConvert() *cobra.Command {
	var f convertFlags
	cmd := &cobra.Command{
		Use:   "convert IN… OUT|-",
		Short: "Write recordings in another format, cut, merged or repaired",
		Long: `convert writes a recording as a trace, as JSON lines with times, or as the output of a watch,
which has none. It leaves out what cannot be read, and adjusts events to the ones before, so that
the result can be played.

--from and --to select a part, whose times count from --from; the state at --from becomes its
initial list. Several recordings are merged by time, from the start of each or, with --by-clock,
from the earliest start; objects of one name count as one object.`,
		Example: `  watchlab trace convert storm.jsonl.zst - --format watch
  watchlab trace convert storm.jsonl.zst.partial storm.jsonl.zst    # after a kill
  watchlab trace convert storm.jsonl.zst piece.jsonl.zst --from 30s --to 1m
  watchlab trace convert pods.jsonl.zst nodes.jsonl.zst both.jsonl.zst`,
		Args: takes(2, math.MaxInt, "IN… and OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			return f.run(cmd, args[:last], args[last])
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.format, "format", "", "format: trace, lines, watch (default: by OUT's name; lines for -)")
	fl.DurationVar(&f.from, "from", 0, "begin of the part")
	fl.DurationVar(&f.to, "to", math.MaxInt64, "end of the part")
	fl.Lookup("to").DefValue = "end"
	fl.StringSliceVar(&f.only, "resource", nil, "resources to write, such as pods or apps/v1/deployments (default: all)")
	fl.BoolVar(&f.anonymise, "anonymise", false, "replace names and values")
	fl.BoolVar(&f.byClock, "by-clock", false, "merge by the time of day (default: from each start)")
	fl.BoolVar(&f.overwrite, "overwrite", false, "replace an existing file")
	return cmd
}

func (f *convertFlags) run(cmd *cobra.Command, names []string, out string) error {
	switch formats := []string{asTrace, asLines, asWatch}; {
	case f.format != "" && !slices.Contains(formats, f.format):
		return badFlag("format", experiment.OneOf(f.format, formats...))
	case f.from < 0:
		return badFlag("from", fmt.Errorf("%v is negative", f.from))
	case f.to <= f.from:
		return badFlag("to", fmt.Errorf("%v is not after --from %v", f.to, f.from))
	}
	transform := transformOf(f.anonymise)
	var inputs []*input
	for _, name := range names {
		in, err := openTrace(cmd, name)
		if err != nil {
			return err
		}
		defer func() { _ = in.close() }()
		inputs = append(inputs, in)
	}
	h, err := f.header(inputs)
	if err != nil {
		return err
	}
	write := func(to io.Writer) error {
		w, err := frameWriter(to, cmp.Or(f.format, formatOf(out)), h)
		if err != nil {
			return err
		}
		c := converter{w: w, only: f.only, length: f.to - f.from, transform: transform, state: map[trace.Resource]*state{}}
		if err := eachFrame(cmd, c.add, inputs...); err != nil && !errors.Is(err, errEnough) {
			return err
		}
		return errors.Join(c.begin(), w.Close())
	}
	if out == "-" {
		err = write(cmd.OutOrStdout())
	} else {
		err = writeFile(out, f.overwrite, write)
	}
	var faults []*trace.Error
	for _, in := range inputs {
		faults = append(faults, in.faults...)
	}
	return errors.Join(err, reportFaults(cmd.ErrOrStderr(), faults))
}

// header returns the header of the result, and shifts the times of the inputs to its start.
func (f *convertFlags) header(inputs []*input) (trace.Header, error) {
	h := inputs[0].Header()
	h.Origin = cmp.Or(h.Origin, "converted from "+inputs[0].Format())
	h.Tool = toolName()
	for _, in := range inputs[1:] {
		g := in.Header()
		h.Origin, h.Anonymised = "merged", h.Anonymised && g.Anonymised
		if f.byClock && (h.Started.IsZero() || g.Started.IsZero()) {
			return h, badFlag("by-clock", errors.New("one of the recordings doesn't say when it began"))
		} else if f.byClock && g.Started.Before(h.Started) {
			h.Started = g.Started
		}
		for _, r := range g.Resources {
			if !slices.Contains(h.Resources, r) {
				h.Resources = append(h.Resources, r)
			}
		}
	}
	h.Anonymised = h.Anonymised || f.anonymise
	for _, in := range inputs {
		in.shift = -f.from
		if f.byClock {
			in.shift += in.Header().Started.Sub(h.Started)
		}
	}
	if !h.Started.IsZero() {
		h.Started = h.Started.Add(f.from)
	}
	return h, nil
}

func formatOf(name string) string {
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson":
		return asLines
	case ".json":
		return asWatch
	}
	if name == "-" {
		return asLines
	}
	return asTrace
}

func frameWriter(w io.Writer, format string, h trace.Header) (*trace.Writer, error) {
	if format != asTrace {
		return trace.NewLineWriter(w, format == asWatch), nil
	}
	return trace.NewWriter(w, h)
}

var errEnough = errors.New("enough") // ends the reading

// converter writes the frames from time 0 until length, preceded by the state at time 0.
type converter struct {
	w         *trace.Writer
	only      []string // resources; empty for all
	length    time.Duration
	transform func(trace.Frame) (trace.Frame, error) // nil for none
	mend      trace.Mender

	begun bool
	state map[trace.Resource]*state // objects by resource before time 0
	order []trace.Resource          // resources of state
}

type state struct {
	objects map[string][]byte // by key
	end     trace.Frame       // bookmark that ends the initial list; empty before it
}

func (c *converter) add(f trace.Frame) error {
	switch {
	case f.Break == nil && len(c.only) > 0 && !slices.Contains(c.only, f.Resource.Resource) && !slices.Contains(c.only, f.Resource.String()):
		return nil
	case f.Offset >= c.length:
		return errEnough
	case f.Offset < 0:
		return c.note(f)
	}
	if err := c.begin(); err != nil {
		return err
	}
	return c.write(f)
}

// write fits a frame to those before it. One that cannot be read stays as it is.
func (c *converter) write(f trace.Frame) error {
	if g, keep, err := c.mend.Frame(f); err == nil {
		if !keep {
			return nil
		}
		f = g
	}
	if c.transform != nil {
		var err error
		if f, err = c.transform(f); err != nil {
			return err
		}
	}
	return c.w.Write(f)
}

func (c *converter) note(f trace.Frame) error {
	if f.Break != nil || f.Type == watch.Error {
		return nil
	}
	s := c.state[f.Resource]
	if s == nil {
		s = &state{objects: map[string][]byte{}}
		c.state[f.Resource] = s
		c.order = append(c.order, f.Resource)
	}
	if f.Type == watch.Bookmark {
		if f.EndsInitial() {
			s.end = f
		}
		return nil
	}
	key, _, err := f.Key()
	if err != nil {
		return err
	}
	if f.Type == watch.Deleted {
		delete(s.objects, key)
	} else {
		s.objects[key] = f.Object
	}
	return nil
}

// begin writes the initial state, once, in order of key like a list.
func (c *converter) begin() error {
	if c.begun {
		return nil
	}
	c.begun = true
	for _, res := range c.order {
		s := c.state[res]
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if err := c.write(trace.Frame{Type: watch.Added, Object: s.objects[key], Resource: res}); err != nil {
				return err
			}
		}
		if s.end.Object == nil {
			continue // The initial list continues in the part.
		}
		s.end.Offset = 0
		if err := c.write(s.end); err != nil {
			return err
		}
	}
	c.state = nil
	return nil
}
