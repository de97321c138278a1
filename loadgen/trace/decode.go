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

// decoded is a line with its typed object.
type decoded struct {
	raw      rawLine
	frame    Frame
	resource Resource
	// named: the line names its resource
	named      bool
	object     apiruntime.Object // nil for bookmarks and unwanted resources
	endInitial bool
	err        error
}

// decode parses a line and decodes its object, if the resource is wanted.
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
	default:
		var into any = o
		d.object = o
		if err != nil {
			// The recorder found the resource in the cluster, so it is a custom resource.
			u := &unstructured.Unstructured{}
			d.object, into = u, &u.Object
		}
		if err := apijson.Unmarshal(d.frame.Object, into); err != nil {
			d.object, d.err = nil, corrupt("the object is no %s: %s", kind.Kind, jsonFault(err))
			return d
		}
	}
	if d.object != nil && d.object.GetObjectKind().GroupVersionKind() != kind {
		d.err = corrupt("a %s is recorded as a %s of %s", d.object.GetObjectKind().GroupVersionKind().Kind, kind.Kind, kind.GroupVersion())
	}
	d.frame.Object, d.raw.data = nil, nil
	return d
}

// watchError returns the error of an ERROR frame.
func watchError(object []byte) error {
	var s metav1.Status
	if err := json.Unmarshal(object, &s); err != nil {
		return corrupt("the recorded watch ended with an ERROR event")
	}
	return corrupt("the recorded watch ended with an ERROR event: %d %s: %s", s.Code, s.Reason, s.Message)
}

// chunk is the number of lines per job.
const chunk = 32

type job struct {
	// the end of the input, after the lines
	lines []rawLine
	err   error
	done  chan []decoded
}

// decodeAll decodes the lines on GOMAXPROCS workers and passes them to add in order. In a
// trace it skips the lines of unwanted resources. It returns the first error in order of
// lines, after all goroutines have ended.
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

// loader builds the storms of a recording.
type loader struct {
	name string
	// mend repairs event types: the stream may start within a watch.
	mend     bool
	builders map[Resource]*builder
	// in order of appearance
	order []*builder
	last  time.Duration
}

// add adds the next line; it returns the error of that line.
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
		return nil // unwanted resource
	}
	return b.event(d)
}

// builder builds the storm of one resource.
type builder struct {
	storm  *storm.Storm
	keys   map[string]int32
	exists []bool
	mend   bool
	// initialEnd is the line of the bookmark that ends the initial list; 0 before it.
	initialEnd int
}

func (b *builder) bookmark(d decoded) error {
	if !d.endInitial {
		return nil
	}
	if b.initialEnd > 0 {
		return corrupt("the initial list ends a second time (first on line %d)", b.initialEnd)
	}
	for i := range b.storm.Events {
		if e := &b.storm.Events[i]; e.Type != watch.Added {
			return corrupt("the initial list ends, but has a %s of %s", e.Type, e.Key)
		}
	}
	b.initialEnd = d.raw.line
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
	index, seen := b.keys[key]
	if b.mend {
		if d.frame.Type = mendType(d.frame.Type, seen && b.exists[index]); d.frame.Type == "" {
			return nil
		}
	}
	if !seen {
		index = int32(len(b.keys))
		b.keys[key] = index
		b.exists = append(b.exists, false)
		b.storm.Keys = len(b.keys)
	}
	switch exists := b.exists[index]; {
	case d.frame.Type == watch.Added && exists:
		return corrupt("ADDED of %s, which exists already", key)
	case d.frame.Type != watch.Added && !exists:
		return corrupt("%s of %s, which does not exist", d.frame.Type, key)
	}
	b.exists[index] = d.frame.Type != watch.Deleted
	seq := uint64(len(b.storm.Events) + 1)
	o.SetResourceVersion(strconv.FormatUint(seq, 10))
	b.storm.Events = append(b.storm.Events, storm.Event{
		Type: d.frame.Type, Seq: seq, At: d.frame.Offset, Key: key, KeyIndex: index, Object: d.object,
	})
	return nil
}

// mendType returns the type of an event, given whether its object exists. An empty type means
// that the event is dropped.
func mendType(t watch.EventType, exists bool) watch.EventType {
	switch {
	case t == watch.Deleted && !exists:
		return ""
	case t == watch.Added && exists:
		return watch.Modified
	case t == watch.Modified && !exists:
		return watch.Added
	}
	return t
}
