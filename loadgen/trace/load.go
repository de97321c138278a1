package trace

import (
	"fmt"

	"watchlab/loadgen/storm"
)

// Load converts a recording's main resource to a storm. The main resource is the first one in
// the header, or else the first one in the recording. nameOrPath is the name of a built-in
// recording, or the path of a file in any format that [Reader] supports. A name takes
// precedence over a path; write ./name for the file.
//
// Objects have the types of client-go's scheme, with apiVersion and kind and without unknown
// fields. If the scheme does not know a resource but the recording names it, objects are
// unstructured. Events are numbered in order of arrival; the number is the resourceVersion of
// the object. Bookmarks become no events; the bookmark that ends the initial list sets
// Storm.Initial. The storm is valid (see [storm.Storm.Validate]).
//
// Load returns an [*Error] for the errors of [Reader.Next] and for these:
//
//   - a line without a resource, of a kind that client-go does not know or of another
//     kind than the lines before it;
//   - an ERROR event;
//   - ADDED of an existing object, MODIFIED or DELETED of a missing one;
//   - an initial list with anything but ADDED, or with two ends.
//
// [WatchFormat] may start anywhere in a watch, so event types are repaired as by [Mender]. The
// error for a missing file wraps [io/fs.ErrNotExist] and lists the built-in names.
//
// Decoding uses GOMAXPROCS goroutines. The storm takes about 20 kB of memory for a pod of
// 10 kB of JSON.
func Load(nameOrPath string) (*storm.Storm, error) {
	storms, err := load(nameOrPath, false)
	if err != nil {
		return nil, err
	}
	return storms[0], nil
}

// LoadSet converts every resource of a recording to a storm, the main one first; see [Load].
func LoadSet(nameOrPath string) (*storm.Set, error) {
	storms, err := load(nameOrPath, true)
	if err != nil {
		return nil, err
	}
	return &storm.Set{Name: nameOrPath, Storms: storms}, nil
}

// errNoEvents is the error for a recording, or a main resource, without events.
var errNoEvents = fmt.Errorf("%w: the recording has no events", ErrEmpty)

// load returns the storms with events: the main resource first, then the others if all is set.
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

// empty returns the error for a recording without events, with the position of its end.
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
