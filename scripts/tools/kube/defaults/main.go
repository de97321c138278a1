// Command defaults finds the defaults of the built-in kinds by asking kube-apiserver's own functions, for the
// simulated server, which does not link them (docs/dependencies.md). The argument is loadgen/apiserver/patch:
//
//	go run ./defaults ../../../loadgen/apiserver/patch
//
// It builds objects in which just one struct exists, lets the scheme set the defaults, and writes what each field got to
// defaults.txt. A line holds for every place of its type; a path leads to a field that has its default in that place only;
// a guard names the value that a sibling must have. Random objects before and after, the oracle of TestDefaults, go to
// testdata/defaults.json.gz; -objects and -seed choose others.
package main

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
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
		err = errors.Join(writeTable(filepath.Join(flag.Arg(0), "defaults.txt"), kinds), writeObjects(filepath.Join(flag.Arg(0), "testdata/defaults.json.gz"), kinds, *objects, *seed))
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

// step leads from a struct to a field, and through pointers and lists to the next struct. No function looks into maps.
type step struct {
	owner reflect.Type
	field int
}

func (s step) name() string {
	f := s.owner.Field(s.field)
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if f.Type.Kind() == reflect.Slice {
		name += "[]"
	}
	return name
}

// fact is the default of a field, the last step of its place; the value is empty for none.
type fact struct {
	place        []step
	value, guard string
	above        int // levels from the field's struct up to that of the guard
}

// key names the field by the type that many levels above its own struct.
func (f fact) key(above int) string {
	from := f.place[max(0, len(f.place)-1-above):]
	var path []string
	for _, s := range from[:len(from)-1] {
		if s.name() != "" {
			path = append(path, s.name())
		}
	}
	t, last := from[0].owner, strings.TrimSuffix(from[len(from)-1].name(), "[]")
	return strings.TrimPrefix(t.PkgPath(), "k8s.io/api/") + "." + t.Name() + " " + strings.Join(append(path, last), ".")
}

func writeTable(path string, kinds []schema.GroupVersionKind) error {
	var all []fact
	for _, kind := range kinds {
		w := walker{kind: kind}
		w.visit(legacyscheme.Scheme.AllKnownTypes()[kind], nil)
		all = append(all, w.facts...)
	}
	// A line is of the type of the field where all its places agree, else of a type above.
	lines := map[string]bool{}
	for above := 0; len(all) > 0; above++ {
		groups := map[string][]fact{}
		for _, f := range all {
			groups[f.key(above)] = append(groups[f.key(above)], f)
		}
		all = nil
		for key, group := range groups {
			first := group[0]
			if slices.ContainsFunc(group, func(f fact) bool { return f.value != first.value || f.guard != first.guard || f.above > above }) {
				all = append(all, group...)
			} else if first.value != "" {
				lines[strings.TrimSpace(key+" "+first.value+" "+first.guard)] = true
			}
		}
	}
	head := "# Defaults of built-in kinds, from the functions of kube-apiserver v1.37.2: type, field or path, value, and the sibling that must have a value. scripts/tools/kube/defaults writes it.\n"
	return os.WriteFile(path, []byte(head+strings.Join(slices.Sorted(maps.Keys(lines)), "\n")+"\n"), 0o644)
}

type walker struct {
	kind  schema.GroupVersionKind
	facts []fact
}

// isLeaf reports whether a type is no struct, or one that is a value in JSON.
func isLeaf(t reflect.Type) bool {
	_, own := reflect.New(t).Interface().(json.Marshaler)
	return own || t.Kind() != reflect.Struct
}

// visit finds the defaults of the fields of a struct at a place, and those of the structs below.
func (w *walker) visit(t reflect.Type, place []step) {
	if isLeaf(t) || slices.ContainsFunc(place, func(s step) bool { return s.owner == t }) {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if strings.HasSuffix(f.Type.PkgPath(), "/meta/v1") && strings.HasSuffix(f.Name, "Meta") {
			continue
		}
		at, below := append(slices.Clone(place), step{t, i}), f.Type
		for below.Kind() == reflect.Pointer || below.Kind() == reflect.Slice {
			below = below.Elem()
		}
		if w.visit(below, at); f.Type.Kind() != reflect.Struct || isLeaf(f.Type) {
			found := fact{place: at, value: w.ask(at, 0, -1, "")}
			w.guard(&found)
			w.facts = append(w.facts, found)
		}
	}
}

// guard finds the field on which a default depends: a sibling, or a string beside the struct of the field.
func (w *walker) guard(f *fact) {
	for above := 0; above < min(2, len(f.place)) && f.value != "" && f.guard == ""; above++ {
		n := len(f.place) - 1 - above
		for g := range f.place[n].owner.NumField() {
			by := step{f.place[n].owner, g}
			isString := by.owner.Field(g).Type.Kind() == reflect.String
			if g == f.place[n].field || above > 0 && !isString || w.ask(f.place, above, g, "another") == f.value {
				continue
			}
			value := w.ask(append(slices.Clone(f.place[:n]), by), 0, -1, "")
			if value == "" || !isString || w.ask(f.place, above, g, strings.Trim(value, `"`)) != f.value {
				log.Printf("%s follows from %s: it needs a rule", f.key(above), by.name())
				f.value = ""
				return
			}
			f.guard, f.above = by.name()+"="+value, above
		}
	}
}

// ask returns the default of a field in an object that has nothing but the struct of the field. With other, that field of
// the struct, or of one above it, has a value; a string has that text.
func (w *walker) ask(place []step, above, other int, text string) string {
	obj, v := newObject(w.kind)
	last := len(place) - 1
	reach(v, place[:last])
	if other >= 0 {
		switch sibling := reach(v, place[:last-above]).Field(other); sibling.Kind() {
		case reflect.String:
			sibling.SetString(text)
		case reflect.Pointer:
			sibling.Set(reflect.New(sibling.Type().Elem()))
		case reflect.Slice:
			sibling.Set(reflect.MakeSlice(sibling.Type(), 1, 1))
		}
	}
	was := reach(reflect.ValueOf(obj.DeepCopyObject()).Elem(), place[:last]).Field(place[last].field)
	legacyscheme.Scheme.Default(obj)
	is := reach(v, place[:last]).Field(place[last].field)
	if _, isTime := is.Interface().(*metav1.Time); isTime || is.Kind() == reflect.Map || reflect.DeepEqual(was.Interface(), is.Interface()) {
		return "" // The default of a time is now, and an empty map is not in JSON.
	}
	value, err := json.Marshal(is.Interface())
	if err != nil {
		log.Fatal(err)
	}
	return string(value)
}

// reach returns the struct at a place, and creates what leads there.
func reach(v reflect.Value, place []step) reflect.Value {
	for _, s := range place {
		for v = v.Field(s.field); v.Kind() != reflect.Struct; {
			if v.IsNil() && v.Kind() == reflect.Pointer {
				v.Set(reflect.New(v.Type().Elem()))
			} else if v.IsNil() {
				v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			}
			if v.Kind() == reflect.Pointer {
				v = v.Elem()
			} else {
				v = v.Index(0)
			}
		}
	}
	return v
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
