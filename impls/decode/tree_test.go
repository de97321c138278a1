package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// jsonTree is a JSON value that keeps the order and the repetition of members.
type jsonTree struct {
	open  byte     // '{' or '['; 0 of a scalar
	text  string   // of a scalar
	names []string // of an object, quoted
	parts []*jsonTree
}

func parseTree(tb testing.TB, data []byte) *jsonTree {
	tb.Helper()
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	var parse func() *jsonTree
	parse = func() *jsonTree {
		token := must(in.Token())(tb)
		d, container := token.(json.Delim)
		if !container {
			text, _ := json.Marshal(token)
			return &jsonTree{text: string(text)}
		}
		t := &jsonTree{open: byte(d)}
		for in.More() {
			if d == '{' {
				t.names = append(t.names, parse().text)
			}
			t.parts = append(t.parts, parse())
		}
		_, _ = in.Token()
		return t
	}
	return parse()
}

func (t *jsonTree) append(b []byte) []byte {
	if t.open == 0 {
		return append(b, t.text...)
	}
	b = append(b, t.open)
	for i, part := range t.parts {
		if i > 0 {
			b = append(b, ',')
		}
		if t.open == '{' {
			b = append(append(b, t.names[i]...), ':')
		}
		b = part.append(b)
	}
	return append(b, t.open+2)
}

func (t *jsonTree) clone() *jsonTree {
	c := &jsonTree{open: t.open, text: t.text, names: slices.Clone(t.names)}
	for _, part := range t.parts {
		c.parts = append(c.parts, part.clone())
	}
	return c
}

// place is a part of a tree.
type treePlace struct {
	of *jsonTree
	i  int
}

func (t *jsonTree) places(all []treePlace) []treePlace {
	for i, part := range t.parts {
		all = part.places(append(all, treePlace{t, i}))
	}
	return all
}

// values are of every kind.
var treeValues = []string{
	`{}`, `[]`, `{"a":{}}`, `[1]`, `["a"]`, `[[]]`, `[{}]`, `[null]`, `{"name":"a"}`, `{"a":1,"b":["c"]}`, `""`, `"a"`, `"5"`, `"true"`, `"100m"`,
	`"2026-11-21T00:00:33Z"`, `"2026-11-21T00:00:33.123456Z"`, `"e30="`, `"\u0061\n"`, `0`, `1`, `-1`, `-0`, `1.0`, `1.5`, `1e2`, `1E-3`, `1e999`, `-1e999`, `2147483648`,
	`9223372036854775807`, `9223372036854775808`, `123456789012345678901234567890`, `true`, `false`, `null`,
	strings.Repeat("[", 150) + strings.Repeat("]", 150), strings.Repeat(`{"a":`, 250) + "1" + strings.Repeat("}", 250),
}

// change changes one part of a tree: it replaces, removes, repeats, moves, renames or nests it.
func (t *jsonTree) change(r *rand.Rand) {
	var at treePlace
	if r.IntN(2) == 0 { // a part near the root
		for at.of = t; ; at.of = at.of.parts[at.i] {
			at.i = r.IntN(len(at.of.parts))
			if len(at.of.parts[at.i].parts) == 0 || r.IntN(3) == 0 {
				break
			}
		}
	} else {
		all := t.places(nil)
		at = all[r.IntN(len(all))]
	}
	of, i := at.of, at.i
	object := of.open == '{'
	switch r.IntN(10) {
	case 0: // removed
		of.parts = slices.Delete(of.parts, i, i+1)
		if object {
			of.names = slices.Delete(of.names, i, i+1)
		}
	case 1: // repeated, perhaps with another value
		again := of.parts[i].clone()
		if r.IntN(2) == 0 {
			again = &jsonTree{text: treeValues[r.IntN(len(treeValues))]}
		}
		to := r.IntN(len(of.parts) + 1)
		of.parts = slices.Insert(of.parts, to, again)
		if object {
			of.names = slices.Insert(of.names, to, of.names[i])
		}
	case 2: // moved
		j := r.IntN(len(of.parts))
		of.parts[i], of.parts[j] = of.parts[j], of.parts[i]
		if object {
			of.names[i], of.names[j] = of.names[j], of.names[i]
		}
	case 3: // replaced by another part
		all := t.places(nil)
		other := all[r.IntN(len(all))]
		of.parts[i] = other.of.parts[other.i].clone()
	case 4: // renamed
		if object {
			names := []string{strings.ToUpper(of.names[i]), strings.ToLower(of.names[i]), of.names[r.IntN(len(of.names))], `"a"`, `""`, `"items"`, `"metadata"`, `"kind"`, `"spec"`, `"\u006bind"`}
			of.names[i] = names[r.IntN(len(names))]
		}
	case 5: // nested
		if part := of.parts[i]; r.IntN(2) == 0 {
			of.parts[i] = &jsonTree{open: '[', parts: []*jsonTree{part}}
		} else {
			of.parts[i] = &jsonTree{open: '{', names: []string{`"a"`}, parts: []*jsonTree{part}}
		}
	default:
		of.parts[i] = &jsonTree{text: treeValues[r.IntN(len(treeValues))]}
	}
}

// written are JSON objects that the random ones of the scheme are not like.
var written = []string{
	`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"1","resourceVersion":"5","generation":2,"creationTimestamp":"2026-11-21T00:00:33Z","deletionGracePeriodSeconds":30,"labels":{"a":"b","a-long-label":"a-long-value"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"c","uid":"2","controller":true}],"finalizers":["a","b"],"managedFields":[{"manager":"a","operation":"Update","time":"2026-11-21T00:00:33Z","fieldsV1":{"f:a":{}}}]},"spec":{"priority":1,"hostNetwork":true,"overhead":{"cpu":"100m"},"containers":[{"name":"a","ports":[{"containerPort":80}],"livenessProbe":{"httpGet":{"port":80}}}]}}`,
	`{"apiVersion":"example.com/v1","kind":"Odd","metadata":{"name":"a","uid":"1","resourceVersion":"5","generation":1,"managedFields":[{"manager":"a","time":"2026-11-21T00:00:33Z"}]},"spec":{"replicas":1,"on":true,"of":[{"a":1.5},"b",null,[]],"items":[1]},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
	`{"apiVersion":"example.com/v1","items":[{"apiVersion":"example.com/v1","kind":"Odd","metadata":{"name":"a","uid":"1","resourceVersion":"5"},"spec":{"a":1}},{"metadata":{"name":"b"}}],"kind":"OddList","metadata":{"continue":"a","remainingItemCount":3,"resourceVersion":"7"}}`,
	`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7","continue":"a","remainingItemCount":3,"shardInfo":{"selector":"a"}},"items":[{"metadata":{"name":"a","uid":"1","resourceVersion":"5","generation":1},"spec":{"priority":1,"hostNetwork":true}},{"metadata":{"name":"b"}}]}`,
	`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"a"},"spec":{"group":"example.com","names":{"plural":"odds","kind":"Odd"},"versions":[{"name":"v1","served":true,"schema":{"openAPIV3Schema":{"type":"object","maxLength":5,"default":{"a":1},"properties":{"a":{"nullable":true}}}}}]}}`,
	`{"kind":"Status","apiVersion":"v1","metadata":{"remainingItemCount":1},"status":"Failure","reason":"Expired","details":{"name":"a","causes":[{"field":"b"}],"retryAfterSeconds":1},"code":410}`,
	`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},"columnDefinitions":[{"name":"Name","type":"string","priority":0}],"rows":[{"cells":["a",1],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}}]}`,
	`{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7","remainingItemCount":1},"items":[{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"a"}}]}`,
}

// treeCorpus has an object of every kind of the scheme.
var treeCorpus = sync.OnceValue(func() (all []func(testing.TB) *jsonTree) {
	add := func(data func(testing.TB) []byte) {
		var once sync.Once
		var t *jsonTree
		all = append(all, func(tb testing.TB) *jsonTree {
			once.Do(func() { t = parseTree(tb, data(tb)) })
			return t.clone()
		})
	}
	for range 16 { // often
		for _, data := range written {
			add(func(testing.TB) []byte { return []byte(data) })
		}
	}
	for _, gvk := range kinds() {
		add(func(tb testing.TB) []byte { return encode(tb, JSON, filled(tb, gvk, 1)) })
	}
	return all
})

// compared are the decoders of an encoding and client-go's.
type compared struct {
	o        Options // with the table of all
	d, exact Decoder
}

func comparedIn(tb testing.TB, encodings ...Encoding) (all []compared) {
	// The last one has types of another scheme.
	for _, o := range append(slices.Clone(walked), Options{Encoding: JSON, Scheme: definitions()}) {
		if !slices.Contains(encodings, o.Encoding) {
			continue
		}
		o.Table = NewTable(64 << 10)
		c := compared{o: o, exact: exactly(tb, o)}
		c.d = decoder(tb, "shared", o)
		all = append(all, c)
	}
	return all
}

// check fails unless the data is decoded as by client-go: as an object, as a list, in a watch.
func (c compared) check(tb *testing.T, data []byte, what any) {
	tb.Helper()
	for range 2 {
		same(tb, c.d, c.exact, data, what)
	}
	sameInto(tb, c.d, c.exact, data, func() runtime.Object { return &List{} }, what)
	if obj, _, err := c.exact.Decode(data, nil, nil); err == nil && meta.IsListType(obj) {
		sameInto(tb, c.d, c.exact, data, func() runtime.Object { return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object) }, what)
	}
	defer func() {
		if n := c.o.Table.Panics(); n > 0 {
			tb.Fatalf("%v: %d panics\n%q", what, n, data)
		}
	}()
	if c.o.Encoding == JSON {
		body := fmt.Sprintf("{\"type\":\"ADDED\",\"object\":%s}\n{ \"object\" :\t%s , \"type\" : \"DELETED\" }\n", data, data)
		watched := func(d Decoder) watch.Decoder { return d.Watch(io.NopCloser(strings.NewReader(body))) }
		sameWatch(tb, watched(c.d), watched(c.exact), what)
	}
}

// sameInto compares what is decoded into an object.
func sameInto(tb testing.TB, d, exact Decoder, data []byte, into func() runtime.Object, what any) {
	tb.Helper()
	a, b := into(), into()
	want, wantKind, wantErr := exact.Decode(data, nil, a)
	got, gotKind, gotErr := d.Decode(data, nil, b)
	if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || !reflect.DeepEqual(gotKind, wantKind) || (got == b) != (want == a) ||
		wantErr == nil && !reflect.DeepEqual(got, want) {
		tb.Fatalf("%v, into %T: %+v, %v, %v; client-go has %+v, %v, %v\n%q", what, a, got, gotKind, gotErr, want, wantKind, wantErr, data)
	}
}

// changedTree returns JSON of the corpus with some parts changed, and perhaps some bytes.
func changedTree(tb testing.TB, r *rand.Rand, of int) []byte {
	corpus := treeCorpus()
	t := corpus[of%len(corpus)](tb)
	for range 1 + r.IntN(3) {
		if len(t.parts) > 0 {
			t.change(r)
		}
	}
	if r.IntN(4) == 0 {
		return mutate(r, t.append(nil))
	}
	return t.append(nil)
}

// TestEveryPart replaces each part of the written objects by each value.
func TestEveryPart(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine plays all of it")
	}
	compared := comparedIn(t, JSON)
	for _, data := range written {
		root := parseTree(t, []byte(data))
		for n, at := range root.places(nil) {
			before := at.of.parts[at.i]
			for i, value := range treeValues {
				if !*long && (i+n)%5 != 0 {
					continue
				}
				at.of.parts[at.i] = &jsonTree{text: value}
				for _, c := range compared {
					c.check(t, root.append(nil), title(c.o))
				}
			}
			at.of.parts[at.i] = before
		}
	}
}

// addSeeds adds seeds of changes, ten times as many in a long test.
func addSeeds(f *testing.F, n int) {
	if *long {
		n *= 10
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		f.Add(uint16(r.Uint32()), uint64(i))
	}
}

// FuzzTree changes parts of JSON objects of every kind to others of every kind, or some bytes.
func FuzzTree(f *testing.F) {
	compared := comparedIn(f, JSON)
	addSeeds(f, 600)
	f.Fuzz(func(t *testing.T, of uint16, seed uint64) {
		data := changedTree(t, rand.New(rand.NewPCG(seed, 1)), int(of))
		for _, c := range compared {
			c.check(t, data, title(c.o))
		}
	})
}

// wireMessage is a protobuf message, as far as it can be told from other bytes.
type wireMessage []wireField

type wireField struct {
	number, wire uint64
	value        []byte      // as on the wire, without the length
	parts        wireMessage // of the value, perhaps
}

func parseMessage(b []byte, depth int) wireMessage {
	var m wireMessage
	for i := 0; i < len(b); {
		tag, from, to, ok := span(b, i)
		if !ok {
			return nil
		}
		f := wireField{number: tag >> 3, wire: tag & 7, value: bytes.Clone(b[from:to])}
		if f.wire == wireBytes && depth < 20 {
			f.parts = parseMessage(f.value, depth+1)
		}
		m, i = append(m, f), to
	}
	return m
}

func (m wireMessage) append(b []byte) []byte {
	for _, f := range m {
		b = appendUvarint(b, f.number<<3|f.wire)
		value := f.value
		if f.parts != nil {
			value = f.parts.append(nil)
		}
		if f.wire == wireBytes {
			b = appendUvarint(b, uint64(len(value)))
		}
		b = append(b, value...)
	}
	return b
}

func appendUvarint(b []byte, v uint64) []byte {
	for ; v >= 0x80; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}

// wireValues are a value of each wire type, and of those that do not exist.
var wireValues = []wireField{
	{wire: 0, value: []byte{0}}, {wire: 0, value: []byte{1}}, {wire: 0, value: bytes.Repeat([]byte{0xff}, 9)}, {wire: 0, value: append(bytes.Repeat([]byte{0xff}, 9), 1)},
	{wire: 1, value: make([]byte, 8)}, {wire: 5, value: make([]byte, 4)}, {wire: 2}, {wire: 2, value: []byte("a")}, {wire: 2, value: []byte{0x0a, 0}},
	{wire: 2, value: []byte{0x0a, 2, 0x0a, 0}}, {wire: 2, value: []byte{0x08, 1}}, {wire: 2, value: []byte{0x0a, 5}}, {wire: 2, value: []byte{0xff}},
	{wire: 3}, {wire: 4}, {wire: 6}, {wire: 7}, {wire: 3, value: []byte{0x08, 1, 0x0c}},
}

// change changes one field of the wireMessage or of one in it, and returns the message.
func (m wireMessage) change(r *rand.Rand) wireMessage {
	if len(m) == 0 {
		return append(m, wireField{number: 1, wire: wireBytes, value: []byte("a")})
	}
	i := r.IntN(len(m))
	f := &m[i]
	if f.parts != nil && r.IntN(4) > 0 {
		f.parts = f.parts.change(r)
		return m
	}
	switch r.IntN(7) {
	case 0:
		return slices.Delete(m, i, i+1)
	case 1:
		return slices.Insert(m, r.IntN(len(m)+1), *f)
	case 2:
		j := r.IntN(len(m))
		m[i], m[j] = m[j], m[i]
	case 3:
		f.number = m[r.IntN(len(m))].number
	case 4:
		*f = wireField{number: f.number, wire: f.wire, value: f.value[:r.IntN(len(f.value)+1)]}
	default:
		v := wireValues[r.IntN(len(wireValues))]
		*f = wireField{number: f.number, wire: v.wire, value: v.value}
	}
	return m
}

// FuzzMessages changes fields of protobuf objects of every kind: their wire types, number, order and length, or
// some bytes.
func FuzzMessages(f *testing.F) {
	compared := comparedIn(f, Protobuf)
	corpus := map[int][]byte{}
	addSeeds(f, 4000)
	f.Fuzz(func(t *testing.T, of uint16, seed uint64) {
		kind, r := int(of)%len(kinds()), rand.New(rand.NewPCG(seed, 1))
		gvk := kinds()[kind]
		if corpus[kind] == nil {
			raw := must(filled(t, gvk, 1).(interface{ Marshal() ([]byte, error) }).Marshal())(t)
			corpus[kind] = raw
		}
		m := parseMessage(corpus[kind], 0)
		for range 1 + r.IntN(3) {
			m = m.change(r)
		}
		data := envelope(gvk, m.append(nil))
		if r.IntN(4) == 0 {
			data = mutate(r, data)
		}
		for _, c := range compared {
			c.check(t, data, gvk)
		}
	})
}
