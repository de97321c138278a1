// Command defaults asks kube-apiserver's own functions for the defaults of the built-in kinds, for the simulated server,
// which does not link them (docs/dependencies.md). The argument is loadgen/apiserver/patch:
//
//	go run ./defaults ../../../loadgen/apiserver/patch
//
// It writes random objects before and after, the oracle of TestDefaults, to testdata/defaults.json.gz; -objects and -seed
// choose others. What the test finds missing belongs into defaults.txt, or into a rule.
package main

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/api/testing" // installs all groups
)

func main() {
	log.SetFlags(0)
	objects := flag.Int("objects", 12, "random objects of each kind")
	seed := flag.Uint64("seed", 1, "of the random objects")
	flag.Parse()
	kinds, err := served(filepath.Join(flag.Arg(0), "../resources/discovery-v1.37.2.txt"))
	if err == nil {
		err = writeObjects(filepath.Join(flag.Arg(0), "testdata/defaults.json.gz"), kinds, *objects, *seed)
	}
	if err != nil {
		log.Fatal("defaults: ", err)
	}
}

// served reads the kinds that kube-apiserver serves by default.
func served(path string) (kinds []schema.GroupVersionKind, err error) {
	text, err := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		kind := schema.GroupVersionKind{Group: strings.TrimPrefix(words[0], "core"), Version: words[1], Kind: words[3]}
		if words[0] != "#" && !strings.Contains(kind.Version, "alpha") && !strings.Contains(kind.Version, "beta") && legacyscheme.Scheme.Recognizes(kind) {
			kinds = append(kinds, kind)
		}
	}
	return append(kinds, schema.GroupVersionKind{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenRequest"}), err
}

func newObject(kind schema.GroupVersionKind) (runtime.Object, reflect.Value) {
	v := reflect.New(legacyscheme.Scheme.AllKnownTypes()[kind])
	return v.Interface().(runtime.Object), v.Elem()
}

func writeObjects(path string, kinds []schema.GroupVersionKind, objects int, seed uint64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	f, lines := filler{rand.New(rand.NewPCG(seed, 0))}, json.NewEncoder(z)
	for _, kind := range kinds {
		for range objects {
			obj, v := newObject(kind)
			f.fill(v, 0)
			obj.GetObjectKind().SetGroupVersionKind(kind)
			before := obj.DeepCopyObject()
			legacyscheme.Scheme.Default(obj)
			err = errors.Join(err, lines.Encode([]any{before, obj}))
		}
	}
	return errors.Join(err, z.Close(), file.Close())
}

// words are values that the functions look at, and others. texts are those of quantities, times and ports.
var (
	words = strings.Fields("a b image image:latest image:v1 host:5000/image image@sha256:0123456789012345678901234567890123456789012345678901234567890123 RollingUpdate Recreate OnDelete ClusterIP NodePort LoadBalancer ExternalName None ClientIP Local Container Pod User Group ServiceAccount ExactCount All Ingress Egress Always Never 10.0.0.1 cpu memory Exempt Limited")
	texts = strings.Fields(`"5" 5 "1500m" "100u" "2030-01-02T03:04:05Z" "25%"`)
)

type filler struct{ *rand.Rand }

// fill sets about half of the fields below a value.
func (f filler) fill(v reflect.Value, depth int) {
	if v.Kind() != reflect.Struct && f.IntN(8) < min(depth/2, 5) {
		return
	}
	if o, ok := v.Addr().Interface().(json.Unmarshaler); ok {
		for range 4 {
			if o.UnmarshalJSON([]byte(texts[f.IntN(len(texts))])) == nil {
				return
			}
		}
		v.SetZero()
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			// Of the metadata, the functions look at labels only.
			name := v.Type().Field(i).Name
			if name != "TypeMeta" && (v.Type().Name() != "ObjectMeta" || name == "Labels") && (f.IntN(2) == 0 || v.Field(i).Kind() == reflect.Struct) {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		if f.fill(v.Elem(), depth); v.Elem().IsZero() && v.Type() == reflect.TypeFor[*metav1.Time]() {
			v.SetZero() // which is null
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+f.IntN(2), 2))
		for i := range v.Len() {
			f.fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 1 + f.IntN(2) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(words[f.IntN(len(words))])
			f.fill(value, depth+1)
			v.SetMapIndex(key, value)
		}
	case reflect.String:
		v.SetString(words[f.IntN(len(words))])
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(cmp.Or(f.IntN(4), 30)) - 1)
	}
}
