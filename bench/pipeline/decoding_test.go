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
	for _, c := range []struct {
		wire     source.Wire
		source   string
		variants []string
	}{
		{source.Wire{Decode: "shared"}, "apiserver", []string{"watchlab"}},
		{source.Wire{Encoding: decode.CBOR}, "apiserver", []string{"watchlab"}},
		{source.Wire{}, "apiserver", []string{"watchlab", "ring"}},
		{source.Wire{}, "memory", []string{"watchlab"}},
	} {
		spec := overHTTP(c.wire)
		spec.Source, spec.Impls, spec.Storm = c.source, c.variants, smallStorm(t)
		if _, err := pipeline.Compare(spec); !errors.Is(err, pipeline.ErrConfig) && !errors.Is(err, impls.ErrOptions) {
			t.Errorf("%+v: %v", c, err)
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
				for _, b := range []cell.Boundary{pipeline.ReleasedWire, pipeline.WireDecoded, pipeline.DecodedEnqueued} {
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

// TestWireStamps: the stamps of unpaced cells are optional on the wire too, and a source in memory has none.
func TestWireStamps(t *testing.T) {
	t.Parallel()
	for _, which := range pipeline.AllStamps() {
		for _, src := range source.Names() {
			spec := overHTTP(source.Wire{})
			spec.Source, spec.Stamps = src, which
			if src == source.APIServerName {
				spec.Wire.Encoding = decode.Protobuf // JSON takes ten times as long
			}
			res := measure(t, comparisons(t, spec)[0])
			l, ok := res.At(pipeline.WireDecoded)
			if ok != (src == source.APIServerName && which != pipeline.StampsNone) || ok && (l.Count == res.EventsIn) != (which == pipeline.StampsAll) {
				t.Errorf("%s, stamps %s: %v, %+v", src, which, ok, l.Quantiles)
			}
		}
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

// TestBadWire: a wire that cannot be played is refused.
func TestBadWire(t *testing.T) {
	for want, change := range map[string]func(*pipeline.Config){
		"unknown variant":    func(c *pipeline.Config) { c.Wire.Decode = "nobody" },
		"clientgo-xml":       func(c *pipeline.Config) { c.Wire.Encoding = "xml" },
		"cbor":               func(c *pipeline.Config) { c.Wire = source.Wire{Encoding: decode.CBOR, Decode: "clientgo-json"} },
		"from source memory": func(c *pipeline.Config) { c.Source, c.Wire.Encoding = "memory", decode.JSON },
		"in the kubelet": func(c *pipeline.Config) {
			c.Pipeline, c.Family, c.Wire.InitialList = "kubelet", impls.Merge, source.List
		},
		"the informer pipeline": func(c *pipeline.Config) { c.Pipeline, c.Wire.Decode = "queue", "clientgo-json" },
	} {
		spec := overHTTP(source.Wire{})
		spec.Storm, spec.Impls, spec.Modes = smallStorm(t), nil, nil
		change(&spec)
		if _, err := pipeline.Compare(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", spec.Wire, err, want)
		}
	}
}
