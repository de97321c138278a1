package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "Inspect, convert, cut, merge and measure recorded watch streams",
		Long: `What is read may be a recording's name (see run --storm), a trace (*.wlt),
recorded JSON lines or what a watch says ({"type":…,"object":…}), the latter
two plain or compressed by gzip or zstd; "-" is stdin. What can't be read is
told with its place, and the rest is used.

Anonymised traces keep sizes, times, numbers, kinds, conditions, well-known
labels and who refers to whom. Every other string is replaced by one of its
length, the same one by the same one, by a key that is drawn for the trace and
kept nowhere.

Exit code: 0; 1 if a part could not be read; 2 for bad input.`,
		Example: `  watchlab trace inspect recorded-nodeloss
  watchlab trace stats storm.wlt --svg storm.svg
  watchlab trace cut storm.wlt -o piece.wlt --from 30s --to 1m
  watchlab trace convert storm.wlt - | head -1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newTraceInspect(), newTraceConvert(), newTraceCut(), newTraceMerge(), newTraceStats())
	return cmd
}

// exactly requires the named arguments.
func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return usageError{fmt.Errorf("%s takes %s, not %d arguments", cmd.CommandPath(), strings.Join(names, " and "), len(args))}
		}
		return nil
	}
}

// input is a recording that is being read. It collects unreadable parts as faults.
type input struct {
	*trace.Reader
	faults []*trace.Error
	close  func() error
	// ahead returns a frame that was read in advance; nil for none.
	ahead func() (trace.Frame, error)
	// some: at least one frame with content was read.
	some bool
}

// Next returns the next frame. A recording without any readable frame is a usage error.
func (in *input) Next() (trace.Frame, error) {
	next := in.Reader.Next
	if in.ahead != nil {
		next, in.ahead = in.ahead, nil
	}
	f, err := next()
	switch {
	case err == nil && f.Break == nil:
		in.some = true
	case errors.Is(err, io.EOF) && !in.some && len(in.faults) > 0:
		err = usageError{in.faults[0]}
		// The error already names these faults.
		in.faults = nil
	}
	return f, err
}

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
	return in, nil
}

// each calls f for each frame, until the end or an interrupt.
func (in *input) each(cmd *cobra.Command, f func(trace.Frame) error) error {
	for cmd.Context().Err() == nil {
		fr, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(fr)
		}
		if err != nil {
			return err
		}
	}
	return errInterrupted
}

// summary is the output of inspect.
type summary struct {
	Name        string          `json:"name"`
	Format      string          `json:"format"`
	Compression string          `json:"compression,omitempty"`
	Header      *trace.Header   `json:"header,omitempty"`
	Blocks      int             `json:"blocks,omitempty"`
	Stored      int64           `json:"storedBytes,omitempty"`
	Text        int64           `json:"textBytes,omitempty"`
	FirstNs     time.Duration   `json:"firstNs"`
	LastNs      time.Duration   `json:"lastNs"`
	Resources   []*resourceLine `json:"resources"`
	Breaks      []breakLine     `json:"breaks,omitempty"`
	Faults      []string        `json:"faults,omitempty"`
}

type resourceLine struct {
	Resource  string `json:"resource"`
	Initial   int    `json:"initial"`
	Added     int    `json:"added"`
	Modified  int    `json:"modified"`
	Deleted   int    `json:"deleted"`
	Bookmarks int    `json:"bookmarks"`
	Errors    int    `json:"errors"`
	Keys      int    `json:"keys"`
	Bytes     int64  `json:"bytes"`

	keys map[string]struct{}
}

type breakLine struct {
	AtNs     time.Duration `json:"atNs"`
	Resource string        `json:"resource,omitempty"`
	trace.Break
}

func newTraceInspect() *cobra.Command {
	output := "table"
	cmd := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Show what a recording holds, and what is wrong with it",
		Example: `  watchlab trace inspect storm.wlt`,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return badFlag("output", experiment.OneOf(output, "table", "json"))
			}
			in, err := openTrace(cmd, args[0])
			if err != nil {
				return err
			}
			s := &summary{Name: args[0], Format: in.Format(), Compression: in.Compression()}
			err = in.each(cmd, s.add)
			if err = errors.Join(err, in.close()); err != nil {
				return err
			}
			if in.Format() == trace.TraceFormat {
				h := in.Header()
				s.Header = &h
			}
			s.Blocks, s.Stored, s.Text = in.Reader.Blocks()
			for _, e := range in.faults {
				s.Faults = append(s.Faults, e.Error())
			}
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(s)
			} else {
				err = s.table(cmd.OutOrStdout())
			}
			return errors.Join(err, told(cmd.ErrOrStderr(), in.faults))
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", output, "table or json")
	return cmd
}

func (s *summary) add(f trace.Frame) error {
	if len(s.Resources) == 0 {
		s.FirstNs = f.Offset
	}
	s.LastNs = f.Offset
	if f.Break != nil {
		line := breakLine{AtNs: f.Offset, Break: *f.Break}
		if f.Resource != (trace.Resource{}) {
			line.Resource = f.Resource.String()
		}
		s.Breaks = append(s.Breaks, line)
		return nil
	}
	name := f.Resource.String()
	i := slices.IndexFunc(s.Resources, func(r *resourceLine) bool { return r.Resource == name })
	if i < 0 {
		i = len(s.Resources)
		s.Resources = append(s.Resources, &resourceLine{Resource: name, keys: map[string]struct{}{}})
	}
	r := s.Resources[i]
	r.Bytes += int64(len(f.Object))
	switch f.Type {
	case watch.Bookmark:
		r.Bookmarks++
		if f.EndsInitial() {
			r.Initial = r.Added
		}
		return nil
	case watch.Error:
		r.Errors++
		return nil
	case watch.Added:
		r.Added++
	case watch.Modified:
		r.Modified++
	case watch.Deleted:
		r.Deleted++
	}
	key, _, err := f.Key()
	if err != nil {
		return err
	}
	r.keys[key] = struct{}{}
	r.Keys = len(r.keys)
	return nil
}

func (s *summary) table(w io.Writer) error {
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
		if s.Stored > 0 {
			fmt.Fprintf(tw, "blocks\t%d of %s, %s of lines (%.1f×)\n", s.Blocks, trace.FormatBytes(s.Stored), trace.FormatBytes(s.Text), float64(s.Text)/float64(s.Stored))
		}
	}
	fmt.Fprintf(tw, "span\t%v to %v\n\n", s.FirstNs.Round(time.Millisecond), s.LastNs.Round(time.Millisecond))
	fmt.Fprintln(tw, "RESOURCE\tINITIAL\tADDED\tMODIFIED\tDELETED\tBOOKMARKS\tERRORS\tKEYS\tBYTES")
	for _, r := range s.Resources {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", r.Resource, r.Initial, r.Added, r.Modified, r.Deleted, r.Bookmarks, r.Errors, r.Keys, trace.FormatBytes(r.Bytes))
	}
	if len(s.Breaks) > 0 {
		fmt.Fprintln(tw, "\nBREAK AT\tRESOURCE\tREASON\tDOWN\tADDED\tMODIFIED\tDELETED\tMESSAGE")
		for _, b := range s.Breaks {
			fmt.Fprintf(tw, "%v\t%s\t%s\t%v\t%d\t%d\t%d\t%s\n", b.AtNs.Round(time.Millisecond), dash(b.Resource), b.Reason,
				time.Duration(b.DownNs).Round(time.Millisecond), b.Added, b.Modified, b.Deleted, dash(b.Message))
		}
	}
	return tw.Flush()
}

// target is the output file of a verb.
type target struct {
	to        string
	overwrite bool
	best      bool
}

func (t *target) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.overwrite, "overwrite", false, "replace the file that is written where there is one")
	cmd.Flags().BoolVar(&t.best, "best", false, "best compression, several times slower")
}

// The output formats.
const (
	asTrace = "trace"
	asLines = "lines"
	asWatch = "watch"
)

// write opens the target and calls f with its writer. It keeps the file if f returns
// nil.
func (t target) write(cmd *cobra.Command, format string, h trace.Header, f func(trace.FrameWriter) error) error {
	var w io.Writer = cmd.OutOrStdout()
	var out *outFile
	if t.to != "-" {
		var err error
		if out, err = create(t.to, ".tmp", t.overwrite); err != nil {
			return err
		}
		w = out
	}
	var fw trace.FrameWriter
	var err error
	switch format {
	case asTrace:
		fw, err = trace.NewWriter(w, h, trace.WriterOptions{Best: t.best})
	default:
		fw = trace.NewLineWriter(w, format == asWatch)
	}
	if err == nil {
		if err = f(fw); err == nil {
			err = fw.Close()
		}
	}
	if out == nil {
		return err
	}
	if err != nil {
		return errors.Join(err, out.discard())
	}
	return out.keep()
}

// formatOf returns the output format for a file name.
func formatOf(name string) string {
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson":
		return asLines
	case ".json":
		return asWatch
	}
	return asTrace
}

// headerOf returns the header for a trace made from the input.
func headerOf(in *input) trace.Header {
	if len(in.Header().Resources) == 0 {
		// A trace in lines has no header: its first frame has the main resource.
		f, err := in.Reader.Next()
		in.ahead = func() (trace.Frame, error) { return f, err }
	}
	h := in.Header()
	if h.Origin == "" {
		h.Origin = "converted from " + in.Format()
	}
	h.Tool = toolName()
	return h
}

func newTraceConvert() *cobra.Command {
	var t target
	var to string
	var spacing time.Duration
	var only []string
	var replace bool
	cmd := &cobra.Command{
		Use:   "convert IN OUT|-",
		Short: "Write a recording in another format, and make whole what is damaged",
		Long: `Write a recording in another format: a trace, recorded JSON lines with times,
or what a watch says, which has none. What can't be read is told and left out,
and events after it are mended, so that what is written can be played.`,
		Example: `  # What kubectl would have printed
  watchlab trace convert storm.wlt - --to watch

  # Of a recording that was killed
  watchlab trace convert storm.wlt.partial storm.wlt

  # A watch without times gets some
  watchlab trace convert pods.json pods.wlt --spacing 1ms --anonymise`,
		Args: exactly("IN", "OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t.to = args[1]
			format := to
			switch {
			case format == "" && t.to == "-":
				format = asLines
			case format == "":
				format = formatOf(t.to)
			case !slices.Contains([]string{asTrace, asLines, asWatch}, format):
				return badFlag("to", experiment.OneOf(format, asTrace, asLines, asWatch))
			}
			if spacing < 0 {
				return badFlag("spacing", fmt.Errorf("%v is negative", spacing))
			}
			in, err := openTrace(cmd, args[0])
			if err != nil {
				return err
			}
			defer func() { _ = in.close() }()
			if spacing > 0 && in.Format() != trace.WatchFormat {
				return badFlag("spacing", errors.New("the recording has times of its own"))
			}
			transform, err := transformOf(replace)
			if err != nil {
				return err
			}
			h := headerOf(in)
			h.Anonymised = h.Anonymised || replace
			var mend trace.Mender
			mended := in.Format() == trace.WatchFormat
			var at time.Duration
			err = t.write(cmd, format, h, func(w trace.FrameWriter) error {
				return in.each(cmd, func(f trace.Frame) error {
					if f.Break == nil && len(only) > 0 && !slices.Contains(only, f.Resource.Resource) && !slices.Contains(only, f.Resource.String()) {
						return nil
					}
					if f.Break != nil && f.Break.Reason == trace.Unreadable {
						mended = true
					}
					g, keep, err := mend.Frame(f)
					if err != nil || !mended {
						// Frames of an undamaged recording stay unchanged.
						g, keep = f, true
					}
					if !keep {
						return nil
					}
					if spacing > 0 {
						g.Offset = at
						at += spacing
					}
					if transform != nil {
						if g, err = transform(g); err != nil {
							return err
						}
					}
					return w.Write(g)
				})
			})
			return errors.Join(err, told(cmd.ErrOrStderr(), in.faults))
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "format: trace, lines, watch (default: by OUT's name; lines for -)")
	cmd.Flags().DurationVar(&spacing, "spacing", 0, "time between two events of a watch (default 0)")
	cmd.Flags().StringSliceVar(&only, "resource", nil, "resources to write, such as pods or apps/v1/deployments (default: all)")
	cmd.Flags().BoolVar(&replace, "anonymise", false, "replace names and values")
	return cmd
}

func newTraceCut() *cobra.Command {
	t := target{}
	var from, to time.Duration
	var bare bool
	cmd := &cobra.Command{
		Use:   "cut FILE",
		Short: "Take a piece out of a recording, by time",
		Long: `Take the frames from --from up to, and not with, --to. What was there at --from
becomes the initial list, so that the piece can be played; with --bare it is
left out, and the beginning is found by the trace's index. Times are counted from
--from.`,
		Example: `  watchlab trace cut storm.wlt --from 30s --to 1m -o piece.wlt`,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case t.to == "":
				return badFlag("output", errors.New("names no file to write"))
			case from < 0:
				return badFlag("from", fmt.Errorf("%v is negative", from))
			case to <= from && cmd.Flags().Changed("to"):
				return badFlag("to", fmt.Errorf("%v is not after --from %v", to, from))
			}
			in, err := openTrace(cmd, args[0])
			if err != nil {
				return err
			}
			defer func() { _ = in.close() }()
			if bare {
				in.SkipTo(from)
			}
			c := cutter{from: from, bare: bare, state: map[trace.Resource]*state{}}
			if c.to = to; !cmd.Flags().Changed("to") {
				c.to = 1<<63 - 1
			}
			h := headerOf(in)
			if !h.Started.IsZero() {
				h.Started = h.Started.Add(from)
			}
			err = t.write(cmd, formatOf(t.to), h, func(w trace.FrameWriter) error {
				c.w = w
				if err := in.each(cmd, c.add); err != nil && !errors.Is(err, errEnough) {
					return err
				}
				return c.begin()
			})
			return errors.Join(err, told(cmd.ErrOrStderr(), in.faults))
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVarP(&t.to, "output", "o", "", "file to write, or -")
	cmd.Flags().DurationVar(&from, "from", 0, "time at which the piece begins")
	cmd.Flags().DurationVar(&to, "to", 0, "time at which it ends (default: the end)")
	cmd.Flags().BoolVar(&bare, "bare", false, "leave out what was there before")
	return cmd
}

// errEnough ends the reading.
var errEnough = errors.New("enough")

// cutter writes the frames of a time span, preceded by the state at its start.
type cutter struct {
	w trace.FrameWriter
	// from and to bound the offsets of the written frames; bare leaves out the initial
	// state.
	from, to time.Duration
	bare     bool
	begun    bool
	mend     trace.Mender
	// state has the objects by resource at the current frame. mend corrects the types of
	// the written frames.
	state map[trace.Resource]*state
	order []trace.Resource
}

// state has the current objects of a resource.
type state struct {
	keys []string
	last map[string][]byte
	// ended: the initial list is complete.
	ended bool
}

func (c *cutter) add(f trace.Frame) error {
	switch {
	case f.Offset >= c.to:
		return errEnough
	case f.Offset < c.from && c.bare:
		return nil
	case f.Offset < c.from:
		return c.note(f)
	}
	if err := c.begin(); err != nil {
		return err
	}
	f.Offset -= c.from
	return c.write(f)
}

func (c *cutter) write(f trace.Frame) error {
	if !c.bare {
		g, keep, err := c.mend.Frame(f)
		if err != nil || !keep {
			return err
		}
		f = g
	}
	return c.w.Write(f)
}

func (c *cutter) note(f trace.Frame) error {
	if f.Break != nil || f.Type == watch.Error {
		return nil
	}
	s := c.state[f.Resource]
	if s == nil {
		s = &state{last: map[string][]byte{}}
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
		delete(s.last, key)
		return nil
	}
	if _, ok := s.last[key]; !ok {
		s.keys = append(s.keys, key)
	}
	s.last[key] = f.Object
	return nil
}

// begin writes the initial state, once.
func (c *cutter) begin() error {
	if c.begun || c.bare {
		return nil
	}
	c.begun = true
	for _, res := range c.order {
		s := c.state[res]
		written := map[string]bool{}
		for _, key := range s.keys {
			object, ok := s.last[key]
			if !ok || written[key] {
				continue
			}
			written[key] = true
			if err := c.write(trace.Frame{Type: watch.Added, Object: object, Resource: res}); err != nil {
				return err
			}
		}
		if !s.ended {
			continue // The initial list goes on in the piece.
		}
		end := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		end.APIVersion, end.Kind = res.GVK().ToAPIVersionAndKind()
		text, err := json.Marshal(end)
		if err != nil {
			return err
		}
		if err := c.write(trace.Frame{Type: watch.Bookmark, Object: bytes.TrimSpace(text), Resource: res}); err != nil {
			return err
		}
	}
	c.state, c.order = nil, nil
	return nil
}

func newTraceMerge() *cobra.Command {
	t := target{}
	var byClock bool
	cmd := &cobra.Command{
		Use:   "merge A B",
		Short: "Put two recordings together, by time",
		Long: `Put the frames of two recordings together in order of time, from the start of
each or, with --by-clock, from the earlier start. Where both have an object of
one name, it is taken for the same one, and events are mended to fit.`,
		Example: `  watchlab trace merge pods.wlt nodes.wlt -o both.wlt`,
		Args:    exactly("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if t.to == "" {
				return badFlag("output", errors.New("names no file to write"))
			}
			a, err := openTrace(cmd, args[0])
			if err != nil {
				return err
			}
			defer func() { _ = a.close() }()
			b, err := openTrace(cmd, args[1])
			if err != nil {
				return err
			}
			defer func() { _ = b.close() }()
			h, g := headerOf(a), headerOf(b)
			shift := [2]time.Duration{}
			if byClock {
				if h.Started.IsZero() || g.Started.IsZero() {
					return badFlag("by-clock", errors.New("one of the recordings doesn't say when it began"))
				}
				if d := g.Started.Sub(h.Started); d >= 0 {
					shift[1] = d
				} else {
					shift[0], h.Started = -d, g.Started
				}
			}
			h.Origin = "merged"
			h.Anonymised = h.Anonymised && g.Anonymised
			for _, r := range g.Resources {
				if !slices.Contains(h.Resources, r) {
					h.Resources = append(h.Resources, r)
				}
			}
			err = t.write(cmd, formatOf(t.to), h, func(w trace.FrameWriter) error {
				return mergeFrames(cmd, w, [2]*input{a, b}, shift)
			})
			return errors.Join(err, told(cmd.ErrOrStderr(), append(a.faults, b.faults...)))
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVarP(&t.to, "output", "o", "", "file to write, or -")
	cmd.Flags().BoolVar(&byClock, "by-clock", false, "by the time of day instead of from the start of each")
	return cmd
}

// mergeFrames writes the frames of both traces in order of time; at equal times those of
// A come first.
func mergeFrames(cmd *cobra.Command, w trace.FrameWriter, in [2]*input, shift [2]time.Duration) error {
	var next [2]*trace.Frame
	var mend trace.Mender
	read := func(i int) error {
		f, err := in[i].Next()
		switch {
		case errors.Is(err, io.EOF):
			next[i] = nil
			return nil
		case err != nil:
			return err
		}
		f.Offset += shift[i]
		next[i] = &f
		return nil
	}
	if err := errors.Join(read(0), read(1)); err != nil {
		return err
	}
	for next[0] != nil || next[1] != nil {
		if cmd.Context().Err() != nil {
			return errInterrupted
		}
		i := 0
		if next[0] == nil || next[1] != nil && next[1].Offset < next[0].Offset {
			i = 1
		}
		f, keep, err := mend.Frame(*next[i])
		if err == nil && keep {
			err = w.Write(f)
		}
		if err == nil {
			err = read(i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newTraceStats() *cobra.Command {
	var svg string
	output := "table"
	overwrite := false
	cmd := &cobra.Command{
		Use:   "stats FILE",
		Short: "Measure a recording: rates, sizes, key skew, event mix",
		Long: `Measure each resource of a recording, after its initial list: events a second
on average and at the peak (the most in any second from the start), sizes of
objects, how events are spread over keys, with the exponent of the Zipf
distribution that fits best, and the mix of events.`,
		Example: `  watchlab trace stats recorded-gang --svg gang.svg`,
		Args:    exactly("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return badFlag("output", experiment.OneOf(output, "table", "json"))
			}
			if svg != "" {
				if _, err := os.Lstat(svg); err == nil && !overwrite {
					return badFlag("svg", fmt.Errorf("%s exists (--overwrite replaces it)", svg))
				}
			}
			in, err := openTrace(cmd, args[0])
			if err != nil {
				return err
			}
			all := trace.NewStats(args[0])
			err = errors.Join(in.each(cmd, all.Add), in.close())
			if err != nil {
				return err
			}
			all.Finish()
			if output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				err = enc.Encode(all)
			} else {
				err = all.Table(cmd.OutOrStdout())
			}
			if svg != "" && err == nil {
				var out *outFile
				if out, err = create(svg, ".tmp", overwrite); err == nil {
					if _, err = out.Write(report.TraceSVG(all)); err != nil {
						err = errors.Join(err, out.discard())
					} else {
						err = out.keep()
					}
				}
			}
			return errors.Join(err, told(cmd.ErrOrStderr(), in.faults))
		},
	}
	cmd.Flags().StringVar(&svg, "svg", "", "SVG file for charts of rates and skew")
	cmd.Flags().StringVarP(&output, "output", "o", output, "table or json")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace the SVG file if it exists")
	return cmd
}
