package fault

import (
	"net/http"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// BenchmarkWrap measures the cost of an injector for a watch without faults. A Write has
// ten frames of 9 kB each. The cases: no injector, not started, waiting for a time,
// counting frames, keeping the last frame.
func BenchmarkWrap(b *testing.B) {
	o := object(1)
	o.Data["filler"] = string(make([]byte, 1500)) // 6 bytes each as JSON
	frame, err := encodingJSON.frame(watch.Modified, o)
	if err != nil {
		b.Fatal(err)
	}
	var batch []byte
	for range 10 {
		batch = append(batch, frame...)
	}
	for _, bench := range []struct {
		name  string
		specs []Spec
		begin bool
	}{
		{"none", nil, false},
		{"idle", []Spec{{Name: Disconnect}}, false},
		{"timed", []Spec{{Name: Disconnect, At: maxDuration}}, true},
		{"frames", []Spec{{Name: Disconnect, Frames: 1 << 30}}, true},
		{"bookmark", []Spec{{Name: DuplicateBookmark, At: maxDuration}}, true},
	} {
		b.Run("faults="+bench.name, func(b *testing.B) {
			var handler http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				flush := http.NewResponseController(w).Flush
				for b.Loop() {
					if _, err := w.Write(batch); err != nil {
						b.Fatal(err)
					}
					if err := flush(); err != nil {
						b.Fatal(err)
					}
				}
			})
			if bench.specs != nil {
				inj, err := New(bench.specs, 1)
				if err != nil {
					b.Fatal(err)
				}
				if bench.begin {
					if err := inj.Start(); err != nil {
						b.Fatal(err)
					}
				}
				defer inj.Stop()
				handler = inj.Wrap(handler)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(batch)))
			r := &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/api/v1/pods", RawQuery: "watch=1&resourceVersion=1"}, Header: http.Header{}}
			handler.ServeHTTP(sink{http.Header{}}, r)
		})
	}
}

// sink discards all writes.
type sink struct{ header http.Header }

func (s sink) Header() http.Header         { return s.header }
func (s sink) WriteHeader(int)             {}
func (s sink) Write(b []byte) (int, error) { return len(b), nil }
func (s sink) Flush()                      {}
