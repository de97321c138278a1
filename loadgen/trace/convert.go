package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/manifest"
)

// Input is a recording that [Inspect] or [Convert] reads. It collects unreadable parts.
type Input struct {
	*Reader
	Faults []*Error

	frame Frame     // next frame
	err   error     // of reading it; io.EOF at the end
	start time.Time // times are those of arrival from then on; zero for those of the recording
	close func() error
	some  bool // at least one frame with content was read
	torn  bool // the end of ctx is within a document
}

// OpenInput opens a recording by name; "-" is stdin. It reads the first frame, too: the frame names the main
// resource if there is no header. Without a readable frame, [Inspect] and [Convert] return the first fault.
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

// LiveInput is a recording that arrives through stdin until its end or that of ctx, such as that of kubectl get --watch
// -o json --output-watch-events. Times are those of arrival. A read of stdin cannot be interrupted and may outlive it.
func LiveInput(ctx context.Context, stdin io.Reader) *Input {
	out, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, stdin)
		_ = feed.CloseWithError(err) // Always nil.
	}()
	context.AfterFunc(ctx, func() { _ = feed.Close() })
	in := &Input{Reader: NewReader(out, "stdin"), start: time.Now(), close: out.Close}
	in.Tolerate(func(e *Error) {
		if in.torn = ctx.Err() != nil; !in.torn {
			in.Faults = append(in.Faults, e)
		}
	})
	in.advance()
	return in
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
	if !in.start.IsZero() {
		in.frame.Offset = time.Since(in.start)
	}
	switch {
	case in.torn:
		in.err = io.EOF
	case in.err == nil && in.frame.Break == nil:
		in.some = true
	case errors.Is(in.err, io.EOF) && !in.some && len(in.Faults) > 0:
		in.err, in.Faults = in.Faults[0], nil // The error already names these faults.
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
			case next == nil || in.frame.Offset < next.frame.Offset:
				next = in
			}
		}
		if next == nil {
			return nil
		}
		if err := f(next.frame); err != nil {
			return err
		}
		next.advance()
	}
	return ctx.Err()
}

// ConvertOptions select what [Convert] writes.
type ConvertOptions struct {
	From, To   time.Duration // part of the recording; its times count from From. To 0 means the end
	Resources  []string      // resources to write, such as pods or apps/v1/deployments; empty for all
	Tool       string        // for the header
	Transform  func(Frame) (Frame, error)
	Anonymised bool // by Transform
}

// Validate checks the options. The error is a [*manifest.Error], whose field is a flag of watchlab trace convert.
func (o *ConvertOptions) Validate() error {
	switch {
	case o.From < 0:
		return manifest.Bad("from", "%v is negative", o.From)
	case o.To <= o.From:
		return manifest.Bad("to", "%v is not after --from %v", o.To, o.From)
	}
	return nil
}

// Convert writes recordings, merged by time, and closes the writer. It leaves out what cannot be read, and fits events to
// the ones before. An ERROR event becomes a [Break] with the reason [Ended]. The state at From becomes the initial list.
// The end of ctx is an error, but ends a [LiveInput], of which all is written that has arrived.
func Convert(ctx context.Context, w *Writer, opts ConvertOptions, inputs ...*Input) error {
	c := converter{w: w, only: opts.Resources, from: opts.From, to: cmp.Or(opts.To, math.MaxInt64), transform: opts.Transform, state: map[Resource]*state{}}
	if slices.ContainsFunc(inputs, func(in *Input) bool { return !in.start.IsZero() }) {
		ctx = context.WithoutCancel(ctx)
	}
	if err := eachFrame(ctx, c.add, inputs...); err != nil && !errors.Is(err, errEnough) {
		return err
	}
	return errors.Join(c.begin(), w.Close())
}

// Header returns the header of what [Convert] writes.
func (o *ConvertOptions) Header(inputs ...*Input) Header {
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
	if !h.Started.IsZero() {
		h.Started = h.Started.Add(o.From)
	}
	return h
}

var errEnough = errors.New("enough") // ends the reading

// converter writes the frames of a time, preceded by the state at its begin.
type converter struct {
	w         *Writer
	only      []string // resources; empty for all
	from, to  time.Duration
	transform func(Frame) (Frame, error) // nil for none
	mend      Mender

	begun bool
	state map[Resource]*state // objects by resource before from
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
	case f.Offset >= c.to:
		return errEnough
	case f.Offset < c.from:
		return c.note(f)
	}
	if err := c.begin(); err != nil {
		return err
	}
	f.Offset -= c.from
	return c.write(f)
}

// write fits a frame to those before it. One that cannot be read stays as it is.
func (c *converter) write(f Frame) error {
	if f.Type == watch.Error {
		var s metav1.Status
		_ = json.Unmarshal(f.Object, &s) // The message is optional.
		f = Frame{Offset: f.Offset, Resource: f.Resource, Break: &Break{Reason: Ended, Message: s.Message}}
	}
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
