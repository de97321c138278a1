package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

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
//  1. Each resource has a paged LIST and a watch from its version.
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
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	r := &recorder{opts: opts, start: time.Now(), w: w}
	sums, followers := make([]Recorded, len(opts.Resources)), make([]*follower, len(opts.Resources))
	for i, res := range opts.Resources {
		namespace := opts.Namespace
		if !res.Namespaced {
			namespace = ""
		}
		objects := client.Resource(res.GroupVersionResource).Namespace(namespace)
		sums[i].Resource = res.Traced()
		followers[i] = &follower{recorder: r, client: objects, resource: res, sum: &sums[i], known: map[string]Version{}}
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
	client   dynamic.ResourceInterface
	resource Resource
	sum      *Recorded
	known    map[string]Version // recorded version of each existing object
	rv       string             // version to resume from; empty: list first
	started  bool               // the initial list has started
	down     time.Time          // start of the present gap; zero while there is a watch
}

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
		case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
			f.rv = ""
		case !got && refused(err) && (f.down.IsZero() || time.Since(f.down) > f.opts.Settling):
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
	w, err := f.client.Watch(ctx, metav1.ListOptions{AllowWatchBookmarks: true, ResourceVersion: f.rv})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	if !f.down.IsZero() {
		f.sum.Reconnects++
		if err := f.write(f.breakOf(trace.Reconnected)); err != nil {
			return true, err
		}
		f.down = time.Time{}
	}
	return true, f.read(w.ResultChan())
}

func (f *follower) breakOf(reason string) trace.Frame {
	return trace.Frame{Resource: f.sum.Resource, Break: &trace.Break{Reason: reason, From: f.rv, DownNs: int64(time.Since(f.down))}}
}

func (f *follower) read(events <-chan watch.Event) error {
	for e := range events {
		if e.Type == watch.Error {
			return apierrors.FromObject(e.Object)
		}
		version, err := f.record(e.Type, e.Object)
		if err != nil {
			return err
		}
		f.rv = version
	}
	return nil
}

// record writes a frame and returns its resourceVersion.
func (f *follower) record(t watch.EventType, o runtime.Object) (string, error) {
	frame, key, v, err := f.frame(t, o)
	if err != nil {
		return "", err
	}
	if err := f.write(frame); err != nil {
		return "", err
	}
	switch t {
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

// frame returns the frame of an object, its key and its version.
func (f *follower) frame(t watch.EventType, o runtime.Object) (trace.Frame, string, Version, error) {
	m, err := meta.Accessor(o)
	if err != nil {
		return trace.Frame{}, "", Version{}, err
	}
	text, err := json.Marshal(o)
	frame := trace.Frame{Type: t, Object: text, Resource: f.sum.Resource}
	return frame, storm.ObjectKey(m.GetNamespace(), m.GetName()), Version{UID: m.GetUID(), ResourceVersion: m.GetResourceVersion()}, err
}

// difference collects the differences between a second list and the recording.
type difference struct {
	added, modified, deleted int                // a recreated object counts as deleted and added
	now                      map[string]Version // objects of the second list
	frames                   []trace.Frame
}

// add compares an object of the second list.
func (f *follower) add(d *difference, o runtime.Object) error {
	frame, key, v, err := f.frame(watch.Added, o)
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

// list records the initial list, or the differences of a later one from the recording.
func (f *follower) list(ctx context.Context) error {
	var version string // of the last page
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		page, err := f.client.List(ctx, opts)
		if err == nil {
			version = page.GetResourceVersion()
		}
		return page, err
	})
	pages.FullListIfExpired = false // The objects so far are recorded: the next list is a difference from them.
	d := &difference{now: map[string]Version{}}
	again := f.started
	f.started = true
	err := pages.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if again {
			return f.add(d, o)
		}
		_, err := f.record(watch.Added, o)
		return err
	})
	switch {
	case err != nil:
		return err
	case again:
		err = f.finish(d, version)
	default:
		err = f.write(f.metadataOnly(watch.Bookmark, metav1.ObjectMeta{
			ResourceVersion: version,
			Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}))
	}
	f.rv = version
	return err
}
