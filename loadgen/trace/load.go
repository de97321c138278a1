package trace

import (
	"fmt"

	"watchlab/loadgen/storm"
)

// Names returns the names of the recordings that are built in, sorted: each is
// recorded- and what happened, as recorded-nodeloss.
func Names() []string { return recordedNames() }

// Load makes a storm of a recording's main resource, which is the first that it
// names or has. The recording is one of those that are built in, by name, or a
// file of any format that [Reader] reads, by path; where both fit, it is the
// name (write ./name for the file).
//
// Objects are typed, as client-go's scheme has them, with apiVersion and kind
// kept and fields that it doesn't know ignored; those of a resource that it
// doesn't know, and that the recording names, are unstructured. Each event is
// numbered, in order of arrival, and its object's resourceVersion is that
// number. Bookmarks become no events; the one that ends the initial list sets
// Storm.Initial. The storm is valid in the sense of [storm.Storm.Validate].
//
// Besides what [Reader.Next] checks, these are errors of the line that has
// them: a kind that client-go doesn't know, or another than that of the lines
// before, where the line names no resource; an ERROR event; an ADDED of an
// object that is there, a MODIFIED or DELETED of one that isn't; an initial list
// with anything but ADDED, or with a second end. They are all an [*Error]. A
// file that isn't there is an error wrapping [io/fs.ErrNotExist] that lists the
// names. (Of a [WatchFormat], which may begin in the middle of things, such
// events are taken for what they are to somebody who has just begun to watch.)
//
// Decoding takes all of GOMAXPROCS; the whole storm is held in memory, some
// 20 kB for a pod of 10 kB of JSON.
func Load(nameOrPath string) (*storm.Storm, error) {
	storms, err := load(nameOrPath, false)
	if err != nil {
		return nil, err
	}
	return storms[0], nil
}

// LoadSet makes a storm of each of a recording's resources, the main one first;
// the rest is as in [Load].
func LoadSet(nameOrPath string) (*storm.Set, error) {
	storms, err := load(nameOrPath, true)
	if err != nil {
		return nil, err
	}
	return &storm.Set{Name: nameOrPath, Storms: storms}, nil
}

// errNoEvents is of a recording, or of its main resource.
var errNoEvents = fmt.Errorf("%w: the recording has no events", ErrEmpty)

// load returns the storms that have events, the main resource's first; just
// that one unless all are asked for.
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

// empty is the error for a recording without events, at its end.
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
