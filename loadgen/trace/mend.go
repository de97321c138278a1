package trace

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Mender repairs the sequence of events of a cut, damaged or merged recording, or of one that
// starts within a watch. MODIFIED of a missing object becomes ADDED, DELETED of one is dropped,
// and ADDED of an existing one becomes MODIFIED. Only the first end of an initial list stays.
// Memory grows with the number of keys. The zero value is ready to use.
type Mender struct {
	exists map[Resource]map[string]bool
	ended  map[Resource]bool // resources whose initial list cannot end any more
}

// Frame returns the repaired frame. keep is false for a frame to drop. The error is for an
// invalid object.
func (m *Mender) Frame(f Frame) (mended Frame, keep bool, err error) {
	if f.Break != nil || f.Type == watch.Error {
		return f, true, nil
	}
	h, err := headOf(f.Object)
	if err != nil {
		return f, false, err
	}
	if m.exists == nil {
		m.exists, m.ended = map[Resource]map[string]bool{}, map[Resource]bool{}
	}
	exists := m.exists[f.Resource]
	if exists == nil {
		exists = map[string]bool{}
		m.exists[f.Resource] = exists
	}
	if f.Type == watch.Bookmark {
		if h.endsInitial() {
			if m.ended[f.Resource] {
				return f, false, nil
			}
			m.ended[f.Resource] = true
		}
		return f, true, nil
	}
	key := storm.ObjectKey(h.Metadata.Namespace, h.Metadata.Name)
	switch {
	case f.Type == watch.Deleted && !exists[key]:
		return f, false, nil
	case f.Type == watch.Added && exists[key]:
		f.Type = watch.Modified
	case f.Type == watch.Modified && !exists[key]:
		f.Type = watch.Added
	}
	if f.Type != watch.Added {
		m.ended[f.Resource] = true
	}
	exists[key] = f.Type != watch.Deleted
	return f, true, nil
}

// Key returns the key of a frame's object, namespace/name, and its resourceVersion.
func (f Frame) Key() (key, version string, err error) {
	h, err := headOf(f.Object)
	return storm.ObjectKey(h.Metadata.Namespace, h.Metadata.Name), h.Metadata.ResourceVersion, err
}

// EndsInitial reports whether the frame is the bookmark that ends an initial list.
func (f Frame) EndsInitial() bool {
	if f.Type != watch.Bookmark {
		return false
	}
	h, err := headOf(f.Object)
	return err == nil && h.endsInitial()
}

// Interruptible returns a reader of in whose reads end with ctx, too. A read of standard input cannot be interrupted.
func Interruptible(ctx context.Context, in io.Reader) io.ReadCloser {
	out, feed := io.Pipe()
	go func() {
		_, err := io.Copy(feed, in)
		_ = feed.CloseWithError(err) // Always nil.
	}()
	context.AfterFunc(ctx, func() { _ = feed.Close() })
	return out
}

// Pipe records the raw output of a watch from a pipe until its end, such as that of kubectl
// get --watch -o json --output-watch-events. Times are times of arrival. For each error in the
// stream it calls fault and continues. An ERROR event becomes a [Break] with the reason
// [Ended]. The stream may start anywhere in a watch.
func Pipe(r *Reader, w *Writer, transform func(Frame) (Frame, error), fault func(*Error)) (events int, err error) {
	r.Tolerate(fault)
	defer func() { err = errors.Join(err, w.Flush()) }()
	var mend Mender
	start := time.Now()
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		f.Offset = time.Since(start)
		if f.Type == watch.Error {
			var s metav1.Status
			_ = json.Unmarshal(f.Object, &s) // The message is optional.
			f = Frame{Offset: f.Offset, Resource: f.Resource, Break: &Break{Reason: Ended, Message: s.Message}}
		}
		f, keep, err := mend.Frame(f)
		if err == nil && keep && transform != nil {
			f, err = transform(f)
		}
		if err == nil && keep {
			err = w.Write(f)
		}
		if err != nil {
			return events, err
		}
		if keep && f.Break == nil && f.Type != watch.Bookmark {
			events++
		}
	}
}
