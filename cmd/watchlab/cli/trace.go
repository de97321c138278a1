package cli

import (
	"cmp"
	"encoding/json"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/experiment"
	"watchlab/bench/report"
	"watchlab/loadgen/trace"
)

func newTrace() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "trace",
		Short: "Inspect, convert, cut and merge recorded watch streams",
		Long: `A recording is a name (see run --storm), a trace (*.wlt), JSON lines, or the output of a
watch ({"type":…,"object":…}); the latter two plain or compressed by gzip or zstd. "-" is
stdin. Unreadable parts are reported with their place, the rest is used, and the exit code is 1.`,
		Example: `  watchlab trace inspect storm.wlt --svg storm.svg
  watchlab trace cut storm.wlt -o piece.wlt --from 30s --to 1m
  watchlab trace convert storm.wlt - | head -1`,
	}, newTraceInspect(), newTraceConvert(), newTraceCut(), newTraceMerge())
}

// exactly requires n arguments; what describes them, as in "takes FILE".
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usageError{fmt.Errorf("%s %s, not %d arguments", cmd.CommandPath(), what, len(args))}
		}
		return nil
	}
}

// input is a recording that is being read. It collects unreadable parts as faults.
type input struct {
	*trace.Reader
	// frame is the next frame. err is the error of reading it; io.EOF at the end.
	frame trace.Frame
	err   error
	// shift is added to the times of the frames.
	shift  time.Duration
	faults []*trace.Error
	close  func() error
	// some: at least one frame with content was read.
	some bool
}

// openTrace opens a recording and reads its first frame, which names the main resource of a
// recording without a header.
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

// eachFrame calls f for each frame of the inputs in order of time, until the end or an
// interrupt. At equal times, the frames of the first input come first.
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

// header returns the header for a trace made from the input.
func (in *input) header() trace.Header {
	h := in.Header()
	h.Origin = cmp.Or(h.Origin, "converted from "+in.Format())
	h.Tool = toolName()
	return h
}

// mendWriter repairs the sequence of the frames that it writes.
type mendWriter struct {
	trace.FrameWriter
	mend trace.Mender
}

func (m *mendWriter) Write(f trace.Frame) error {
	f, keep, err := m.mend.Frame(f)
	if err != nil || !keep {
		return err
	}
	return m.FrameWriter.Write(f)
}

// target is the recording that a verb writes.
type target struct {
	to, format string
	overwrite  bool
}

func (t *target) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.overwrite, "overwrite", false, "replace an existing file")
}

// addOutput adds the flag -o, which names the file.
func (t *target) addOutput(cmd *cobra.Command) {
	t.add(cmd)
	cmd.Flags().StringVarP(&t.to, "output", "o", "", "file to write, or -")
}

// The formats of a recording.
const (
	asTrace = "trace"
	asLines = "lines"
	asWatch = "watch"
)

// formatOf returns the format for a file name.
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

// rewrite reads recordings and writes one. plan gets them with the header of the first, which
// it may change, and returns the function that writes the frames.
func (t *target) rewrite(cmd *cobra.Command, names []string, plan func([]*input, *trace.Header) (func(trace.FrameWriter) error, error)) error {
	if t.to == "" {
		return badFlag("output", errors.New("names no file to write"))
	}
	var in []*input
	for _, name := range names {
		i, err := openTrace(cmd, name)
		if err != nil {
			return err
		}
		defer func() { _ = i.close() }()
		in = append(in, i)
	}
	h := in[0].header()
	frames, err := plan(in, &h)
	if err != nil {
		return err
	}
	err = t.write(cmd, h, frames)
	var faults []*trace.Error
	for _, i := range in {
		faults = append(faults, i.faults...)
	}
	return errors.Join(err, reportFaults(cmd.ErrOrStderr(), faults))
}

// write opens the target and calls frames with its writer. It keeps the file if frames
// returns nil.
func (t *target) write(cmd *cobra.Command, h trace.Header, frames func(trace.FrameWriter) error) error {
	to := func(w io.Writer) error {
		var fw trace.FrameWriter
		if format := cmp.Or(t.format, formatOf(t.to)); format != asTrace {
			fw = trace.NewLineWriter(w, format == asWatch)
		} else {
			var err error
			if fw, err = trace.NewWriter(w, h); err != nil {
				return err
			}
		}
		if err := frames(fw); err != nil {
			return err
		}
		return fw.Close()
	}
	if t.to == "-" {
		return to(cmd.OutOrStdout())
	}
	return writeFile(t.to, t.overwrite, to)
}

// summary is the output of inspect.
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
		Args:    exactly(1, "takes FILE"),
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

// inspect reads a recording.
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

func newTraceConvert() *cobra.Command {
	var t target
	var spacing time.Duration
	var only []string
	var replace bool
	cmd := &cobra.Command{
		Use:   "convert IN OUT|-",
		Short: "Write a recording in another format, and repair a damaged one",
		Long: `convert writes a recording as a trace, as JSON lines with times, or as the output of a watch,
which has none. It leaves out what cannot be read, so that the result can be played.`,
		Example: `  watchlab trace convert storm.wlt - --to watch
  watchlab trace convert storm.wlt.partial storm.wlt    # after a kill
  watchlab trace convert pods.json pods.wlt --spacing 1ms --anonymise`,
		Args: exactly(2, "takes IN and OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch formats := []string{asTrace, asLines, asWatch}; {
			case t.format != "" && !slices.Contains(formats, t.format):
				return badFlag("to", experiment.OneOf(t.format, formats...))
			case spacing < 0:
				return badFlag("spacing", fmt.Errorf("%v is negative", spacing))
			}
			transform, err := transformOf(replace)
			if err != nil {
				return err
			}
			t.to = args[1]
			return t.rewrite(cmd, args[:1], func(all []*input, h *trace.Header) (func(trace.FrameWriter) error, error) {
				in := all[0]
				isWatch := in.Format() == trace.WatchFormat
				if spacing > 0 && !isWatch {
					return nil, badFlag("spacing", errors.New("the recording has times of its own"))
				}
				h.Anonymised = h.Anonymised || replace
				c := converter{mended: isWatch, only: only, spacing: spacing, transform: transform}
				return func(w trace.FrameWriter) error {
					c.w = w
					return eachFrame(cmd, c.add, in)
				}, nil
			})
		},
	}
	t.add(cmd)
	cmd.Flags().StringVar(&t.format, "to", "", "format: trace, lines, watch (default: by OUT's name; lines for -)")
	cmd.Flags().DurationVar(&spacing, "spacing", 0, "time between two events of a watch (default 0)")
	cmd.Flags().StringSliceVar(&only, "resource", nil, "resources to write, such as pods or apps/v1/deployments (default: all)")
	cmd.Flags().BoolVar(&replace, "anonymise", false, "replace names and values")
	return cmd
}

// converter writes the frames of a recording.
type converter struct {
	w    trace.FrameWriter
	only []string
	// spacing is the time between two frames; 0 keeps the times. at is the next time.
	spacing, at time.Duration
	transform   func(trace.Frame) (trace.Frame, error) // nil for none
	mend        trace.Mender
	// mended: frames pass through mend. Those of an undamaged recording stay unchanged.
	mended bool
}

func (c *converter) add(f trace.Frame) error {
	if f.Break == nil && len(c.only) > 0 && !slices.Contains(c.only, f.Resource.Resource) && !slices.Contains(c.only, f.Resource.String()) {
		return nil
	}
	if f.Break != nil && f.Break.Reason == trace.Unreadable {
		c.mended = true
	}
	// mend sees all frames. It cannot read some of those that are kept as they are.
	if g, keep, err := c.mend.Frame(f); err == nil && c.mended {
		if !keep {
			return nil
		}
		f = g
	}
	if c.spacing > 0 {
		f.Offset = c.at
		c.at += c.spacing
	}
	if c.transform != nil {
		var err error
		if f, err = c.transform(f); err != nil {
			return err
		}
	}
	return c.w.Write(f)
}

func newTraceCut() *cobra.Command {
	var t target
	var from, to time.Duration
	cmd := &cobra.Command{
		Use:   "cut FILE",
		Short: "Write a part of a recording, by time",
		Long: `cut writes the frames from --from until before --to. The state at --from becomes the
initial list, so that the part can be played. Its times count from --from.`,
		Example: `  watchlab trace cut storm.wlt --from 30s --to 1m -o piece.wlt`,
		Args:    exactly(1, "takes FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case from < 0:
				return badFlag("from", fmt.Errorf("%v is negative", from))
			case !cmd.Flags().Changed("to"):
				to = math.MaxInt64
			case to <= from:
				return badFlag("to", fmt.Errorf("%v is not after --from %v", to, from))
			}
			return t.rewrite(cmd, args, func(in []*input, h *trace.Header) (func(trace.FrameWriter) error, error) {
				if !h.Started.IsZero() {
					h.Started = h.Started.Add(from)
				}
				return func(w trace.FrameWriter) error {
					c := cutter{w: &mendWriter{FrameWriter: w}, length: to - from, state: map[trace.Resource]*state{}}
					in[0].shift = -from
					if err := eachFrame(cmd, c.add, in[0]); err != nil && !errors.Is(err, errEnough) {
						return err
					}
					return c.begin()
				}, nil
			})
		},
	}
	t.addOutput(cmd)
	cmd.Flags().DurationVar(&from, "from", 0, "begin")
	cmd.Flags().DurationVar(&to, "to", 0, "end (default: that of the recording)")
	return cmd
}

// errEnough ends the reading.
var errEnough = errors.New("enough")

// cutter writes the frames from time 0 until length, preceded by the state at time 0.
type cutter struct {
	w      trace.FrameWriter
	length time.Duration
	begun  bool
	// state has the objects by resource at the current frame; order lists the resources.
	state map[trace.Resource]*state
	order []trace.Resource
}

// state has the current objects of a resource by key.
type state struct {
	objects map[string][]byte
	// ended: the initial list is complete.
	ended bool
}

func (c *cutter) add(f trace.Frame) error {
	switch {
	case f.Offset >= c.length:
		return errEnough
	case f.Offset < 0:
		return c.note(f)
	}
	if err := c.begin(); err != nil {
		return err
	}
	return c.w.Write(f)
}

// note applies a frame before the part to the state.
func (c *cutter) note(f trace.Frame) error {
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
		s.ended = s.ended || f.EndsInitial()
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
func (c *cutter) begin() error {
	if c.begun {
		return nil
	}
	c.begun = true
	for _, res := range c.order {
		s := c.state[res]
		for _, key := range slices.Sorted(maps.Keys(s.objects)) {
			if err := c.w.Write(trace.Frame{Type: watch.Added, Object: s.objects[key], Resource: res}); err != nil {
				return err
			}
		}
		if !s.ended {
			continue // The initial list continues in the part.
		}
		end := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		end.APIVersion, end.Kind = res.GVK().ToAPIVersionAndKind()
		text, err := json.Marshal(end)
		if err != nil {
			return err
		}
		if err := c.w.Write(trace.Frame{Type: watch.Bookmark, Object: text, Resource: res}); err != nil {
			return err
		}
	}
	c.state = nil
	return nil
}

func newTraceMerge() *cobra.Command {
	var t target
	var byClock bool
	cmd := &cobra.Command{
		Use:   "merge A B",
		Short: "Merge two recordings by time",
		Long: `merge writes the frames of two recordings in order of time, from the start of each or, with
--by-clock, from the earlier start. Objects of one name count as one object, and events are
adjusted to fit.`,
		Example: `  watchlab trace merge pods.wlt nodes.wlt -o both.wlt`,
		Args:    exactly(2, "takes A and B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.rewrite(cmd, args, func(in []*input, h *trace.Header) (func(trace.FrameWriter) error, error) {
				g := in[1].header()
				if byClock {
					if h.Started.IsZero() || g.Started.IsZero() {
						return nil, badFlag("by-clock", errors.New("one of the recordings doesn't say when it began"))
					}
					in[1].shift = max(0, g.Started.Sub(h.Started))
					if g.Started.Before(h.Started) {
						in[0].shift, h.Started = h.Started.Sub(g.Started), g.Started
					}
				}
				h.Origin = "merged"
				h.Anonymised = h.Anonymised && g.Anonymised
				for _, r := range g.Resources {
					if !slices.Contains(h.Resources, r) {
						h.Resources = append(h.Resources, r)
					}
				}
				return func(w trace.FrameWriter) error {
					m := mendWriter{FrameWriter: w}
					return eachFrame(cmd, m.Write, in...)
				}, nil
			})
		},
	}
	t.addOutput(cmd)
	cmd.Flags().BoolVar(&byClock, "by-clock", false, "by the time of day instead of from the start of each")
	return cmd
}
