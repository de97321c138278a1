package trace

import (
	"fmt"

	"watchlab/loadgen/storm"
)

// Names returns the names of the recordings that are built in, sorted: each is
// recorded- and what happened, as recorded-nodeloss.
func Names() []string { return recordedNames() }

// Load makes a storm of a recording: one of those that are built in, by name,
// or a file, by path; where both fit, it is the name (write ./name for the
// file).
//
// Objects are typed, as client-go's scheme has them, with apiVersion and kind
// kept and fields that it doesn't know ignored. Each event is numbered, in
// order of arrival, and its object's resourceVersion is that number. Bookmarks
// become no events; the one that ends the initial list sets Storm.Initial. The
// storm is valid in the sense of [storm.Storm.Validate].
//
// Besides what [Reader.Next] checks, these are errors of the line that has
// them: a kind that client-go doesn't know, or another than that of the lines
// before; an ERROR event; an ADDED of an object that is there, a MODIFIED or
// DELETED of one that isn't; an initial list with anything but ADDED, or with a
// second end. They are all an [*Error]. A file that isn't there is an error
// wrapping [io/fs.ErrNotExist] that lists the names.
//
// Decoding takes all of GOMAXPROCS; the whole storm is held in memory, some
// 20 kB for a pod of 10 kB of JSON.
func Load(nameOrPath string) (*storm.Storm, error) {
	f, err := open(nameOrPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	in := newLines(f, nameOrPath)
	b := newBuilder(nameOrPath)
	if err := decodeAll(in, b.add); err != nil {
		return nil, err
	}
	if len(b.storm.Events) == 0 {
		return nil, in.fail(fmt.Errorf("%w: the recording has no events", ErrEmpty))
	}
	return b.storm, nil
}
