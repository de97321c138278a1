package decode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// envelope wraps the bytes of a message as the API server does.
func envelope(gvk schema.GroupVersionKind, raw []byte) []byte {
	apiVersion, kind := gvk.ToAPIVersionAndKind()
	u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}, Raw: raw}
	b, err := u.Marshal()
	if err != nil {
		panic(err)
	}
	return append([]byte("k8s\x00"), b...)
}

var podKind = v1.SchemeGroupVersion.WithKind("Pod")

// bytesField is a field of wire type bytes.
func bytesField(number byte, value string) string {
	length := string([]byte{byte(len(value))}) // below 128
	return string([]byte{number<<3 | 2}) + length + value
}

// TestHostile decodes bytes that no API server sends.
func TestHostile(t *testing.T) {
	name := bytesField(1, bytesField(1, "web"))
	manager := func(entry string) string { return bytesField(1, "\x8a\x01"+string([]byte{byte(len(entry))})+entry) }
	for what, raw := range map[string]string{
		"nothing":                     "",
		"metadata twice":              name + bytesField(1, bytesField(3, "default")),
		"spec twice":                  bytesField(2, bytesField(10, "node-1")) + bytesField(2, bytesField(8, "account")),
		"containers in two runs":      bytesField(2, bytesField(2, bytesField(1, "a"))+bytesField(10, "n")+bytesField(2, bytesField(1, "b"))),
		"labels in two runs":          bytesField(1, bytesField(11, bytesField(1, "a")+bytesField(2, "1"))+bytesField(1, "n")+bytesField(11, bytesField(1, "b"))),
		"label of value and key":      bytesField(1, bytesField(11, bytesField(2, "value-first")+bytesField(1, "key"))),
		"label without value":         bytesField(1, bytesField(11, bytesField(1, "key-alone-key"))),
		"label twice":                 bytesField(1, bytesField(11, bytesField(1, "a")+bytesField(2, "1"))+bytesField(11, bytesField(1, "a")+bytesField(2, "2"))),
		"name twice":                  bytesField(1, bytesField(1, "a")+bytesField(1, "b")),
		"name as number":              bytesField(1, "\x08\x01"),
		"bad UTF-8":                   bytesField(1, bytesField(1, "\xff\xfe\x80")),
		"length over the end":         bytesField(1, "\x0a\x7fweb"),
		"length of 2^63":              bytesField(1, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"length of 2^31":              bytesField(1, "\x0a\xff\xff\xff\xff\x07"),
		"varint of eleven bytes":      bytesField(1, "\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
		"varint cut":                  bytesField(1, "\x38\xff"),
		"tag with high bits":          bytesField(1, "\x8a\x80\x80\x80\x80\x01\x01a"),
		"tag in two bytes":            bytesField(1, "\x8a\x00\x01a"),
		"field number 0":              bytesField(1, "\x02\x01a"),
		"unknown field":               bytesField(1, "\xf8\x3f\x01"+bytesField(1, "web")) + "\xfa\x3f\x02ab" + "\xf9\x3f12345678" + "\xfd\x3f1234",
		"unknown field cut":           bytesField(1, "\xfa\x3f\x7fab"),
		"unknown group":               bytesField(1, "\xfb\x3f\x08\x01\xfc\x3f"+bytesField(1, "web")),
		"end of no group":             bytesField(1, "\xfc\x3f"),
		"wire type 7":                 bytesField(1, "\x0f\x01"),
		"managed fields":              manager(bytesField(1, "kubectl") + bytesField(4, "\x08\x01") + bytesField(7, bytesField(1, "{}"))),
		"managed fields cut":          manager("\x0a\x7fkubectl"),
		"managed fields with bad raw": manager(bytesField(7, "\x0a\x7f{}")),
		"managed fields, a number":    manager("\x08\x01"),
		"managed fields, bad time":    manager(bytesField(4, "\x0a\x01a")),
		"two times":                   bytesField(1, bytesField(9, "\x08\x01")+bytesField(9, "\x08\x02")),
		"empty time":                  bytesField(1, bytesField(9, "")),
		"empty messages":              bytesField(1, "") + bytesField(2, bytesField(2, "")+bytesField(2, "")) + bytesField(3, ""),
	} {
		t.Run(what, func(t *testing.T) { hostile(t, Options{Encoding: Protobuf}, envelope(podKind, []byte(raw))) })
	}
}

// hostile decodes the data and all that it can be cut to.
func hostile(t *testing.T, o Options, data []byte) {
	exact := exactly(t, o)
	for which, table := range tables() {
		o.Table = table()
		d := decoder(t, "shared", o)
		for range 3 {
			same(t, d, exact, data, which)
		}
		for n := range data {
			same(t, d, exact, data[:n], n)
		}
	}
}

// definitions is a scheme with the types of apiextensions, which client-go's lacks.
func definitions() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := apiextensions.AddToScheme(s); err != nil {
		panic(err)
	}
	return s
}

// TestDeep nests messages deeper than the walk goes.
func TestDeep(t *testing.T) {
	s := definitions()
	schema := &apiextensions.JSONSchemaProps{Description: "the innermost"}
	for range 3000 {
		schema = &apiextensions.JSONSchemaProps{Not: schema}
	}
	crd := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "deep"}}
	crd.Spec.Versions = []apiextensions.CustomResourceDefinitionVersion{{
		Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: schema},
	}}
	raw := must(crd.Marshal())(t)
	d := decoder(t, "shared", Options{Scheme: s})
	for range 2 {
		same(t, d, decoder(t, "clientgo-protobuf-transform", Options{Scheme: s}), envelope(apiextensions.SchemeGroupVersion.WithKind("CustomResourceDefinition"), raw), "deep")
	}
}

// tokens are inserted in damaged JSON.
var tokens = []string{
	`null`, `{}`, `[]`, `""`, `,`, `:`, `1e999`, `-0`, `01`, `1.5`, `true`, `"kind":"Pod",`, `"Kind":1,`, `"items":[],`, `"a":1,`,
	`"metadata":null,`, `"metadata":{},`, `"name":"b",`, `"managedFields":[{}],`, `\u0041`, `\ud800`, "\xff", "\u212a", "\n ", `[[`, `]`, `}`,
}

// mutate damages data: it changes, removes, repeats or inserts bytes.
func mutate(r *rand.Rand, data []byte) []byte {
	if len(data) > 0 && data[0] == '{' && r.IntN(2) == 0 {
		i := r.IntN(len(data))
		for range r.IntN(8) { // mostly where a value or a member begins
			if j := bytes.IndexAny(data[i:], ":,[{"); j >= 0 && i+j+1 < len(data) {
				i += j + 1
			}
		}
		return slices.Concat(data[:i], []byte(tokens[r.IntN(len(tokens))]), data[i:])
	}
	data = append([]byte(nil), data...)
	for range 1 + r.IntN(4) {
		i := r.IntN(len(data) + 1)
		j := min(len(data), i+r.IntN(40))
		switch r.IntN(5) {
		case 0:
			data = append(data[:i:i], data[j:]...)
		case 1:
			data = append(data[:j:j], data[i:]...)
		case 2:
			data = append(data[:i:i], append([]byte{byte(r.Uint32())}, data[i:]...)...)
		default:
			if i < len(data) {
				data[i] ^= 1 << r.IntN(8)
			}
		}
	}
	return data
}

// FuzzWire compares shared with client-go for any message of some kinds.
func FuzzWire(f *testing.F) {
	fuzzed := []schema.GroupVersionKind{podKind}
	for _, gvk := range kinds() {
		if strings.HasPrefix(gvk.Version, "v1") {
			fuzzed = append(fuzzed, gvk)
		}
		if len(fuzzed)%8 == 0 {
			obj := filled(f, gvk, 1)
			raw := must(obj.(interface{ Marshal() ([]byte, error) }).Marshal())(f)
			f.Add(uint8(len(fuzzed)-1), raw)
		}
	}
	exact := decoder(f, "clientgo-protobuf-transform", Options{})
	d := decoder(f, "shared", Options{})
	bad := decoder(f, "shared", Options{Table: badHash(NewTable(0))})
	f.Fuzz(func(t *testing.T, kind uint8, raw []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		data := envelope(fuzzed[int(kind)%len(fuzzed)], raw)
		for range 2 {
			same(t, d, exact, data, "good hash")
			same(t, bad, exact, data, "bad hash")
		}
		same(t, d, exact, raw, "no envelope")
	})
}

// twins decodes two pods with equal labels.
func twins(t *testing.T, o Options) (table *Table, a, b runtime.Object) {
	o.Table = NewTable(0)
	d := decoder(t, "shared-readonly", o)
	var pods []runtime.Object
	for i := range 3 {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i), Labels: map[string]string{"app": "a-long-value"}}}
		pod.SetGroupVersionKind(podKind)
		obj, _, err := d.Decode(encode(t, o.Encoding, pod), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, obj)
	}
	return o.Table, pods[1], pods[2]
}

// violate writes to the labels of an object.
func violate(obj runtime.Object) {
	switch obj := obj.(type) {
	case *v1.Pod:
		obj.Labels["app"] = "changed"
	case *unstructured.Unstructured:
		obj.Object["metadata"].(map[string]any)["labels"].(map[string]any)["app"] = "changed"
	}
}

// TestMutationFound: a write to a shared value shows in the table, in the other object, and in
// client-go's mutation detector, which runs in a process of its own with its variable set.
func TestMutationFound(t *testing.T) {
	for i, typ := range []string{"map[string]string", "map[string]string", "interface"} {
		t.Run(title(walked[i]), func(t *testing.T) {
			table, a, b := twins(t, walked[i])
			if err := table.CheckMutations(); err != nil {
				t.Fatal(err)
			}
			if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") != "" {
				detector := cache.NewCacheMutationDetector("shared")
				detector.AddObject(b)
				violate(a)
				stop := make(chan struct{})
				time.AfterFunc(time.Minute, func() { close(stop) })
				detector.Run(stop) // panics
				return
			}
			violate(a)
			if b.(metav1.Object).GetLabels()["app"] != "changed" {
				t.Error("the labels are not shared")
			}
			if err := table.CheckMutations(); err == nil || !strings.Contains(err.Error(), typ) {
				t.Errorf("CheckMutations: %v", err)
			}
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutationFound$/^"+title(walked[i])+"$")
			child.Env = append(os.Environ(), "KUBE_CACHE_MUTATION_DETECTOR=true")
			if out, err := child.CombinedOutput(); err == nil || !strings.Contains(string(out), "cache shared modified") {
				t.Errorf("client-go's detector: %v\n%s", err, out)
			}
		})
	}
}

// held returns by how much f makes the heap grow.
func held(f func()) int64 {
	size := func() int64 {
		for range 3 { // pools give up what they hold after two
			goruntime.GC()
		}
		var m goruntime.MemStats
		goruntime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := size()
	f()
	return size() - before
}

// TestHeld: what a hostile sender makes a decoder hold is bounded by bytes: the names of kinds, and
// small groups that decode to large values.
func TestHeld(t *testing.T) {
	const limit = 2 << 20
	long := strings.Repeat("k", 1<<20)
	apiVersion := strings.Repeat("e", 300) + "/v1"
	for _, o := range walked {
		table := NewTable(limit)
		o.Table = table
		d := decoder(t, "shared", o)
		pod := filled(t, podKind, 1)
		data := encode(t, o.Encoding, pod)
		name := func(apiVersion, kind string) []byte {
			if o.Encoding == Protobuf {
				return envelope(schema.FromAPIVersionAndKind(apiVersion, kind), nil)
			}
			return fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":"a"}}`, apiVersion, kind)
		}
		hostile := map[string]func(i int) []byte{
			"kinds with long names":  func(i int) []byte { return name("example.com/v1", fmt.Sprint(i, long)) },
			"groups with long names": func(i int) []byte { return name(fmt.Sprint(i, long, "/v1"), "Widget") },
			"many kinds":             func(i int) []byte { return name(apiVersion, fmt.Sprint("Widget", i)) },
			"large values": func(i int) []byte {
				const n = 20_000
				if o.Encoding == Protobuf { // empty containers
					return envelope(podKind, rawField(2, bytes.Repeat([]byte(bytesField(2, "")), n+i%2)))
				}
				return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"name":"%d"}%s]}}`, i%2, strings.Repeat(`,{"a":[{}]}`, n))
			},
		}
		for what, make := range hostile {
			rounds := 20_000
			if what != "many kinds" {
				rounds = 24
			}
			if n := held(func() {
				for i := range rounds {
					_, _, _ = d.Decode(make(i), nil, nil)
				}
			}); n > limit+1<<20 {
				t.Errorf("%s: %s: the decoder holds %d bytes", title(o), what, n)
			}
			if !fast(d, data) {
				t.Errorf("%s: %s: client-go decodes a pod", title(o), what)
			}
		}
		goruntime.KeepAlive(d)
	}
}

// rawField is a field of wire type bytes, of any length.
func rawField(number byte, value []byte) []byte {
	return append(binary.AppendUvarint([]byte{number<<3 | wireBytes}, uint64(len(value))), value...)
}
