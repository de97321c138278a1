package trace

import (
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/storm"
)

// decoded is a line that a worker is done with.
type decoded struct {
	raw      rawLine
	frame    Frame
	resource Resource

	named      bool
	object     apiruntime.Object
	endInitial bool
	err        error
}

// decode takes a line apart and makes the typed object, where the resource is
// wanted.
func decode(raw rawLine, wanted func(Resource) bool) decoded {
	d := decoded{raw: raw}
	var h head
	if d.frame, h, d.err = parse(raw); d.err != nil || d.frame.Break != nil {
		return d
	}
	d.resource, d.named = d.frame.Resource, d.frame.Resource != Resource{}
	if raw.form == blockForm {
		if !wanted(d.resource) {
			return d
		}
		if d.frame.Type == watch.Bookmark || d.frame.Type == watch.Error {
			if h, d.err = headOf(d.frame.Object); d.err != nil {
				return d
			}
		}
	} else if d.err = h.check(d.frame.Type); d.err != nil {
		return d
	}
	if d.frame.Type == watch.Error {
		d.err = watchError(d.frame.Object)
		return d
	}
	kind := d.resource.GVK()
	version := kind.GroupVersion().String()
	if raw.form != blockForm {
		version = h.APIVersion
		kind = schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
		switch {
		case !d.named:
			d.resource = ResourceOf(kind)
		case d.resource.Kind == "":
			d.resource.Kind = h.Kind
		}
	}
	if d.frame.Type == watch.Bookmark {
		d.endInitial = h.endsInitial()
	}
	o, err := scheme.Scheme.New(kind)
	switch {
	case err != nil && !d.named:
		d.err = corrupt("kind %s of %s is unknown", kind.Kind, version)
	case d.frame.Type == watch.Bookmark:
	case err != nil:
		// The recorder found the resource in the cluster: it is a custom one.
		u := &unstructured.Unstructured{}
		if err := apijson.Unmarshal(d.frame.Object, &u.Object); err != nil {
			d.err = corrupt("the object is no %s: %s", kind.Kind, jsonFault(err))
			return d
		}
		d.object = u
	default:
		if err := apijson.Unmarshal(d.frame.Object, o); err != nil {
			d.err = corrupt("the object is no %s: %s", kind.Kind, jsonFault(err))
			return d
		}
		d.object = o
	}
	if d.object != nil && d.object.GetObjectKind().GroupVersionKind() != kind {
		d.err = corrupt("a %s is recorded as a %s of %s", d.object.GetObjectKind().GroupVersionKind().Kind, kind.Kind, kind.GroupVersion())
	}
	d.frame.Object, d.raw.data = nil, nil
	return d
}

// watchError says what an ERROR frame says.
func watchError(object []byte) error {
	var s metav1.Status
	if err := json.Unmarshal(object, &s); err != nil {
		return corrupt("the watch that was recorded ended with an ERROR event")
	}
	return corrupt("the watch that was recorded ended with an ERROR event: %d %s: %s", s.Code, s.Reason, s.Message)
}

// chunk is how many lines a worker takes at once.
const chunk = 32

type job struct {
	lines []rawLine
	err   error
	done  chan []decoded
}

// decodeAll decodes the lines on GOMAXPROCS workers and hands them to add in
// order; of a trace, those of the resources that are wanted. It returns the
// first error in order of lines, with every goroutine ended.
func decodeAll(in cutter, name string, wanted func(Resource) bool, add func(decoded) error) error {
	workers := runtime.GOMAXPROCS(0)
	work := make(chan *job)
	ordered := make(chan *job, 2*workers)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(stop)

	wg.Go(func() {
		defer close(work)
		defer close(ordered)
		for {
			j := &job{done: make(chan []decoded, 1)}
			for len(j.lines) < chunk && j.err == nil {
				var raw rawLine
				if raw, j.err = in.next(); j.err == nil {
					j.lines = append(j.lines, raw)
				}
			}
			select {
			case ordered <- j:
			case <-stop:
				return
			}
			select {
			case work <- j:
			case <-stop:
				return
			}
			if j.err != nil {
				return
			}
		}
	})
	for range workers {
		wg.Go(func() {
			for j := range work {
				out := make([]decoded, len(j.lines))
				for i, raw := range j.lines {
					out[i] = decode(raw, wanted)
				}
				j.lines = nil
				j.done <- out
			}
		})
	}
	for j := range ordered {
		for _, d := range <-j.done {
			if err := add(d); err != nil {
				return d.raw.fail(name, err)
			}
		}
		if j.err != nil && !errors.Is(j.err, io.EOF) {
			return j.err
		}
	}
	return nil
}

// loader puts the events of a recording together, resource by resource.
type loader struct {
	name string

	mend     bool
	builders map[Resource]*builder

	order []*builder
	last  time.Duration
}

// add takes the next line; an error is about that line.
func (l *loader) add(d decoded) error {
	if d.err != nil {
		return d.err
	}
	if err := inOrder(l.last, d.frame.Offset); err != nil {
		return err
	}
	l.last = d.frame.Offset
	if d.frame.Break != nil {
		return nil
	}
	b := l.builders[d.resource]
	if b == nil {
		if !d.named && len(l.order) > 0 {
			kind, first := d.resource.GVK(), l.order[0].storm.Kind
			return corrupt("kind %s of %s in a recording of %s of %s", kind.Kind, kind.GroupVersion(), first.Kind, first.GroupVersion())
		}
		b = &builder{keys: map[string]int32{}, mend: l.mend}
		b.storm = &storm.Storm{Name: l.name, Resource: d.resource.GVR(), Kind: d.resource.GVK()}
		l.builders[d.resource] = b
		l.order = append(l.order, b)
	}
	if d.frame.Type == watch.Bookmark {
		return b.bookmark(d)
	}
	if d.object == nil {
		return nil // Not wanted.
	}
	return b.event(d)
}

// builder puts the events of one resource together.
type builder struct {
	storm *storm.Storm
	keys  map[string]int32
	alive []bool
	mend  bool

	initialEnds int
}

func (b *builder) bookmark(d decoded) error {
	if !d.endInitial {
		return nil
	}
	if b.initialEnds > 0 {
		return corrupt("the initial list ends a second time (first on line %d)", b.initialEnds)
	}
	for i := range b.storm.Events {
		if e := &b.storm.Events[i]; e.Type != watch.Added {
			return corrupt("the initial list ends, but has a %s of %s", e.Type, e.Key)
		}
	}
	b.initialEnds = d.raw.line
	b.storm.Initial = len(b.storm.Events)
	return nil
}

func (b *builder) event(d decoded) error {
	o, err := meta.Accessor(d.object)
	if err != nil {
		return corrupt("the object has no metadata: %v", err)
	}
	if o.GetName() == "" {
		return corrupt("the object has no name")
	}
	key := storm.ObjectKey(o.GetNamespace(), o.GetName())
	if b.mend {
		if d.frame.Type = b.mended(key, d.frame.Type); d.frame.Type == "" {
			return nil
		}
	}
	index, seen := b.keys[key]
	if !seen {
		index = int32(len(b.keys))
		b.keys[key] = index
		b.alive = append(b.alive, false)
		b.storm.Keys = len(b.keys)
	}
	switch there := b.alive[index]; {
	case d.frame.Type == watch.Added && there:
		return corrupt("ADDED of %s, which is there already", key)
	case d.frame.Type != watch.Added && !there:
		return corrupt("%s of %s, which is not there", d.frame.Type, key)
	}
	b.alive[index] = d.frame.Type != watch.Deleted
	seq := uint64(len(b.storm.Events) + 1)
	o.SetResourceVersion(strconv.FormatUint(seq, 10))
	b.storm.Events = append(b.storm.Events, storm.Event{
		Type:     d.frame.Type,
		Seq:      seq,
		At:       d.frame.Offset,
		Key:      key,
		KeyIndex: index,
		Object:   d.object,
	})
	return nil
}

// mended returns what an event is to a watcher who has seen what came before;
// empty where it is nothing.
func (b *builder) mended(key string, t watch.EventType) watch.EventType {
	index, seen := b.keys[key]
	return mendType(t, seen && b.alive[index])
}

// mendType returns what an event is to a watcher for whom the object is there,
// or isn't; empty where it is nothing.
func mendType(t watch.EventType, there bool) watch.EventType {
	switch {
	case t == watch.Deleted && !there:
		return ""
	case t == watch.Added && there:
		return watch.Modified
	case t == watch.Modified && !there:
		return watch.Added
	}
	return t
}
