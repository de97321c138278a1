package trace

import (
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// Mender makes a recording whole that was cut, damaged, merged or begun in the
// middle of things: each frame becomes what it is to somebody who has seen those
// before it and nothing else. So a MODIFIED or DELETED of an object that isn't
// there becomes an ADDED or nothing, an ADDED of one that is becomes a MODIFIED,
// and of several ends of an initial list the first remains. Its memory grows
// with the keys. The zero value is ready to be used.
type Mender struct {
	Changed, Dropped int

	there map[Resource]map[string]bool

	begun map[Resource]bool
}

// Frame returns the mended frame; keep is false where nothing is left of it. The
// error is about an object that is none.
func (m *Mender) Frame(f Frame) (mended Frame, keep bool, err error) {
	if f.Break != nil || f.Type == watch.Error {
		return f, true, nil
	}
	h, err := headOf(f.Object)
	if err != nil {
		return f, false, err
	}
	if m.there == nil {
		m.there, m.begun = map[Resource]map[string]bool{}, map[Resource]bool{}
	}
	there := m.there[f.Resource]
	if there == nil {
		there = map[string]bool{}
		m.there[f.Resource] = there
	}
	if f.Type == watch.Bookmark {
		if h.endsInitial() {
			if m.begun[f.Resource] {
				m.Dropped++
				return f, false, nil
			}
			m.begun[f.Resource] = true
		}
		return f, true, nil
	}
	key := storm.ObjectKey(h.Metadata.Namespace, h.Metadata.Name)
	t := mendType(f.Type, there[key])
	switch {
	case t == "":
		m.Dropped++
		return f, false, nil
	case t != f.Type:
		m.Changed++
	}
	if t != watch.Added {
		m.begun[f.Resource] = true
	}
	if t == watch.Deleted {
		delete(there, key)
	} else {
		there[key] = true
	}
	f.Type = t
	return f, true, nil
}

// Key returns the key of a frame's object, namespace/name, and its resource
// version.
func (f Frame) Key() (key, version string, err error) {
	h, err := headOf(f.Object)
	return storm.ObjectKey(h.Metadata.Namespace, h.Metadata.Name), h.Metadata.ResourceVersion, err
}

// EndsInitial reports whether the frame is the bookmark that ends an initial
// list.
func (f Frame) EndsInitial() bool {
	if f.Type != watch.Bookmark {
		return false
	}
	h, err := headOf(f.Object)
	return err == nil && h.endsInitial()
}
