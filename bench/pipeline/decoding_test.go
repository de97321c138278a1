package pipeline_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/impls/decode"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// wires returns each decoder with each encoding that it takes.
func wires(t *testing.T) (all []source.Wire) {
	t.Helper()
	for _, v := range decode.Variants() {
		for _, e := range decode.Encodings() {
			w, err := source.Wire{Encoding: e, Decode: v.Name}.Complete()
			switch {
			case strings.HasPrefix(v.Name, planted):
			case err == nil:
				all = append(all, w)
			case !errors.Is(err, impls.ErrOptions):
				t.Errorf("%s, %s: %v", v.Name, e, err)
			}
		}
	}
	return all
}

func overHTTP(w source.Wire) pipeline.Config {
	return pipeline.Config{Family: impls.DeltaFIFO, Pipeline: "informer", Source: "apiserver", Wire: w, Modes: []string{"in-order"}, Impls: []string{"ring"}}
}

// TestStacks: client-go's informer is the baseline of the stacks, and each decodes by its own decoder.
// It runs alone, as bytes are those of the process.
func TestStacks(t *testing.T) {
	for _, e := range []decode.Encoding{decode.JSON, decode.Protobuf} {
		spec := overHTTP(source.Wire{Encoding: e})
		spec.Impls = pipeline.Stacks()
		bytes := map[string]float64{}
		for _, cl := range comparisons(t, spec) {
			if impl := cl.Label("impl"); cl.Label("encoding") != string(e) || cl.Label("decode") != "" || cl.Baseline != (impl == "clientgo") {
				t.Errorf("labels %v, baseline %v", cl.Labels, cl.Baseline)
			} else {
				bytes[impl] = measure(t, cl).BytesPerEvent
			}
		}
		if len(bytes) != len(pipeline.Stacks()) || bytes["watchlab"] > 0.9*bytes["clientgo"] || bytes["watchlab"] > 0.9*bytes["clientgo-transform"] {
			t.Errorf("%s: bytes per event %v, want less by the decoder shared", e, bytes)
		}
	}
}

// TestDecoders: below each decoder nothing is lost or reordered, and every event has the stages of
// the wire.
func TestDecoders(t *testing.T) {
	t.Parallel()
	for i, w := range wires(t) {
		spec := overHTTP(w)
		spec.Paces = rates([]pace.Rate{0, 2000}[i%2])
		if w.Decode == "shared" {
			spec.Impls = append(spec.Impls, pipeline.ClientGoInformer)
		}
		for _, cl := range comparisons(t, spec) {
			t.Run(name(cl), func(t *testing.T) {
				t.Parallel()
				if cl.Label("encoding") != string(w.Encoding) || cl.Label("decode") != w.Decode {
					t.Error("labels")
				}
				res := measure(t, cl)
				_, paced := cl.Rate()
				for _, b := range []cell.Boundary{observe.ReleasedWire, observe.WireDecoded, observe.DecodedEnqueued} {
					l, ok := res.At(b)
					if !ok || l.Count == 0 || l.Negative != 0 || paced && l.Count != res.EventsIn || !paced && l.Count > res.EventsIn/60 {
						t.Errorf("%s: %v, %+v of %d events", b, ok, l.Quantiles, res.EventsIn)
					}
				}
			})
		}
	}
}

// TestDecodersRelist: nor when the watch expires, however the Reflector gets the state.
func TestDecodersRelist(t *testing.T) {
	t.Parallel()
	for i, w := range wires(t) {
		w.InitialList = []string{source.List, source.WatchList}[i%2]
		spec := overHTTP(w)
		spec.Faults = []fault.Spec{{Name: fault.Gone, Frames: 60, Count: 1, Duration: fault.Duration(time.Millisecond)}}
		cl := comparisons(t, spec)[0]
		t.Run(name(cl), func(t *testing.T) {
			t.Parallel()
			res := measure(t, cl)
			if n, _ := noted(res, "relists"); n != 1 {
				t.Errorf("%v relists", n)
			}
		})
	}
}

// mistaken decodes the second event of the victim to another object.
type mistaken struct {
	decode.Decoder
	events *int
}

func (d mistaken) Info() runtime.SerializerInfo {
	info := d.Decoder.Info()
	info.Serializer = mistakes{info.Serializer, d.events}
	return info
}

type mistakes struct {
	runtime.Serializer
	events *int
}

func (d mistakes) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	obj, gvk, err := d.Serializer.Decode(data, defaults, into)
	if isVictim(obj) {
		if *d.events++; *d.events == 2 {
			obj = altered(obj).(runtime.Object)
		}
	}
	return obj, gvk, err
}

func registerMistaken() {
	decode.Register(decode.Variant{Name: planted + "decoder", Summary: "faulty", Guarantees: []impls.Guarantees{{Order: impls.OrderTotal}}, New: func(o decode.Options) (decode.Decoder, error) {
		d, err := decode.New("clientgo-json", o)
		return mistaken{d, new(int)}, err
	}})
}

// TestMistakenDecoder: the checks find a decoder that changes an object.
func TestMistakenDecoder(t *testing.T) {
	cl := comparisons(t, overHTTP(source.Wire{Decode: planted + "decoder"}))[0]
	if _, runErr, err := play(t.Context(), t, cl); runErr != nil || !errors.Is(err, lab.ErrDiverged) && !errors.Is(err, lab.ErrLost) {
		t.Errorf("Run: %v, Check: %v", runErr, err)
	}
}
