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
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apijson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/storm"
)

// decoded is a line that a worker is done with.
type decoded struct {
	raw        rawLine
	frame      Frame
	kind       schema.GroupVersionKind
	object     apiruntime.Object // nil for bookmarks
	endInitial bool
	err        error
}

// decode takes a line apart and makes the typed object.
func decode(raw rawLine) decoded {
	d := decoded{raw: raw}
	var h head
	if d.frame, h, d.err = parse(raw); d.err != nil {
		return d
	}
	if d.err = h.check(d.frame.Type); d.err != nil {
		return d
	}
	if d.frame.Type == watch.Error {
		d.err = watchError(d.frame.Object)
		return d
	}
	d.kind = schema.FromAPIVersionAndKind(h.APIVersion, h.Kind)
	o, err := scheme.Scheme.New(d.kind)
	if err != nil {
		d.err = corrupt("kind %s of %s is unknown", h.Kind, h.APIVersion)
		return d
	}
	if d.frame.Type == watch.Bookmark {
		d.endInitial = h.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return d
	}
	if err := apijson.Unmarshal(d.frame.Object, o); err != nil {
		d.err = corrupt("the object is no %s: %s", h.Kind, jsonFault(err))
		return d
	}
	d.object = o
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
	err   error // what ended the reading, after the lines
	done  chan []decoded
}

// decodeAll decodes the lines on GOMAXPROCS workers and hands them to add in
// order. It returns the first error in order of lines, with every goroutine
// ended.
func decodeAll(in *lines, add func(decoded) error) error {
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
					out[i] = decode(raw)
				}
				j.lines = nil
				j.done <- out
			}
		})
	}
	for j := range ordered {
		for _, d := range <-j.done {
			if err := add(d); err != nil {
				return d.raw.fail(in.name, err)
			}
		}
		if j.err != nil && !errors.Is(j.err, io.EOF) {
			return j.err
		}
	}
	return nil
}

// builder puts the events of a recording together.
type builder struct {
	storm *storm.Storm
	keys  map[string]int32
	alive []bool
	last  time.Duration
	// initialEnds is the line of the bookmark that ends the initial list.
	initialEnds int
}

func newBuilder(name string) *builder {
	return &builder{storm: &storm.Storm{Name: name}, keys: map[string]int32{}}
}

// add takes the next line; an error is about that line.
func (b *builder) add(d decoded) error {
	if d.err != nil {
		return d.err
	}
	if err := inOrder(b.last, d.frame.Offset); err != nil {
		return err
	}
	b.last = d.frame.Offset
	switch {
	case b.storm.Kind.Empty():
		b.storm.Kind = d.kind
		b.storm.Resource, _ = meta.UnsafeGuessKindToResource(d.kind)
	case b.storm.Kind != d.kind:
		return corrupt("kind %s of %s in a recording of %s of %s",
			d.kind.Kind, d.kind.GroupVersion(), b.storm.Kind.Kind, b.storm.Kind.GroupVersion())
	}
	if d.frame.Type == watch.Bookmark {
		return b.bookmark(d)
	}
	return b.event(d)
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
	key := storm.ObjectKey(o.GetNamespace(), o.GetName())
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
