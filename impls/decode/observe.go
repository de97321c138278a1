package decode

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Observer is called around the decoding of each frame of a watch, and of a list, by the goroutine
// that decodes. [Decoder].Info makes one for its serializers, which decode one frame at a time: a
// decoder with several goroutines calls Info for each.
type Observer interface {
	Begin()                                      // the bytes of the frame are read, and not decoded yet
	End(event watch.EventType, o runtime.Object) // event is empty for a list and for an error
}

type observing struct {
	Observer
	event watch.EventType // of the frame; empty between frames
}

func observed(info runtime.SerializerInfo, o Observer) runtime.SerializerInfo {
	state := &observing{Observer: o}
	stream := *info.StreamSerializer
	stream.Serializer = observedFrames{stream.Serializer, state}
	info.StreamSerializer = &stream
	info.Serializer = serving{info.Serializer, observedObjects{info.Serializer, state}}
	return info
}

// observedFrames decodes frames. The object in a frame is decoded next, by observedObjects.
type observedFrames struct {
	runtime.Serializer
	*observing
}

func (d observedFrames) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	d.Begin()
	obj, gvk, err := d.Serializer.Decode(data, defaults, into)
	if e, ok := into.(*metav1.WatchEvent); ok && err == nil {
		d.event = watch.EventType(e.Type)
	} else {
		d.End("", nil)
	}
	return obj, gvk, err
}

type observedObjects struct {
	runtime.Decoder
	*observing
}

func (d observedObjects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if d.event == "" {
		d.Begin()
	}
	obj, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err != nil {
		d.event = ""
	}
	d.End(d.event, obj)
	d.event = ""
	return obj, gvk, err
}
