// Package record records the watches of a cluster's resources.
//
// Each resource is watched by itself, with its initial list (WatchList where the
// server has it, otherwise a LIST in pages and a watch from there), as raw JSON.
// A watch that ends is resumed from the last resource version or bookmark. Where
// the server doesn't have that version any more (410 Gone), everything is listed
// again, and what is different from before is recorded as events, after a
// [trace.Break] that says how much that is: the last state of an object that was
// deleted meanwhile is not known, so its DELETED has metadata only.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// Options say what is recorded.
type Options struct {
	Config *rest.Config

	Resources []cluster.Resource

	Namespace string

	Transform func(trace.Frame) (trace.Frame, error)

	Backoff time.Duration

	FlushEvery time.Duration

	Settling time.Duration
}

// Summary says what was recorded of a resource, and what was missed.
type Summary struct {
	Resource trace.Resource

	Events int

	Reconnects int

	Relists, Missed int
}

// ResourceOf is the resource as a trace names it.
func ResourceOf(r cluster.Resource) trace.Resource {
	return trace.Resource{Group: r.Group, Version: r.Version, Resource: r.GroupVersionResource.Resource, Kind: r.Kind.Kind}
}

// recorder writes frames as they come.
type recorder struct {
	opts   Options
	client rest.Interface
	start  time.Time
	cancel context.CancelCauseFunc

	mu sync.Mutex

	w trace.FrameWriter
}

// Record records until the context ends, which is no error, or until a watch
// fails in a way that trying again doesn't help: it is refused, or the resource
// is gone, and stays so (see Options.Settling). What was got is written and flushed in any case; closing the writer
// is the caller's.
func Record(ctx context.Context, w trace.FrameWriter, opts Options) ([]Summary, error) {
	if opts.Backoff <= 0 {
		opts.Backoff = 250 * time.Millisecond
	}
	if opts.FlushEvery <= 0 {
		opts.FlushEvery = 2 * time.Second
	}
	if opts.Settling <= 0 {
		opts.Settling = 30 * time.Second
	}
	config := rest.CopyConfig(opts.Config)
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.QPS, config.Timeout = -1, 0
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &recorder{opts: opts, client: client, start: time.Now(), cancel: cancel, w: w}
	var wg sync.WaitGroup
	sums := make([]Summary, len(opts.Resources))
	failures := make([]error, len(opts.Resources))
	for i, res := range opts.Resources {
		sums[i].Resource = ResourceOf(res)
		f := &follower{recorder: r, of: res, sum: &sums[i], known: map[string]version{}}
		wg.Go(func() {
			if failures[i] = f.follow(ctx); failures[i] != nil {
				cancel(failures[i])
			}
		})
	}
	wg.Go(func() {
		tick := time.NewTicker(opts.FlushEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				r.mu.Lock()
				err := w.Flush()
				r.mu.Unlock()
				if err != nil {
					cancel(err)
				}
			}
		}
	})
	wg.Wait()
	err = errors.Join(failures...)
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	return sums, errors.Join(err, w.Flush())
}

func (r *recorder) write(frames ...trace.Frame) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Since(r.start)
	for _, f := range frames {
		f.Offset = at
		if r.opts.Transform != nil {
			var err error
			if f, err = r.opts.Transform(f); err != nil {
				return errWrite{err}
			}
		}
		if err := r.w.Write(f); err != nil {
			return errWrite{err}
		}
	}
	return nil
}

// errWrite is the error of what is written to, which trying again doesn't help.
type errWrite struct{ error }

func (e errWrite) Unwrap() error { return e.error }

type version struct{ uid, resourceVersion string }

// follower records one resource.
type follower struct {
	*recorder
	of  cluster.Resource
	sum *Summary

	known map[string]version

	rv string

	begun bool

	plain bool

	down time.Time
}

// errGone says that the server doesn't have the version any more.
var errGone = errors.New("gone")

func (f *follower) follow(ctx context.Context) error {
	pause := f.opts.Backoff
	for ctx.Err() == nil {
		got, err := f.once(ctx)
		if ctx.Err() != nil {
			break // Whatever came of it.
		}
		var broken errWrite
		switch {
		case errors.As(err, &broken):
			return err
		case errors.Is(err, errGone) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			f.rv = ""
		case refused(err) && (f.down.IsZero() || time.Since(f.down) > f.opts.Settling):
			return fmt.Errorf("record: %s: %w", f.of.GroupVersionResource.Resource, err)
		}
		if f.down.IsZero() {
			f.down = time.Now()
		}
		if got {
			pause = f.opts.Backoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, 32*f.opts.Backoff)
	}
	return nil //nolint:nilerr // The end of the context is no error.
}

// refused reports whether a server that knows its rules would say the same again.
func refused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// once lists, where that is needed, and watches until the watch ends; got says
// that it began.
func (f *follower) once(ctx context.Context) (got bool, err error) {
	if f.rv == "" && f.plain {
		if err := f.list(ctx); err != nil {
			return false, err
		}
	}
	params := map[string]string{"watch": "1", "allowWatchBookmarks": "true"}
	initial := f.rv == ""
	if initial {
		params["sendInitialEvents"], params["resourceVersionMatch"] = "true", "NotOlderThan"
	} else {
		params["resourceVersion"] = f.rv
	}
	body, err := f.request(params).Stream(ctx)
	if err != nil {
		if initial && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
			f.plain = true
			return f.once(ctx)
		}
		return false, err
	}
	defer func() { _ = body.Close() }()
	var again *difference
	switch {
	case initial && f.begun:
		again = newDifference()
	case !initial && !f.down.IsZero():
		f.sum.Reconnects++
		if err := f.write(f.breakOf(trace.Reconnected)); err != nil {
			return true, err
		}
	}
	f.begun = true
	if again == nil {
		f.down = time.Time{}
	}
	return true, f.read(body, again)
}

func (f *follower) request(params map[string]string) *rest.Request {
	path := "/apis/" + f.of.Group + "/" + f.of.Version
	if f.of.Group == "" {
		path = "/api/" + f.of.Version
	}
	if f.opts.Namespace != "" && f.of.Namespaced {
		path += "/namespaces/" + f.opts.Namespace
	}
	req := f.client.Get().AbsPath(path + "/" + f.of.GroupVersionResource.Resource)
	for k, v := range params {
		req = req.Param(k, v)
	}
	return req
}

func (f *follower) breakOf(reason string) trace.Frame {
	return trace.Frame{Resource: f.sum.Resource, Break: &trace.Break{Reason: reason, From: f.rv, DownNs: int64(time.Since(f.down))}}
}

// read records what a watch says until it ends. While again is not nil, it says
// everything once more.
func (f *follower) read(body io.Reader, again *difference) error {
	dec := json.NewDecoder(body)
	for {
		var ev struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := dec.Decode(&ev); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		frame := trace.Frame{Type: ev.Type, Object: ev.Object, Resource: f.sum.Resource}
		if ev.Type == watch.Error {
			var s metav1.Status
			if json.Unmarshal(ev.Object, &s) == nil && s.Code == http.StatusGone {
				return errGone
			}
			return fmt.Errorf("the watch ended with an ERROR event: %s", s.Message)
		}
		if again != nil {
			if frame.EndsInitial() {
				if err := f.finish(again, frame); err != nil {
					return err
				}
				again = nil
			} else if err := f.add(again, frame); err != nil {
				return err
			}
			continue
		}
		if err := f.record(frame); err != nil {
			return err
		}
	}
}

// record writes a frame and takes note of it.
func (f *follower) record(frame trace.Frame) error {
	key, v, err := versionOf(frame)
	if err != nil {
		return err
	}
	if err := f.write(frame); err != nil {
		return err
	}
	f.note(frame.Type, key, v)
	if frame.Type == watch.Bookmark {
		// Before the end of the initial list there is nothing to go on from.
		f.rv = v.resourceVersion
		return nil
	}
	f.sum.Events++
	if f.rv != "" {
		f.rv = v.resourceVersion
	}
	return nil
}

func (f *follower) note(t watch.EventType, key string, v version) {
	switch t {
	case watch.Added, watch.Modified:
		f.known[key] = v
	case watch.Deleted:
		delete(f.known, key)
	}
}

func versionOf(frame trace.Frame) (string, version, error) {
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(frame.Object, &o); err != nil {
		return "", version{}, err
	}
	return storm.ObjectKey(o.Namespace, o.Name), version{string(o.UID), o.ResourceVersion}, nil
}

// difference is what a second list has that the recording hasn't.
type difference struct {
	seen   map[string]bool
	frames []trace.Frame
	notes  []func()
	counts trace.Break
}

func newDifference() *difference { return &difference{seen: map[string]bool{}} }

// add compares an object of the second list.
func (f *follower) add(d *difference, frame trace.Frame) error {
	if frame.Type != watch.Added {
		return nil // A bookmark on the way.
	}
	key, v, err := versionOf(frame)
	if err != nil {
		return err
	}
	d.seen[key] = true
	was, there := f.known[key]
	switch {
	case there && was == v:
		return nil
	case there && was.uid == v.uid:
		frame.Type = watch.Modified
		d.counts.Modified++
	case there:
		// Another one of the same name.
		d.frames = append(d.frames, f.gone(key, was))
		d.counts.Deleted++
		d.counts.Added++
	default:
		d.counts.Added++
	}
	d.frames = append(d.frames, frame)
	d.notes = append(d.notes, func() { f.note(frame.Type, key, v) })
	return nil
}

// finish writes the difference; end is the bookmark that ended the list.
func (f *follower) finish(d *difference, end trace.Frame) error {
	_, v, err := versionOf(end)
	if err != nil {
		return err
	}
	var missing []string
	for key := range f.known {
		if !d.seen[key] {
			missing = append(missing, key)
		}
	}
	slices.Sort(missing)
	var deleted []trace.Frame
	for _, key := range missing {
		deleted = append(deleted, f.gone(key, f.known[key]))
		d.notes = append(d.notes, func() { f.note(watch.Deleted, key, version{}) })
	}
	d.counts.Deleted += len(missing)
	b := f.breakOf(trace.Relisted)
	b.Break.Until = v.resourceVersion
	b.Break.Added, b.Break.Modified, b.Break.Deleted = d.counts.Added, d.counts.Modified, d.counts.Deleted
	frames := append(append([]trace.Frame{b}, deleted...), d.frames...)
	if err := f.write(frames...); err != nil {
		return err
	}
	for _, note := range d.notes {
		note()
	}
	f.sum.Relists++
	f.sum.Missed += len(frames) - 1
	f.rv, f.down = v.resourceVersion, time.Time{}
	return nil
}

// gone makes the DELETED of an object whose last state nobody has seen.
func (f *follower) gone(key string, v version) trace.Frame {
	o := metav1.PartialObjectMetadata{}
	o.APIVersion, o.Kind = f.of.Kind.ToAPIVersionAndKind()
	o.Name, o.UID, o.ResourceVersion = key, types.UID(v.uid), v.resourceVersion
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		o.Namespace, o.Name = namespace, name
	}
	text, _ := json.Marshal(o) // It has strings only.
	return trace.Frame{Type: watch.Deleted, Object: text, Resource: f.sum.Resource}
}

// pageSize is how many objects a page of a list has.
const pageSize = "500"

// list records the initial list, or the difference to what is known, by LIST.
func (f *follower) list(ctx context.Context) error {
	var d *difference
	if f.begun {
		d = newDifference()
	}
	f.begun = true
	kind, err := json.Marshal(f.of.Kind.Kind)
	if err != nil {
		return err
	}
	apiVersion, err := json.Marshal(f.of.Kind.GroupVersion().String())
	if err != nil {
		return err
	}
	// Items of a list don't say what they are.
	front := fmt.Sprintf(`{"kind":%s,"apiVersion":%s,`, kind, apiVersion)
	params := map[string]string{"limit": pageSize}
	for {
		body, err := f.request(params).Do(ctx).Raw()
		if err != nil {
			return err
		}
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			var own metav1.TypeMeta
			if err := json.Unmarshal(item, &own); err != nil {
				return err
			}
			if own.Kind == "" {
				item = append([]byte(front), item[1:]...)
			}
			frame := trace.Frame{Type: watch.Added, Object: item, Resource: f.sum.Resource}
			if d != nil {
				err = f.add(d, frame)
			} else {
				err = f.record(frame)
			}
			if err != nil {
				return err
			}
		}
		if page.Metadata.Continue == "" {
			version, err := json.Marshal(page.Metadata.ResourceVersion)
			if err != nil {
				return err
			}
			end := trace.Frame{Type: watch.Bookmark, Resource: f.sum.Resource, Object: fmt.Appendf(nil,
				`%s"metadata":{"resourceVersion":%s,"annotations":{%q:"true"}}}`, front, version, metav1.InitialEventsAnnotationKey)}
			if d != nil {
				return f.finish(d, end)
			}
			return f.record(end)
		}
		params["continue"] = page.Metadata.Continue
	}
}

// Pipe records what a watch says as it comes through a pipe, such as that of
// kubectl get --watch -o json --output-watch-events, until its end. Times are
// those of arrival. What can't be read is told to fault and left out; an ERROR
// event becomes a [trace.Break] that is [trace.Ended]. The stream may begin in
// the middle of things.
func Pipe(r *trace.Reader, w trace.FrameWriter, transform func(trace.Frame) (trace.Frame, error), fault func(*trace.Error)) (events int, err error) {
	r.Tolerate(fault)
	var mend trace.Mender
	start := time.Now()
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events, w.Flush()
		}
		if err != nil {
			return events, errors.Join(err, w.Flush())
		}
		f.Offset = time.Since(start)
		if f.Type == watch.Error {
			var s metav1.Status
			_ = json.Unmarshal(f.Object, &s) // Whatever it was, the watch has ended.
			f = trace.Frame{Offset: f.Offset, Resource: f.Resource, Break: &trace.Break{Reason: trace.Ended, Message: s.Message}}
		}
		f, keep, err := mend.Frame(f)
		if err == nil && keep && transform != nil {
			f, err = transform(f)
		}
		if err == nil && keep {
			err = w.Write(f)
		}
		if err != nil {
			return events, errors.Join(err, w.Flush())
		}
		if keep && f.Break == nil && f.Type != watch.Bookmark {
			events++
		}
	}
}
