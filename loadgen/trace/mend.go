package trace

import (
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Mender repairs the sequence of events of a cut, damaged or merged recording, or of one that
// starts within a watch. MODIFIED of a missing object becomes ADDED, DELETED of one is dropped,
// and ADDED of an existing one becomes MODIFIED. Only the first end of an initial list stays.
// Memory grows with the number of keys. The zero value is ready to use.
type Mender struct {
	exists map[objectID]bool
	ended  map[Resource]bool // resources whose initial list cannot end any more
}

type objectID struct {
	resource Resource
	key      string
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
		m.exists, m.ended = map[objectID]bool{}, map[Resource]bool{}
	}
	if f.Type == watch.Bookmark {
		keep = !h.endsInitial() || !m.ended[f.Resource]
		m.ended[f.Resource] = m.ended[f.Resource] || h.endsInitial()
		return f, keep, nil
	}
	id := objectID{f.Resource, storm.ObjectKey(h.Metadata.Namespace, h.Metadata.Name)}
	switch exists := m.exists[id]; {
	case f.Type == watch.Deleted && !exists:
		return f, false, nil
	case f.Type == watch.Added && exists:
		f.Type = watch.Modified
	case f.Type == watch.Modified && !exists:
		f.Type = watch.Added
	}
	if f.Type != watch.Added {
		m.ended[f.Resource] = true
	}
	m.exists[id] = f.Type != watch.Deleted
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
