package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// RecordOptions are the options of [Record].
type RecordOptions struct {
	Config    *rest.Config // client configuration
	Resources []Resource   // resources to record, at least one
	Namespace string       // limits the recording to one namespace; empty means all
	// Transform changes each frame before it is written; nil keeps frames unchanged.
	Transform func(trace.Frame) (trace.Frame, error)
	// Backoff is the first pause before a retry (default 250 ms); it doubles, up to 32 times that.
	Backoff time.Duration
	// Settling is the time after the end of a watch in which the server may reject the next
	// one (default 30 s). A starting API server answers before it has loaded its authorization
	// rules and custom resources.
	Settling time.Duration
}

// Recorded counts the frames of one resource.
type Recorded struct {
	Resource   trace.Resource
	Events     int // events, without bookmarks and without Missed
	Reconnects int // resumed watches, which lose nothing
	Relists    int // lists after a gap, which may have lost versions
	Missed     int // differences that these lists showed
}

// String returns the counts in one line.
func (r Recorded) String() string {
	text := fmt.Sprintf("%s: %d events", r.Resource, r.Events+r.Missed)
	if r.Reconnects > 0 {
		text += fmt.Sprintf("; resumed %d times, with nothing missed", r.Reconnects)
	}
	if r.Relists > 0 {
		text += fmt.Sprintf("; listed again %d times, as the server had forgotten: %d events stand for what changed meanwhile, and versions between may be missing", r.Relists, r.Missed)
	}
	return text
}

// FrameWriter takes the frames of a recording in order.
type FrameWriter interface {
	Write(trace.Frame) error
	Flush() error
}

// Version identifies a version of an object.
type Version struct {
	UID             types.UID // distinguishes objects that had the same name
	ResourceVersion string    // of the object
}

// Traced returns the resource as a trace names it.
func (r Resource) Traced() trace.Resource {
	return trace.Resource{Group: r.Group, Version: r.Version, Resource: r.GroupVersionResource.Resource, Kind: r.Kind.Kind}
}

type recorder struct {
	opts  RecordOptions
	start time.Time

	mu sync.Mutex
	w  FrameWriter // guarded by mu
}

// Record records the watches of resources.
//
//  1. Each resource has a paged LIST and a watch from its version. Objects stay raw JSON.
//  2. A watch that ends resumes at the last resourceVersion or bookmark.
//  3. If the server no longer has that version (410 Gone), Record lists again. The
//     differences become frames after a [trace.Break], which counts them. The last state
//     of an object that was deleted in the gap is unknown, so its DELETED has metadata
//     only.
//
// It returns when ctx ends, which is not an error, or when the server keeps rejecting a
// watch (see Settling). It always writes and flushes the frames received so far. The
// caller closes the writer.
func Record(ctx context.Context, w FrameWriter, opts RecordOptions) ([]Recorded, error) {
	opts.Backoff = cmp.Or(opts.Backoff, 250*time.Millisecond)
	opts.Settling = cmp.Or(opts.Settling, 30*time.Second)
	config := rest.CopyConfig(opts.Config)
	config.QPS, config.Timeout = -1, 0
	r := &recorder{opts: opts, start: time.Now(), w: w}
	sums, followers := make([]Recorded, len(opts.Resources)), make([]*follower, len(opts.Resources))
	for i, res := range opts.Resources {
		client, err := restOf(config, res.GroupVersion(), runtime.ContentTypeJSON)
		if err != nil {
			return nil, fmt.Errorf("record: %w", err)
		}
		sums[i].Resource = res.Traced()
		followers[i] = &follower{recorder: r, client: client, resource: res, sum: &sums[i], known: map[string]Version{}}
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, f := range followers {
		group.Go(func() error { return f.follow(ctx) })
	}
	group.Go(func() error { return r.flush(ctx) })
	return sums, errors.Join(group.Wait(), w.Flush())
}

const flushPeriod = 2 * time.Second // a killed recorder loses less than that

func (r *recorder) flush(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, flushPeriod, false, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return false, r.w.Flush()
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of the context is not an error.
	}
	return err
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

type errWrite struct{ error } // permanent error: of the writer or of a Transform

func (e errWrite) Unwrap() error { return e.error }

type follower struct {
	*recorder
	client   rest.Interface
	resource Resource
	sum      *Recorded
	known    map[string]Version // recorded version of each existing object
	rv       string             // version to resume from; empty: list first
	started  bool               // the initial list has started
	down     time.Time          // start of the present gap; zero while there is a watch
}

var errGone = errors.New("gone")

func (f *follower) follow(ctx context.Context) error {
	pause := f.opts.Backoff
	for ctx.Err() == nil {
		got, err := f.once(ctx)
		if ctx.Err() != nil {
			break
		}
		var broken errWrite
		switch {
		case errors.As(err, &broken):
			return err
		case errors.Is(err, errGone) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			f.rv = ""
		case refused(err) && (f.down.IsZero() || time.Since(f.down) > f.opts.Settling):
			return fmt.Errorf("record: %s: %w", f.resource.GroupVersionResource.Resource, err)
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
	return nil //nolint:nilerr // The end of the context is not an error.
}

// refused reports whether a fully started server would reject the request again.
func refused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// once lists if necessary, and watches until the watch ends. got reports whether the watch started.
func (f *follower) once(ctx context.Context) (got bool, err error) {
	if f.rv == "" {
		if err := f.list(ctx); err != nil {
			return false, err
		}
	}
	body, err := f.request(map[string]string{"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": f.rv}).Stream(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = body.Close() }()
	if !f.down.IsZero() {
		f.sum.Reconnects++
		if err := f.write(f.breakOf(trace.Reconnected)); err != nil {
			return true, err
		}
		f.down = time.Time{}
	}
	return true, f.read(body)
}

func (f *follower) request(params map[string]string) *rest.Request {
	req := f.client.Get().NamespaceIfScoped(f.opts.Namespace, f.opts.Namespace != "" && f.resource.Namespaced).Resource(f.resource.GroupVersionResource.Resource)
	for k, v := range params {
		req = req.Param(k, v)
	}
	return req
}

func (f *follower) breakOf(reason string) trace.Frame {
	return trace.Frame{Resource: f.sum.Resource, Break: &trace.Break{Reason: reason, From: f.rv, DownNs: int64(time.Since(f.down))}}
}

func (f *follower) read(body io.Reader) error {
	dec := json.NewDecoder(body)
	for {
		var ev struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := dec.Decode(&ev); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if ev.Type == watch.Error {
			var s metav1.Status
			if json.Unmarshal(ev.Object, &s) == nil && s.Code == http.StatusGone {
				return errGone
			}
			return fmt.Errorf("the watch ended with an ERROR event: %s", s.Message)
		}
		version, err := f.record(trace.Frame{Type: ev.Type, Object: ev.Object, Resource: f.sum.Resource})
		if err != nil {
			return err
		}
		f.rv = version
	}
}

// record writes a frame and returns its resourceVersion.
func (f *follower) record(frame trace.Frame) (string, error) {
	key, v, err := frameVersion(frame)
	if err != nil {
		return "", err
	}
	if err := f.write(frame); err != nil {
		return "", err
	}
	switch frame.Type {
	case watch.Bookmark:
		return v.ResourceVersion, nil
	case watch.Deleted:
		delete(f.known, key)
	default:
		f.known[key] = v
	}
	f.sum.Events++
	return v.ResourceVersion, nil
}

func frameVersion(frame trace.Frame) (string, Version, error) {
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(frame.Object, &o); err != nil {
		return "", Version{}, err
	}
	return storm.ObjectKey(o.Namespace, o.Name), Version{UID: o.UID, ResourceVersion: o.ResourceVersion}, nil
}

// difference collects the differences between a second list and the recording.
type difference struct {
	added, modified, deleted int                // a recreated object counts as deleted and added
	now                      map[string]Version // objects of the second list
	frames                   []trace.Frame
}

// add compares an object of the second list.
func (f *follower) add(d *difference, frame trace.Frame) error {
	key, v, err := frameVersion(frame)
	if err != nil {
		return err
	}
	d.now[key] = v
	was, exists := f.known[key]
	switch {
	case exists && was == v && v.ResourceVersion != "":
		return nil
	case exists && was.UID == v.UID:
		frame.Type = watch.Modified
		d.modified++
	case exists:
		d.frames = append(d.frames, f.deleted(key, was))
		d.deleted++
		fallthrough
	default:
		frame.Type = watch.Added
		d.added++
	}
	d.frames = append(d.frames, frame)
	return nil
}

// finish writes the differences of a list of a version.
func (f *follower) finish(d *difference, version string) error {
	b := f.breakOf(trace.Relisted)
	frames := []trace.Frame{b}
	for _, key := range slices.Sorted(maps.Keys(f.known)) {
		if _, exists := d.now[key]; !exists {
			d.deleted++
			frames = append(frames, f.deleted(key, f.known[key]))
		}
	}
	b.Break.Until = version
	b.Break.Added, b.Break.Modified, b.Break.Deleted = d.added, d.modified, d.deleted
	frames = append(frames, d.frames...)
	if err := f.write(frames...); err != nil {
		return err
	}
	f.known = d.now
	f.sum.Relists++
	f.sum.Missed += len(frames) - 1
	f.down = time.Time{}
	return nil
}

// deleted returns a DELETED frame for an object whose last state is unknown.
func (f *follower) deleted(key string, v Version) trace.Frame {
	m := metav1.ObjectMeta{Name: key, UID: v.UID, ResourceVersion: v.ResourceVersion}
	if namespace, name, ok := strings.Cut(key, "/"); ok {
		m.Namespace, m.Name = namespace, name
	}
	return f.metadataOnly(watch.Deleted, m)
}

func (f *follower) metadataOnly(t watch.EventType, m metav1.ObjectMeta) trace.Frame {
	o := metav1.PartialObjectMetadata{ObjectMeta: m}
	o.SetGroupVersionKind(f.resource.Kind)
	text, _ := json.Marshal(&o) // It always encodes.
	return trace.Frame{Type: t, Object: text, Resource: f.sum.Resource}
}

const pageSize = "500" // number of objects in a page of a list

// list records the initial list, or the differences of a later one from the recording.
func (f *follower) list(ctx context.Context) error {
	var d *difference
	if f.started {
		d = &difference{now: map[string]Version{}}
	}
	f.started = true
	version, kind := f.resource.Kind.ToAPIVersionAndKind()
	front := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,`, kind, version)
	params := map[string]string{"limit": pageSize}
	for {
		result := f.request(params).Do(ctx)
		if err := result.Error(); err != nil { // That of Raw lacks the server's message.
			return err
		}
		body, err := result.Raw()
		if err != nil {
			return err
		}
		var page metav1.List
		if err := json.Unmarshal(body, &page); err != nil {
			return err
		}
		for _, item := range page.Items {
			var own metav1.TypeMeta
			if err := json.Unmarshal(item.Raw, &own); err != nil {
				return err
			}
			if own.Kind == "" { // as in lists of built-in resources
				item.Raw = slices.Concat(front, item.Raw[1:])
			}
			frame := trace.Frame{Type: watch.Added, Object: item.Raw, Resource: f.sum.Resource}
			if d != nil {
				err = f.add(d, frame)
			} else {
				_, err = f.record(frame)
			}
			if err != nil {
				return err
			}
		}
		if params["continue"] = page.Continue; page.Continue != "" {
			continue
		}
		if d != nil {
			err = f.finish(d, page.ResourceVersion)
		} else {
			err = f.write(f.metadataOnly(watch.Bookmark, metav1.ObjectMeta{
				ResourceVersion: page.ResourceVersion,
				Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
			}))
		}
		f.rv = page.ResourceVersion
		return err
	}
}
