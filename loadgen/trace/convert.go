package trace

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"watchlab/loadgen/manifest"

	"k8s.io/apimachinery/pkg/watch"
)

// Input is a recording that [Inspect] or [Convert] reads. It collects unreadable parts.
type Input struct {
	*Reader
	Faults []*Error

	frame Frame         // next frame
	err   error         // of reading it; io.EOF at the end
	shift time.Duration // added to the times of the frames
	close func() error
	some  bool // at least one frame with content was read
}

// NoFrameError is the error of a recording without a readable frame.
type NoFrameError struct{ First *Error }

func (e NoFrameError) Error() string { return e.First.Error() }

// Unwrap returns the first unreadable part.
func (e NoFrameError) Unwrap() error { return e.First }

// OpenInput opens a recording by name; "-" is stdin. It reads the first frame, too: the frame names the main
// resource if there is no header.
func OpenInput(name string, stdin io.Reader) (*Input, error) {
	in := &Input{close: func() error { return nil }}
	if name == "-" {
		in.Reader = NewReader(stdin, "stdin")
	} else {
		f, err := Open(name)
		if err != nil {
			return nil, err
		}
		in.Reader, in.close = NewReader(f, name), f.Close
	}
	in.Tolerate(func(e *Error) { in.Faults = append(in.Faults, e) })
	in.advance()
	return in, nil
}

// OpenInputs opens recordings by their names. closeAll closes them, also after an error.
func OpenInputs(names []string, stdin io.Reader) (all []*Input, closeAll func(), err error) {
	closeAll = func() {
		for _, in := range all {
			_ = in.Close()
		}
	}
	for _, name := range names {
		in, err := OpenInput(name, stdin)
		if err != nil {
			return all, closeAll, err
		}
		all = append(all, in)
	}
	return all, closeAll, nil
}

// Close closes the file.
func (in *Input) Close() error { return in.close() }

func (in *Input) advance() {
	in.frame, in.err = in.Next()
	switch {
	case in.err == nil && in.frame.Break == nil:
		in.some = true
	case errors.Is(in.err, io.EOF) && !in.some && len(in.Faults) > 0:
		in.err, in.Faults = NoFrameError{in.Faults[0]}, nil // The error already names these faults.
	}
}

// eachFrame calls f for the inputs' frames in order of time; at equal times the first input's
// come first. It stops at the end of the inputs or of ctx.
func eachFrame(ctx context.Context, f func(Frame) error, inputs ...*Input) error {
	for ctx.Err() == nil {
		var next *Input
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
	return ctx.Err()
}

// The formats that [Convert] writes.
const (
	AsTrace = "trace"
	AsLines = "lines"
	AsWatch = "watch" // without times
)

// ConvertOptions select what [Convert] writes.
type ConvertOptions struct {
	Format     string        // empty for that of the result's name
	From, To   time.Duration // part of the recording; its times count from From. To 0 means the end
	Resources  []string      // resources to write, such as pods or apps/v1/deployments; empty for all
	Tool       string        // for the header
	Transform  func(Frame) (Frame, error)
	Anonymised bool // by Transform
}

// Complete checks the options and chooses the format of a result. The error is a [*manifest.Error], whose field is a flag
// of watchlab trace convert.
func (o *ConvertOptions) Complete(result string) error {
	switch formats := []string{AsTrace, AsLines, AsWatch}; {
	case o.Format != "" && !slices.Contains(formats, o.Format):
		return manifest.BadField("format", manifest.OneOf(o.Format, formats...))
	case o.From < 0:
		return manifest.Bad("from", "%v is negative", o.From)
	case o.To <= o.From:
		return manifest.Bad("to", "%v is not after --from %v", o.To, o.From)
	}
	o.Format = cmp.Or(o.Format, formatOf(result))
	return nil
}

// Convert writes recordings, merged by time, in a format. It leaves out what cannot be read, and fits events to the
// ones before. The state at From becomes the initial list.
func Convert(ctx context.Context, to io.Writer, opts ConvertOptions, inputs ...*Input) error {
	h := opts.header(inputs)
	var w *Writer
	var err error
	if opts.Format == AsTrace {
		if w, err = NewWriter(to, h); err != nil {
			return err
		}
	} else {
		w = NewLineWriter(to, opts.Format == AsWatch)
	}
	c := converter{w: w, only: opts.Resources, length: cmp.Or(opts.To, math.MaxInt64) - opts.From, transform: opts.Transform, state: map[Resource]*state{}}
	if err := eachFrame(ctx, c.add, inputs...); err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return errors.Join(c.begin(), w.Close())
}

// header returns the header of the result, and shifts the times of the inputs to its start.
func (o *ConvertOptions) header(inputs []*Input) Header {
	h := inputs[0].Header()
	h.Origin = cmp.Or(h.Origin, "converted from "+inputs[0].Format())
	h.Tool = o.Tool
	for _, in := range inputs[1:] {
		g := in.Header()
		h.Origin, h.Anonymised = "merged", h.Anonymised && g.Anonymised
		for _, r := range g.Resources {
			if !slices.Contains(h.Resources, r) {
				h.Resources = append(h.Resources, r)
			}
		}
	}
	h.Anonymised = h.Anonymised || o.Anonymised
	for _, in := range inputs {
		in.shift = -o.From
	}
	if !h.Started.IsZero() {
		h.Started = h.Started.Add(o.From)
	}
	return h
}

// formatOf returns the format for a file's name; "-" is standard output.
func formatOf(name string) string {
	switch filepath.Ext(name) {
	case ".jsonl", ".ndjson":
		return AsLines
	case ".json":
		return AsWatch
	}
	if name == "-" {
		return AsLines
	}
	return AsTrace
}

var errEnough = errors.New("enough") // ends the reading

// converter writes the frames from time 0 until length, preceded by the state at time 0.
type converter struct {
	w         *Writer
	only      []string // resources; empty for all
	length    time.Duration
	transform func(Frame) (Frame, error) // nil for none
	mend      Mender

	begun bool
	state map[Resource]*state // objects by resource before time 0
	order []Resource          // resources of state
}

type state struct {
	objects map[string][]byte // by key
	end     Frame             // bookmark that ends the initial list; empty before it
}

func (c *converter) add(f Frame) error {
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
func (c *converter) write(f Frame) error {
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

func (c *converter) note(f Frame) error {
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
			if err := c.write(Frame{Type: watch.Added, Object: s.objects[key], Resource: res}); err != nil {
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
