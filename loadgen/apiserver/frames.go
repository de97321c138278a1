package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"watchlab/loadgen/storm"
)

// frames holds the watch frames of a storm, as an API server sends them:
//
//	{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":…}}⏎
//
// All lie one after the other in data. The object of a frame can be used
// without its frame, and, as the items of a list have it, without its kind.
type frames struct {
	data []byte
	// end[i] is where the frame of event i+1 ends in data; end[0] is 0.
	end []int
	// head is how long the part of a frame before the object is, by type.
	head map[watch.EventType]int
	// typeMeta is what each object begins with.
	typeMeta []byte
	// before returns, for each event, the index of the one before it of the
	// same key, or -1 where the object was not there. It is worked out when a
	// watch with a selector first asks.
	before func() []int32
}

// frameTail ends a frame.
const frameTail = "}\n"

// frameHead begins a frame.
func frameHead(t watch.EventType) string { return `{"type":"` + string(t) + `","object":` }

var errEncoding = errors.New("the object is not encoded as a JSON object")

// encode makes the frames of a storm.
func encode(s *storm.Storm) (*frames, error) {
	typeMeta, err := encodeTypeMeta(s.Kind)
	if err != nil {
		return nil, err
	}
	f := &frames{
		end:      make([]int, 1, len(s.Events)+1),
		head:     map[watch.EventType]int{},
		typeMeta: typeMeta,
		before:   sync.OnceValue(func() []int32 { return before(s) }),
	}
	for _, t := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted} {
		f.head[t] = len(frameHead(t))
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	for i := range s.Events {
		e := &s.Events[i]
		buf.Reset()
		if err := encodeObject(enc, e.Object); err != nil {
			return nil, fmt.Errorf("event %d (%s): %w", e.Seq, e.Key, err)
		}
		// Without the line's end.
		object := bytes.TrimRight(buf.Bytes(), "\n")
		if i == 0 {
			// Objects of a storm are much alike, so that this is mostly
			// enough, and growing is rare.
			f.data = make([]byte, 0, (len(object)+128)*len(s.Events)*9/8)
		}
		f.data = append(f.data, frameHead(e.Type)...)
		if f.data, err = appendObject(f.data, typeMeta, object); err != nil {
			return nil, fmt.Errorf("event %d (%s): %w", e.Seq, e.Key, err)
		}
		f.data = append(f.data, frameTail...)
		f.end = append(f.end, len(f.data))
	}
	return f, nil
}

func before(s *storm.Storm) []int32 {
	last := make([]int32, s.Keys)
	for i := range last {
		last[i] = -1
	}
	all := make([]int32, len(s.Events))
	for i := range s.Events {
		e := &s.Events[i]
		all[i] = last[e.KeyIndex]
		last[e.KeyIndex] = int32(i)
		if e.Type == watch.Deleted {
			last[e.KeyIndex] = -1
		}
	}
	return all
}

// encodeTypeMeta returns what the JSON of an object of the kind begins with:
// {"kind":"Pod","apiVersion":"v1"
func encodeTypeMeta(kind schema.GroupVersionKind) ([]byte, error) {
	tm, err := json.Marshal(metav1.TypeMeta{Kind: kind.Kind, APIVersion: kind.GroupVersion().String()})
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(tm, []byte("}")), nil
}

// encodeObject writes the JSON of an object without kind and apiVersion.
func encodeObject(enc *json.Encoder, o runtime.Object) error {
	if u, ok := o.(runtime.Unstructured); ok {
		bare := make(map[string]any, len(u.UnstructuredContent()))
		for k, v := range u.UnstructuredContent() {
			if k != "kind" && k != "apiVersion" {
				bare[k] = v
			}
		}
		return enc.Encode(bare)
	}
	if !o.GetObjectKind().GroupVersionKind().Empty() {
		// Rare: decoders leave typed objects without.
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	return enc.Encode(o)
}

// appendObject appends the object, which has no kind, with one.
func appendObject(dst, typeMeta, object []byte) ([]byte, error) {
	if len(object) < 2 || object[0] != '{' {
		return dst, errEncoding
	}
	dst = append(dst, typeMeta...)
	if !bytes.Equal(object, []byte("{}")) {
		dst = append(dst, ',')
	}
	return append(dst, object[1:]...), nil
}

// between returns the frames of the events after position from up to position
// to, in one piece.
//
// What frames hands out is shared, and has no room to append to.
func (f *frames) between(from, to uint64) []byte {
	return f.data[f.end[from]:f.end[to]:f.end[to]]
}

// object returns the object of an event, given its index.
func (f *frames) object(i int32, t watch.EventType) []byte {
	end := f.end[i+1] - len(frameTail)
	return f.data[f.end[i]+f.head[t] : end : end]
}

// bare returns the object of an event without its kind, as the items of a list
// are, and without the brace that opens it.
func (f *frames) bare(i int32, t watch.EventType) []byte {
	return bytes.TrimPrefix(f.object(i, t)[len(f.typeMeta):], []byte(","))
}

// appendFrame appends the object of an event in a frame of another type.
func (f *frames) appendFrame(dst []byte, as watch.EventType, i int32, t watch.EventType) []byte {
	dst = append(dst, frameHead(as)...)
	dst = append(dst, f.object(i, t)...)
	return append(dst, frameTail...)
}

// encodeWith returns a frame with the object at another version: the last
// state of an object that left a selector carries the version of the event
// that made it leave.
func encodeWith(as watch.EventType, typeMeta []byte, o runtime.Object, version uint64) ([]byte, error) {
	o = o.DeepCopyObject()
	acc, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	acc.SetResourceVersion(strconv.FormatUint(version, 10))
	var buf bytes.Buffer
	if err := encodeObject(json.NewEncoder(&buf), o); err != nil {
		return nil, err
	}
	frame := []byte(frameHead(as))
	if frame, err = appendObject(frame, typeMeta, bytes.TrimRight(buf.Bytes(), "\n")); err != nil {
		return nil, err
	}
	return append(frame, frameTail...), nil
}

// marshalLine returns the JSON of v and the end of the line.
func marshalLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}

// bookmarkFrame returns a bookmark, annotated where it ends the initial events.
func (s *Server) bookmarkFrame(version uint64, initialEnd bool) ([]byte, error) {
	var o runtime.Object
	if scheme.Scheme.Recognizes(s.storm.Kind) {
		var err error
		if o, err = scheme.Scheme.New(s.storm.Kind); err != nil {
			return nil, err
		}
	} else {
		o = &metav1.PartialObjectMetadata{}
	}
	acc, err := meta.Accessor(o)
	if err != nil {
		return nil, err
	}
	if initialEnd {
		acc.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return encodeWith(watch.Bookmark, s.frames.typeMeta, o, version)
}
