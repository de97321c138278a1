package trace

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/storm"
)

// Load converts the main resource of a recording to a storm: the first one in the header, else
// in the recording. nameOrPath is the name of a built-in recording, or the path of a file in any
// format that [Reader] supports. A name takes precedence over a path; write ./name for the file.
//
// Objects have the types of client-go's scheme, without unknown fields; others are unstructured.
// Events are numbered in order of arrival; the number is the object's resourceVersion. The bookmark
// that ends the initial list sets Storm.Initial. The storm is valid (see [storm.Storm.Validate]).
//
// Load returns an [*Error] for the errors of [Reader.Next] and for these:
//
//   - an object of another kind than its resource;
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
	set, err := LoadSet(nameOrPath)
	if err != nil {
		return nil, err
	}
	return set.Storms[0], nil
}

// LoadSet is [Load] for every resource of a recording, the main one first.
func LoadSet(nameOrPath string) (*storm.Set, error) {
	f, err := Open(nameOrPath)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r := NewReader(f, nameOrPath)
	named := r.Header().Resources
	builders := map[Resource]*builder{}
	set := &storm.Set{Name: nameOrPath}
	for i := range decodeAll(r) {
		if i.err != nil {
			return nil, i.err
		}
		if i.frame.Break != nil {
			continue
		}
		b := builders[i.frame.Resource]
		if b == nil {
			res := i.frame.Resource
			b = &builder{keys: map[string]int32{}, storm: &storm.Storm{Name: nameOrPath, Resource: res.GVR(), Kind: res.GVK()}}
			builders[res] = b
			set.Storms = append(set.Storms, b.storm)
		}
		if err := b.add(i); err != nil {
			return nil, i.at.fail(err)
		}
	}
	set.Storms = slices.DeleteFunc(set.Storms, func(s *storm.Storm) bool { return len(s.Events) == 0 })
	if len(set.Storms) == 0 {
		return nil, r.lines.pos.fail(fmt.Errorf("%w: the recording has no events", ErrEmpty))
	}
	if len(named) > 0 {
		main := slices.IndexFunc(set.Storms, func(s *storm.Storm) bool { return s.Resource == named[0].GVR() })
		for i := main; i > 0; i-- {
			set.Storms[i], set.Storms[i-1] = set.Storms[i-1], set.Storms[i]
		}
	}
	return set, nil
}

type item struct {
	frame  Frame
	at     place
	object runtime.Object // nil for bookmarks and breaks
	err    error
}

// decodeAll yields the frames of a recording in order and decodes their objects on GOMAXPROCS
// goroutines. An item with an error is the last one.
func decodeAll(r *Reader) iter.Seq[item] {
	const window = 1024
	return func(yield func(item) bool) {
		var mend Mender
		for err := error(nil); err == nil; {
			var items []item
			for len(items) < window && err == nil {
				var f Frame
				keep := true
				if f, err = r.Next(); err == nil && r.Format() == WatchFormat {
					f, keep, err = mend.Frame(f)
				}
				if keep && !errors.Is(err, io.EOF) {
					items = append(items, item{frame: f, at: r.at, err: err})
				}
			}
			var wg sync.WaitGroup
			for part := range slices.Chunk(items, len(items)/goruntime.GOMAXPROCS(0)+1) {
				wg.Go(func() {
					for i := range part {
						part[i].decode()
					}
				})
			}
			wg.Wait()
			for _, i := range items {
				if !yield(i) || i.err != nil {
					return
				}
			}
		}
	}
}

// decode decodes the object and drops its JSON.
func (i *item) decode() {
	f := &i.frame
	if i.err != nil || f.Break != nil || f.Type == watch.Bookmark {
		return
	}
	if err := i.unmarshal(); err != nil {
		i.err = i.at.fail(err)
	}
	f.Object = nil
}

func (i *item) unmarshal() error {
	f, kind := &i.frame, i.frame.Resource.GVK()
	if f.Type == watch.Error {
		var s metav1.Status
		if err := json.Unmarshal(f.Object, &s); err != nil {
			return corrupt("the recorded watch ended with an ERROR event")
		}
		return corrupt("the recorded watch ended with an ERROR event: %d %s: %s", s.Code, s.Reason, s.Message)
	}
	o, err := scheme.Scheme.New(kind)
	var into any = o
	if err != nil { // a custom resource
		u := &unstructured.Unstructured{}
		o, into = u, &u.Object
	}
	if err := apijson.Unmarshal(f.Object, into); err != nil {
		return corrupt("the object is no %s: %s", kind.Kind, jsonFault(err))
	}
	if is := o.GetObjectKind().GroupVersionKind(); is != kind {
		return corrupt("a %s is recorded as a %s of %s", is.Kind, kind.Kind, kind.GroupVersion())
	}
	i.object = o
	return nil
}

type builder struct {
	storm      *storm.Storm
	keys       map[string]int32
	exists     []bool
	initialEnd int // line of the bookmark that ends the initial list; 0 before it
}

func (b *builder) add(i item) error {
	switch {
	case i.frame.EndsInitial():
		return b.endInitial(i.frame.Line)
	case i.object == nil:
		return nil
	}
	o, err := meta.Accessor(i.object)
	if err != nil {
		return corrupt("the object has no metadata: %v", err)
	}
	if o.GetName() == "" {
		return corrupt("the object has no name")
	}
	typ, key := i.frame.Type, storm.ObjectKey(o.GetNamespace(), o.GetName())
	index, seen := b.keys[key]
	if !seen {
		index = int32(len(b.keys))
		b.keys[key] = index
		b.exists = append(b.exists, false)
		b.storm.Keys = len(b.keys)
	}
	switch exists := b.exists[index]; {
	case typ == watch.Added && exists:
		return corrupt("ADDED of %s, which exists already", key)
	case typ != watch.Added && !exists:
		return corrupt("%s of %s, which does not exist", typ, key)
	}
	b.exists[index] = typ != watch.Deleted
	seq := uint64(len(b.storm.Events) + 1)
	o.SetResourceVersion(strconv.FormatUint(seq, 10))
	b.storm.Events = append(b.storm.Events, storm.Event{
		Type: typ, Seq: seq, At: i.frame.Offset, Key: key, KeyIndex: index, Object: i.object,
	})
	return nil
}

func (b *builder) endInitial(line int) error {
	if b.initialEnd > 0 {
		return corrupt("the initial list ends a second time (first on line %d)", b.initialEnd)
	}
	for i := range b.storm.Events {
		if e := &b.storm.Events[i]; e.Type != watch.Added {
			return corrupt("the initial list ends, but has a %s of %s", e.Type, e.Key)
		}
	}
	b.initialEnd, b.storm.Initial = line, len(b.storm.Events)
	return nil
}
