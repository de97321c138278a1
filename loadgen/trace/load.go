package trace

import (
	"fmt"

	"watchlab/loadgen/storm"
)

// Load converts a recording's main resource to a storm: the first resource that its
// header names, or the first that it has. nameOrPath is the name of a built-in
// recording, or the path of a file in any format that [Reader] reads; a name wins
// (write ./name for the file).
//
// Objects have the types of client-go's scheme, with apiVersion and kind and without
// unknown fields. Objects of a resource that the scheme does not know, and that the
// recording names, are unstructured. Events are numbered in order of arrival; the
// number is the resourceVersion of the object. Bookmarks are no events; the one that
// ends the initial list sets Storm.Initial. The storm is valid (see
// [storm.Storm.Validate]).
//
// Besides those of [Reader.Next], these are errors of a line: without a resource, a
// kind that client-go does not know or that differs from that of the lines before;
// an ERROR event; ADDED of an object that exists, MODIFIED or DELETED of one that
// does not; an initial list with anything but ADDED, or with a second end. They are
// all an [*Error]. In [WatchFormat], which may start at any point of a watch, events
// get the types of a watch that starts there. The error for a missing file wraps
// [io/fs.ErrNotExist] and lists the names.
//
// Decoding uses GOMAXPROCS. The storm takes about 20 kB of memory for a pod of 10 kB
// of JSON.
func Load(nameOrPath string) (*storm.Storm, error) {
	storms, err := load(nameOrPath, false)
	if err != nil {
		return nil, err
	}
	return storms[0], nil
}

// LoadSet converts each resource of a recording to a storm, the main one first; see
// [Load].
func LoadSet(nameOrPath string) (*storm.Set, error) {
	storms, err := load(nameOrPath, true)
	if err != nil {
		return nil, err
	}
	return &storm.Set{Name: nameOrPath, Storms: storms}, nil
}

// errNoEvents is for a recording or its main resource.
var errNoEvents = fmt.Errorf("%w: the recording has no events", ErrEmpty)

// load returns the storms with events: all, the main resource's first, or only that.
func load(nameOrPath string, all bool) ([]*storm.Storm, error) {
	f, err := Open(nameOrPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r := NewReader(f, nameOrPath)
	l := &loader{name: nameOrPath, mend: r.Format() == WatchFormat, builders: map[Resource]*builder{}}
	var main Resource
	if named := r.Header().Resources; len(named) > 0 {
		main = named[0]
	}
	wanted := func(res Resource) bool { return all || main == (Resource{}) || res == main }
	if err := decodeAll(r.cut, nameOrPath, wanted, l.add); err != nil {
		return nil, err
	}
	var storms []*storm.Storm
	for _, b := range l.order {
		switch {
		case len(b.storm.Events) == 0:
		case main == (Resource{}) || b.storm.Resource == main.GVR():
			storms = append([]*storm.Storm{b.storm}, storms...)
			main = Resource{Group: b.storm.Resource.Group, Version: b.storm.Resource.Version, Resource: b.storm.Resource.Resource}
		case all:
			storms = append(storms, b.storm)
		}
	}
	if len(storms) == 0 {
		return nil, r.empty()
	}
	return storms, nil
}

// empty returns the error for a recording without events, at its end.
func (r *Reader) empty() error {
	e := &Error{Name: r.name, Err: errNoEvents}
	switch c := r.cut.(type) {
	case *lines:
		e.Line, e.Offset = c.line, c.offset
	case *documents:
		e.Line, e.Offset = c.line, c.offset
	case *blocks:
		e.Block, e.Offset = max(c.block, 1), c.tape.at
	}
	return e
}
