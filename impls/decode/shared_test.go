package decode

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/loadgen/trace"
)

// badHash sends all groups and strings to one hash.
func badHash(t *Table) *Table {
	t.hash = func([]byte) uint64 { return 7 }
	return t
}

func tables() map[string]func() *Table {
	return map[string]func() *Table{
		"default":  func() *Table { return NewTable(0) },
		"small":    func() *Table { return NewTable(64 << 10) },
		"bad hash": func() *Table { return badHash(NewTable(0)) },
	}
}

// TestRecorded compares shared with client-go's decoder and transform, for every recorded event in
// protobuf and the first ones in JSON. TestRecordings compares all.
func TestRecorded(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	for _, o := range walked {
		for _, name := range trace.Names() {
			most, few, short := 1<<20, 1000, 200
			if o.Encoding == JSON { // which client-go decodes ten times as slowly
				most, few, short = 500, 300, 25
			}
			if !*long {
				most, few = short, short
			}
			all, _ := recordedObjects(t, o.Encoding, name, most)
			for which, table := range tables() {
				objs := all
				if which != "default" {
					objs = all[:min(len(all), few)]
				}
				t.Run(title(o)+"/"+name+"/"+which, func(t *testing.T) {
					o := o
					exact := exactly(t, o)
					o.Table = table()
					d := decoder(t, "shared", o)
					for i, data := range objs {
						same(t, d, exact, data, i)
						if !fast(d, data) {
							t.Fatalf("client-go decoded object %d", i)
						}
					}
					for i, data := range objs[:len(objs)/4] {
						same(t, d, exact, data, i)
					}
					if err := o.Table.CheckMutations(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// fast reports whether a decoder shared decodes the object without client-go's.
func fast(d Decoder, data []byte) bool {
	switch s := d.(*codec).Decoder.(type) {
	case *shared:
		t, raw, ok := s.target(data)
		return ok && s.walks.Get().(*walk).decode(t.plan, raw, nil) != nil
	case *sharedJSON:
		_, obj := s.decode(data, nil)
		return obj != nil
	}
	return false
}

// TestFilled compares random objects of every kind of client-go's scheme, and that they encode to
// the same bytes.
func TestFilled(t *testing.T) {
	for _, o := range walked {
		rounds, short := int64(20), int64(1)
		if o.Encoding == JSON {
			rounds, short = 4, 1
		}
		if !*long {
			rounds = short
		}
		e, exact := o.Encoding, exactly(t, o)
		for which, table := range tables() {
			t.Run(title(o)+"/"+which, func(t *testing.T) {
				o := o
				o.Table = table()
				d := decoder(t, "shared", o)
				for _, gvk := range kinds() {
					for seed := range rounds {
						obj := filled(t, gvk, seed)
						data := encode(t, e, obj)
						for range 3 {
							same(t, d, exact, data, gvk)
						}
						if _, err := dynamicScheme().New(gvk); !fast(d, data) && (!o.Unstructured || err != nil) {
							t.Fatalf("%v: decoded by client-go", gvk)
						}
						got, _, err := d.Decode(data, nil, nil)
						if err != nil {
							t.Fatal(err)
						}
						want, _, err := exact.Decode(data, nil, nil)
						if err != nil {
							t.Fatal(err)
						}
						if !bytes.Equal(encode(t, e, got), encode(t, e, want)) {
							t.Fatalf("%v encodes to other bytes", gvk)
						}
					}
				}
			})
		}
	}
}

// TestBounded: a table stays within its bytes, also when more recurs than it holds, and groups that
// never repeat do not fill it.
func TestBounded(t *testing.T) {
	const limit = 128 << 10
	held := func(t *Table) (n int64) {
		for _, g := range []*generation{t.young.Load(), t.old.Load()} {
			if g != nil {
				for i := range g.slots {
					if e := g.slots[i].Load(); e != nil {
						n += e.cost
					}
				}
			}
		}
		return n
	}
	var pods [][]byte
	for seed := range int64(300) {
		pods = append(pods, encode(t, Protobuf, filled(t, podKind, seed)))
	}
	table := NewTable(limit)
	d := decoder(t, "shared", Options{Table: table})
	for round := range 4 {
		for _, data := range pods {
			if _, _, err := d.Decode(data, nil, nil); err != nil {
				t.Fatal(err)
			}
			if n := held(table); n > limit+int64(8*len(data)) {
				t.Fatalf("round %d: %d bytes of at most %d", round, n, limit)
			}
		}
		if n := held(table); round == 0 && n > limit/2 {
			t.Errorf("pods that did not repeat take %d bytes", n)
		}
	}
}

// TestLearns: where nothing repeats the decoder stops hashing and leaves large groups to the generated
// code, and finds it when they repeat later.
func TestLearns(t *testing.T) {
	exact := decoder(t, "clientgo-protobuf-transform", Options{})
	table := NewTable(0)
	d := decoder(t, "shared-readonly", Options{Table: table})
	for seed := range int64(500) {
		same(t, d, exact, encode(t, Protobuf, filled(t, podKind, seed)), seed)
	}
	spec := table.plan(reflect.TypeFor[v1.Pod](), true).field(2 << 3)
	if spec.whole.worth() || spec.parts.Load() >= 0 {
		t.Errorf("specs that never repeated: scores %d and %d", spec.whole.score.Load(), spec.parts.Load())
	}
	pod := filled(t, podKind, 1).(*v1.Pod)
	for i := range 1000 {
		pod.UID = types.UID(fmt.Sprint("uid-", i))
		same(t, d, exact, encode(t, Protobuf, pod), i)
	}
	if !spec.whole.worth() {
		t.Errorf("a spec that repeats: score %d", spec.whole.score.Load())
	}
}
