package anonymise

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// testKey makes runs reproducible.
var testKey = [keySize]byte{1, 2, 3}

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

func (a *Anonymiser) text(s string) string { return a.replacement(name, s) }

// frames reads frames of a recording: the first ones of each resource, and every nth of the others.
func frames(t testing.TB, path string, first, nth int) []trace.Frame {
	t.Helper()
	f := must(trace.Open(path))(t)
	defer func() { _ = f.Close() }()
	r := trace.NewReader(f, path)
	count := map[trace.Resource]int{}
	var out []trace.Frame
	for {
		fr, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		n := count[fr.Resource]
		if n < first || n%nth == 0 {
			out = append(out, fr)
		}
		count[fr.Resource]++
	}
}

// recordings returns the recordings to test: the built-in ones, or the files of a folder with
// other resources of the same clusters.
func recordings(t testing.TB) []string {
	t.Helper()
	folder := os.Getenv("WATCHLAB_TEST_RECORDINGS")
	if folder == "" {
		return trace.Names()
	}
	found, err := filepath.Glob(filepath.Join(folder, "*", "*.jsonl.gz"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no recordings in %s: %v", folder, err)
	}
	return found
}

// harmlessForm matches strings that are kept because of their form.
var harmlessForm = regexp.MustCompile(`^(\d{4}-\d\d-\d\dT[0-9:.]+Z|\d+|\d+(\.\d+)?(m|k|Ki|Mi|Gi|Ti|M|G)|\d{1,3}%|)$`)

// TestRecordings: of a recording from a real cluster, only the strings of the golden file survive. A name has one
// replacement, and different names have different ones.
func TestRecordings(t *testing.T) {
	kept, gone, come := words{}, words{}, words{}
	replacements, reversed := map[string]string{}, map[string]string{}
	nth := 100
	if testing.Short() {
		nth = 1000
	}
	for _, path := range recordings(t) {
		a := withKey(testKey)
		for _, f := range frames(t, path, 10, nth) {
			before := bytes.Clone(f.Object)
			g := must(a.Frame(f))(t)
			if !bytes.Equal(before, f.Object) || g.Offset != f.Offset || g.Type != f.Type || g.Resource != f.Resource {
				t.Fatalf("%s: %v became %v", path, f, g)
			}
			if len(g.Object) > len(f.Object) {
				t.Fatalf("%s: %d bytes became %d:\n%s\n%s", path, len(f.Object), len(g.Object), f.Object, g.Object)
			}
			eachString(t, f.Object, g.Object, func(was, is string) {
				switch {
				case was != is:
					gone.Insert(was)
					come.Insert(is)
				case !harmlessForm.MatchString(was):
					kept.Insert(was)
				}
			})
			var o, p metav1.PartialObjectMetadata
			decode(t, f.Object, &o)
			decode(t, g.Object, &p)
			for from, to := range namesOf(o, p) {
				if r, ok := replacements[from]; ok && r != to {
					t.Fatalf("%s: %q became %q and %q", path, from, r, to)
				}
				if r, ok := reversed[to]; ok && r != from {
					t.Fatalf("%s: %q and %q became %q", path, r, from, to)
				}
				replacements[from], reversed[to] = to, from
			}
			for i, set := range o.ManagedFields {
				if was, is := fieldSet(t, set.FieldsV1), fieldSet(t, p.ManagedFields[i].FieldsV1); was.Size() != is.Size() {
					t.Fatalf("%s: %d managed fields became %d", path, was.Size(), is.Size())
				}
			}
			if !strings.HasPrefix(p.Name, p.GenerateName) || len(validation.IsDNS1123Subdomain(p.Name)) > 0 && p.Name != "" {
				t.Fatalf("%s: name %q, generateName %q", path, p.Name, p.GenerateName)
			}
		}
	}
	for s := range gone {
		if come.Has(s) && len(s) >= 6 && !kept.Has(s) {
			t.Errorf("%q has survived in another place", s)
		}
	}
	if len(gone) < 500 {
		t.Errorf("%d strings were replaced", len(gone))
	}
	found := strings.Join(slices.Sorted(maps.Keys(kept)), "\n") + "\n"
	if os.Getenv("WATCHLAB_TEST_RECORDINGS") != "" && *update {
		if err := os.WriteFile("testdata/kept.txt", []byte(found), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden := must(os.ReadFile("testdata/kept.txt"))(t)
	allowed := sets.New(strings.Split(string(golden), "\n")...)
	for s := range kept {
		if !allowed.Has(s) {
			t.Errorf("%q has survived, and is not in testdata/kept.txt", s)
		}
	}
}

func decode(t testing.TB, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%v:\n%s", err, b)
	}
}

// namesOf maps the names of an object to those of its replacement.
func namesOf(o, p metav1.PartialObjectMetadata) map[string]string {
	m := map[string]string{o.Name: p.Name, o.Namespace: p.Namespace, string(o.UID): string(p.UID)}
	for i, ref := range o.OwnerReferences {
		m[ref.Name], m[string(ref.UID)] = p.OwnerReferences[i].Name, string(p.OwnerReferences[i].UID)
	}
	for k, v := range o.Labels {
		if is, ok := p.Labels[k]; ok {
			m[v] = is
		}
	}
	return m
}

func fieldSet(t testing.TB, f *metav1.FieldsV1) *fieldpath.Set {
	t.Helper()
	s := &fieldpath.Set{}
	if f != nil {
		if err := s.FromJSON(bytes.NewReader(f.GetRawBytes())); err != nil {
			t.Fatalf("managed fields: %v:\n%s", err, f.GetRawBytes())
		}
	}
	return s
}

// eachString calls f with each string and key of a document and its replacement, which has as many bytes.
func eachString(t testing.TB, was, is []byte, f func(was, is string)) {
	t.Helper()
	before, after := tokens(was), tokens(is)
	if len(before) != len(after) {
		t.Fatalf("%s became %s", was, is)
	}
	for i := range before {
		b, ok := before[i].(string)
		a, same := after[i].(string)
		nested := strings.HasPrefix(b, "k:") || strings.HasPrefix(b, "v:") // JSON that may lose escapes
		switch {
		case !ok && before[i] != after[i], ok != same, len(a) != len(b) && !nested:
			t.Fatalf("%v became %v in %s", before[i], after[i], is)
		case ok:
			f(b, a)
		}
	}
}

// TestStorm: the storm of an anonymised recording equals that of the recording, except for names.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	a := withKey(testKey)
	var was, is bytes.Buffer
	w, x := trace.NewLineWriter(&was), trace.NewLineWriter(&is)
	for _, f := range frames(t, "recorded-nodeloss", 200, 1e6) {
		g := must(a.Frame(f))(t)
		if err := errors.Join(w.Write(f), x.Write(g)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), x.Close()); err != nil {
		t.Fatal(err)
	}
	load := func(name string, b bytes.Buffer) *storm.Storm {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		s := must(trace.Load(path))(t)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, r := load("was", was), load("is", is)
	if s.Initial != r.Initial || s.Keys != r.Keys || len(s.Events) != len(r.Events) {
		t.Fatalf("%d events of %d keys, %d initial, became %d of %d, %d", len(s.Events), s.Keys, s.Initial, len(r.Events), r.Keys, r.Initial)
	}
	selected := 0
	for i, e := range s.Events {
		f := r.Events[i]
		if e.Type != f.Type || e.At != f.At || e.KeyIndex != f.KeyIndex || e.Key == f.Key {
			t.Fatalf("event %d: %s of %s (%d) became %s of %s (%d)", i+1, e.Type, e.Key, e.KeyIndex, f.Type, f.Key, f.KeyIndex)
		}
		p, q := e.Object.(*v1.Pod), f.Object.(*v1.Pod)
		_, err := netip.ParseAddr(q.Status.PodIP)
		if p.Status.Phase != q.Status.Phase || !p.CreationTimestamp.Equal(&q.CreationTimestamp) || err != nil && p.Status.PodIP != "" {
			t.Fatalf("event %d: %+v became %+v", i+1, p.Status, q.Status)
		}
		// A pod's selector still selects the pod.
		for _, c := range q.Spec.TopologySpreadConstraints {
			sel, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
			if err != nil || !sel.Matches(labels.Set(q.Labels)) {
				t.Fatalf("event %d: %v does not select %v: %v", i+1, sel, q.Labels, err)
			}
			selected++
		}
		for j, c := range q.Spec.Containers {
			was := p.Spec.Containers[j]
			if len(validation.IsDNS1123Label(c.Name)) > 0 || !c.Resources.Requests.Cpu().Equal(*was.Resources.Requests.Cpu()) || len(c.Env) != len(was.Env) {
				t.Fatalf("event %d: container %+v became %+v", i+1, was, c)
			}
			for _, e := range c.Env {
				if len(validation.IsEnvVarName(e.Name)) > 0 {
					t.Fatalf("event %d: env %q", i+1, e.Name)
				}
			}
		}
	}
	if selected == 0 {
		t.Error("nothing was selected")
	}
}

// objects is the number of objects of TestSecrets; at least one of each kind.
var objects = flag.Int("objects", 0, "random objects that hold secrets")

// mark is in both halves of each secret.
const mark = "ZqJxKvWy"

// marks are the forms of mark in an object, also in base64.
func marks() []string {
	forms := []string{mark}
	for before := range 3 {
		text := base64.StdEncoding.EncodeToString(append(make([]byte, before), mark...))
		forms = append(forms, text[(8*before+5)/6:8*(before+len(mark))/6])
	}
	return forms
}

// TestSecrets fills every field of every type with secrets: none survives, also not in a custom resource
// with these fields, and the result decodes to the same type.
func TestSecrets(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	var secrets []string
	word := func() string {
		b := make([]byte, 24)
		for i := range b {
			b[i] = letters[rng.IntN(len(letters))]
		}
		copy(b, mark)
		copy(b[12:], mark)
		s := string(b)
		secrets = append(secrets, s)
		return s
	}
	secret := func() string {
		s := word()
		// Sometimes with characters around it that need escapes.
		switch rng.IntN(6) {
		case 0:
			return s + "\n\"<é> " + s + "\\\u2028"
		case 1:
			return s[:12] + "-é😀-" + s[12:]
		}
		return s
	}
	filler := randfill.NewWithSeed(int64(seed)).NilChance(0.1).NumElements(1, 2).MaxDepth(14).Funcs(
		func(s *string, _ randfill.Continue) { *s = secret() },
		func(b *[]byte, _ randfill.Continue) { *b = []byte(secret()) },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(int64(c.Intn(1000)), resource.DecimalSI)
		},
		func(x *metav1.Time, _ randfill.Continue) { x.Time = time.Unix(1e9, 0) },
		func(x *metav1.MicroTime, _ randfill.Continue) { x.Time = time.Unix(1e9, 0) },
		func(x *intstr.IntOrString, _ randfill.Continue) { *x = intstr.FromString(secret()) },
		func(x *runtime.RawExtension, _ randfill.Continue) {
			x.Raw = fmt.Appendf(nil, `{"kind":%q,"spec":{%q:[%q,1,true],"replicas":2}}`, secret(), secret(), secret())
		},
		func(x *runtime.Object, _ randfill.Continue) {},
		func(x *metav1.FieldsV1, _ randfill.Continue) {
			inner, _ := json.Marshal(fmt.Sprintf(`k:{"name":%q}`, secret()))
			member, _ := json.Marshal(fmt.Sprintf(`v:%q`, secret()))
			x.SetRawBytes(fmt.Appendf(nil, `{"f:metadata":{"f:labels":{".":{},"f:%s":{}},"f:finalizers":{%s:{}}},"f:spec":{"f:containers":{%s:{"f:%s":{}}}},"f:%s":{},%q:{},"i:%s":{}}`,
				word(), member, inner, word(), word(), word(), word()))
		},
	)
	a := withKey(testKey)
	filled := 0
	known := scheme.Scheme.AllKnownTypes()
	maps.DeleteFunc(known, func(_ schema.GroupVersionKind, typ reflect.Type) bool {
		return !reflect.PointerTo(typ).Implements(reflect.TypeFor[metav1.Object]()) && !reflect.PointerTo(typ).Implements(reflect.TypeFor[metav1.ObjectMetaAccessor]())
	})
	for filled == 0 || filled < *objects {
		for kind, typ := range known {
			filled++
			o := reflect.New(typ).Interface().(runtime.Object)
			secrets = secrets[:0]
			filler.Fill(o)
			o.GetObjectKind().SetGroupVersionKind(kind)
			if m, err := meta.Accessor(o); err == nil {
				m.SetResourceVersion("12")
			}
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatalf("%v: %v", kind, err)
			}
			out := replaced(t, a, kind, text)
			replaced(t, a, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, text)
			if filled > len(known) {
				continue
			}
			for _, s := range secrets {
				plain, encoded := []byte(s), base64.StdEncoding.EncodeToString([]byte(s))[:16]
				if bytes.Contains(out, plain) || bytes.Contains(out, []byte(encoded)) || bytes.Contains(out, plain[:12]) || bytes.Contains(out, plain[12:]) {
					i := max(bytes.Index(out, plain[:12]), bytes.Index(out, plain[12:]))
					t.Fatalf("%v: the secret %q has survived: …%s", kind, s, out[max(0, i-60):min(len(out), max(i, 0)+60)])
				}
			}
			sameType(t, kind, typ, text, out)
		}
	}
	if len(known) < 100 {
		t.Errorf("%d kinds", len(known))
	}
	t.Logf("%d objects of %d kinds", filled, len(known))
}

// replaced returns the replacement of an object that holds marks: it has their place, and none of them.
func replaced(t *testing.T, a *Anonymiser, kind schema.GroupVersionKind, text []byte) []byte {
	t.Helper()
	out, err := a.object(kind, text)
	if err != nil {
		t.Fatalf("%v: %v", kind, err)
	}
	if len(out) > len(text) {
		t.Fatalf("%v: %d bytes became %d:\n%s\n%s", kind, len(text), len(out), text, out)
	}
	for _, form := range marks() {
		if i := bytes.Index(out, []byte(form)); i >= 0 {
			t.Fatalf("%v: a secret has survived: …%s", kind, out[max(0, i-60):min(len(out), i+60)])
		}
	}
	return out
}

// sameType fails the test unless the replacement of an object decodes to its type, with the same fields.
func sameType(t *testing.T, kind schema.GroupVersionKind, typ reflect.Type, text, out []byte) {
	t.Helper()
	p := reflect.New(typ).Interface().(runtime.Object)
	if err := json.Unmarshal(out, p); err != nil {
		t.Fatalf("%v: %v:\n%s", kind, err, out)
	}
	if p.GetObjectKind().GroupVersionKind() != kind {
		t.Fatalf("%v became %v", kind, p.GetObjectKind().GroupVersionKind())
	}
	again, err := json.Marshal(p)
	if err != nil {
		t.Fatalf("%v: %v", kind, err)
	}
	if was, is := len(tokens(text)), len(tokens(again)); was != is {
		t.Fatalf("%v: %d tokens became %d:\n%s\n%s", kind, was, is, text, again)
	}
}

// TestCustom: of a custom resource, only field names and enumerations of known types are kept.
func TestCustom(t *testing.T) {
	a := withKey(testKey)
	kind := schema.GroupVersionKind{Group: "secret.example.com", Version: "v1", Kind: "Vault"}
	in := `{"apiVersion":"secret.example.com/v1","kind":"Vault","metadata":{"name":"payroll","namespace":"finance","resourceVersion":"77"},` +
		`"spec":{"replicas":3,"template":{"spec":{"containers":[{"image":"corp/payroll:1","resources":{"limits":{"cpu":"100m"}}}]}},` +
		`"payrollRules":{"salary":"high"},"data":{"pin":918273645},"ref":{"kind":"Widget","apiVersion":"other.example.com/v2","name":"payroll"}},` +
		`"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","reason":"Payday","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`
	out := must(a.object(kind, []byte(in)))(t)
	if len(out) != len(in) {
		t.Errorf("%d bytes became %d", len(in), len(out))
	}
	for _, s := range []string{"payroll", "finance", "corp", "salary", "high", "Widget", "other", "Payday", "Rules", "18273645"} {
		if bytes.Contains(out, []byte(s)) {
			t.Errorf("%q has survived in %s", s, out)
		}
	}
	for _, s := range []string{
		`"apiVersion":"secret.example.com/v1","kind":"Vault"`, `"replicas":3`, `"template":{"spec":{"containers":[{"image":"`, `"limits":{"cpu":"100m"}`,
		`"resourceVersion":"77"`, `"phase":"Running"`, `"type":"Ready","status":"True","reason":"`, `"2026-01-02T03:04:05Z"`,
	} {
		if !bytes.Contains(out, []byte(s)) {
			t.Errorf("%q is not in %s", s, out)
		}
	}
	if name := a.text("payroll"); bytes.Count(out, []byte(name)) != 2 {
		t.Errorf("%q occurs %d times, want 2: %s", name, bytes.Count(out, []byte(name)), out)
	}
}

// TestCanaries plants values of every kind of character where people put secrets: nothing of them is left, not
// even their symbols, their case or their encoding.
func TestCanaries(t *testing.T) {
	a := withKey(testKey)
	for _, canary := range []string{
		"!@#$%^&*()_+=-", "-._/:@-._/:@-", "Pa$$w0rd-With_Case", "ALLUPPERCASE", "пароль из слов", "日本語のパスワード", "two words", `{"password":"x"}`,
		"password: x\n", "postgres://user:pass@host:5432/db?x=y", "a=b&c=d", "-----BEGIN KEY-----", "QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "tab\tand\x01",
	} {
		for _, place := range []string{
			`{"kind":"Secret","apiVersion":"v1","stringData":{"k":%s}}`,
			`{"kind":"Secret","apiVersion":"v1","data":{"k":%s}}`,
			`{"kind":"ConfigMap","apiVersion":"v1","data":{"k":%s}}`,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"annotations":{"example.com/k":%s}}}`,
			`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"name":"c","env":[{"name":"E","value":%s}]}]}}`,
			`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"name":"c","args":["--token",%s],"command":[%[1]s]}]}}`,
			`{"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"livenessProbe":{"httpGet":{"httpHeaders":[{"name":"Authorization","value":%s}]}}}]}}`,
			`{"kind":"Vault","apiVersion":"example.com/v1","spec":{"token":%s,"list":[%[1]s],"deep":{"type":%[1]s,"cpu":%[1]s}}}`,
		} {
			text := must(json.Marshal(canary))(t)
			var was map[string]any
			in := fmt.Sprintf(place, text)
			decode(t, []byte(in), &was)
			out := must(a.object((&unstructured.Unstructured{Object: was}).GroupVersionKind(), []byte(in)))(t)
			eachString(t, []byte(in), out, func(was, is string) {
				if was == canary && (strings.Trim(is, opaqueDigits) != "" && !strings.Contains(in, `"data"`) || is == was) {
					t.Errorf("%q became %q in %s", was, is, place)
				}
			})
		}
	}
}

func TestObjectErrors(t *testing.T) {
	for _, s := range []string{"", "{", `{"a":1}}`, "\x00"} {
		if _, err := withKey(testKey).object(podKind, []byte(s)); err == nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

// TestText: replacements by form of string.
func TestText(t *testing.T) {
	a := withKey(testKey)
	for s, form := range map[string]string{
		"a": `[a-z]`, "7": `\d`, "web-1": `[a-z]{3}-\d`, "web-": `[a-z]{3}-`, "node-019": `[a-z]{4}-\d{3}`, "1.36.3": `\d\.\d\d\.\d`,
		"10.207.19.3": `\d\d\.\d{3}\.\d\d\.\d`, "10.207.0.0/24": `\d\d\.\d{3}\.0\.0/24`,
		"fe80::1": `[1-9a-f]{3}0::[1-9a-f]`, "2001:DB8::/32": `[1-9a-f]00[1-9a-f]:[1-9a-f]{3}::/32`,
		"v1.36.3": `[a-z]\d\.\d\d\.\d`, "4fa4a078-3b36-4945": `\d[a-z]{2}\d[a-z]\d{3}-\d[a-z]\d{2}-\d{4}`,
		// Anything else is opaque.
		"Web_2.x": `[a-z][a-z0-9]{6}`, "http://10.207.19.3:8080/x": `[a-z][a-z0-9]{24}`, "::10.20.30.40": `[a-z][a-z0-9]{12}`, "300.1.1.1/8": `[a-z][a-z0-9]{10}`,
		"größe": `[a-z][a-z0-9]{6}`, "a b": `[a-z][a-z0-9]{2}`, "!@#$%": `[a-z][a-z0-9]{4}`, "-._-": `[a-z][a-z0-9]{3}`, "corp/web:1": `[a-z][a-z0-9]{9}`,
	} {
		if got := a.text(s); got == s || !regexp.MustCompile("^(?:"+form+")$").MatchString(got) {
			t.Errorf("%q became %q, want %s", s, got, form)
		}
	}
	for _, s := range []string{"", "true", "127.0.0.1", "::", "topology.kubernetes.io/zone"} {
		if got := a.text(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	// A part has the same replacement alone and in the whole.
	for whole, part := range map[string]string{"web-1-544cbc67cf-2b7rl": "web-1-544cbc67cf-", "db.shop.svc": "shop"} {
		if w, p := a.text(whole), a.text(part); !strings.Contains(w, p) {
			t.Errorf("%q became %q, but %q became %q", whole, w, part, p)
		}
	}
	for network, ip := range map[string]string{"10.207.19.0/24": "10.207.19.77", "2001:db8::/32": "2001:db8:7::1"} {
		net := must(netip.ParsePrefix(a.text(network)))(t)
		if got := netip.MustParseAddr(a.text(ip)); !net.Contains(got) {
			t.Errorf("%v is not in %v", got, net)
		}
	}
	b := New()
	const name = "a-name-of-some-length"
	if a.text(name) == b.text(name) || a.text(name) != withKey(testKey).text(name) {
		t.Error("the key does not decide the pseudonyms")
	}
}

// TestUniqueWords: different words have different replacements, and no word maps to itself.
func TestUniqueWords(t *testing.T) {
	p := withKey(testKey)
	letters, numbers := opaqueDigits[:26], opaqueDigits[26:]
	for _, alphabets := range [][]string{{numbers}, {letters}, {numbers, numbers}, {letters, numbers}, {numbers, letters, numbers}} {
		all := []string{""}
		for _, alphabet := range alphabets {
			var more []string
			for _, s := range all {
				for _, c := range alphabet {
					more = append(more, s+string(c))
				}
			}
			all = more
		}
		seen := map[string]string{}
		for _, s := range all {
			got := p.word(s)
			if other, ok := seen[got]; ok || got == s {
				t.Fatalf("%q and %q are replaced by %q", s, other, got)
			}
			seen[got] = s
		}
	}
}

// FuzzObject: for any JSON, the result is JSON of the same shape, with strings of as many bytes.
func FuzzObject(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `"x"`, `1`, ` { "metadata" : { "name" : "a" , "labels":{"x":"y"}} } `,
		`{"metadata":{"managedFields":[{"fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:image":{}}}}}}]}}`,
		`{"spec":{"containers":[{"env":[{"name":"A","value":"\u00e9\ud83d\ude00\ud800\n\/"}]}]}}`,
		`{"metadata":{"managedFields":[{"fieldsV1":{"i:x":{},"f:":{},"\u0066:x":{},"k:\"\\ud83d\\ude00\"":{}}}]}}`,
		`{"apiVersion":"v1","kind":"Pod","spec":[{"containers":{"a":null}}],"status":"x"}`, "\"\xff\xfe\"", `{"a":"10.1.2.3/24"}`,
	} {
		f.Add([]byte(s), "Pod")
		f.Add([]byte(s), "Secret")
		f.Add([]byte(s), "Unknown")
	}
	f.Fuzz(func(t *testing.T, in []byte, kind string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		out, err := withKey(testKey).object(schema.GroupVersionKind{Version: "v1", Kind: kind}, in)
		if err != nil {
			if json.Valid(in) {
				t.Fatal(err)
			}
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
		eachString(t, in, out, func(_, _ string) {})
	})
}

// tokens returns the tokens of JSON up to an error.
func tokens(data []byte) (all []json.Token) {
	d := json.NewDecoder(bytes.NewReader(data))
	for tok, err := d.Token(); err == nil; tok, err = d.Token() {
		all = append(all, tok)
	}
	return all
}

func BenchmarkObject(b *testing.B) {
	all := frames(b, "recorded-nodeloss", 1000, 1e6)
	a := withKey(testKey)
	size := 0
	for b.Loop() {
		for _, f := range all {
			if _, err := a.Frame(f); err != nil {
				b.Fatal(err)
			}
			size += len(f.Object)
		}
	}
	b.ReportMetric(float64(size)/b.Elapsed().Seconds()/1e6, "MB/s")
	b.ReportMetric(float64(b.N*len(all))/b.Elapsed().Seconds(), "objects/s")
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
