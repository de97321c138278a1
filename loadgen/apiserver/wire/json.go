package wire

import (
	"bytes"
	"encoding/json"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// A JSON event is one line:
//
//	{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":…}}⏎
const jsonTail = "}\n"

func jsonHead(t watch.EventType) string {
	switch t {
	case watch.Added:
		return `{"type":"ADDED","object":`
	case watch.Modified:
		return `{"type":"MODIFIED","object":`
	case watch.Deleted:
		return `{"type":"DELETED","object":`
	default:
		return `{"type":"` + string(t) + `","object":`
	}
}

// jsonBuffers hold encoded objects before they get their kind.
var jsonBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (e *encoder) appendJSON(dst []byte, o runtime.Object) ([]byte, error) {
	buf := jsonBuffers.Get().(*bytes.Buffer)
	defer jsonBuffers.Put(buf)
	buf.Reset()
	// A real server uses an Encoder, too.
	if err := json.NewEncoder(buf).Encode(bare(o)); err != nil {
		return dst, cannot(o, err)
	}
	object := bytes.TrimRight(buf.Bytes(), "\n")
	if len(object) < 2 || object[0] != '{' {
		return dst, cannot(o, errNotAnObject)
	}
	dst = append(dst, e.json...)
	if !bytes.Equal(object, []byte("{}")) {
		dst = append(dst, ',')
	}
	return append(dst, object[1:]...), nil
}

// jsonBare returns the object without its kind and the brace that opens it.
func (e *encoder) jsonBare(object []byte) []byte {
	return bytes.TrimPrefix(object[len(e.json):], []byte(","))
}
