package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"time"
	"watchlab/loadgen/manifest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// write writes a file for a test and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, text string, seed int64) *Workload {
	t.Helper()
	w, err := Read(write(t, "w.yaml", text), seed)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// line is a request in a line of text.
func line(a Action) string {
	text := fmt.Sprintf("%v %s %s", a.At, a.Verb, a.Object.GetName())
	if a.Patch != nil {
		text += fmt.Sprint(" ", a.Patch)
	}
	if a.Propagation != "" {
		text += " " + a.Propagation
	}
	return text
}

func lines(w *Workload) (out []string) {
	for _, a := range w.actions {
		out = append(out, line(a))
	}
	return out
}

const object = "object: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}"

// TestErrors: an error names the file and the line of the part that is wrong.
func TestErrors(t *testing.T) {
	// The group begins in line 2, its change in line 5.
	group := func(field string) string { return "objects:\n- " + object + "\n  " + field + "\n" }
	change := func(fields string) string {
		return "objects:\n- " + object + "\n  copies: 2\n  change:\n  - {at: 1s, for: 1s, rate: 1, set: {a: 1}}\n  - {" + fields + "}\n"
	}
	for name, c := range map[string]struct {
		text string
		line int
		want string
	}{
		"empty":                  {"", 0, "objects: it has none"},
		"no YAML":                {"objects: [", 1, ""},
		"two documents":          {group("copies: 1") + "---\na: b\n", 4, "more than one document"},
		"no objects":             {"objects: []", 1, "objects: it has none"},
		"unknown field":          {"objects:\n- " + object + "\nother: 1\n", 3, `unknown field "other"`},
		"unknown field, group":   {group("copys: 1"), 3, `unknown field "copys"`},
		"unknown field, create":  {group("create: {at: 1s, rates: 1}"), 3, `unknown field "rates"`},
		"unknown field, change":  {change("every: 1s"), 6, `unknown field "every"`},
		"second group":           {group("copies: 1") + "- copies: 1\n", 4, "it needs manifest or object, one of them"},
		"manifest and object":    {group("manifest: a.yaml"), 2, "it needs manifest or object, one of them"},
		"no manifest":            {"objects:\n\n- manifest: missing.yaml\n", 3, "manifest: "},
		"object without a name":  {"objects:\n- object: {apiVersion: v1, kind: ConfigMap}", 2, "objects.0.object: it needs apiVersion, kind and metadata.name"},
		"object is a list":       {"objects:\n- object: [1]", 2, "object: "},
		"copies":                 {group("copies: 0"), 3, "objects.0.copies: 0 (allowed: 1 to 1000000)"},
		"copies, too many":       {group("copies: 9000000000000000000"), 3, "copies: 9000000000000000000 (allowed: 1 to"},
		"changes, too many":      {change("at: 0s, for: 24h, rate: 1000, set: {a: 1}"), 2, "more than 1000000 objects or 10000000 changes"},
		"no duration":            {group("create: {at: 1, rate: 1}"), 3, "objects.create.at: number is not a single value"},
		"create: negative time":  {group("create: {at: -1s, rate: 1}"), 3, "objects.0.create.at: -1s (allowed: 0s to 8760h0m0s)"},
		"create: no rate":        {group("create: {at: 1s}"), 3, "objects.0.create.rate: 0 a second (allowed: above 0, up to 1e6)"},
		"create: infinite rate":  {group("create: {rate: .inf}"), 3, "a number is not finite"},
		"delete: NaN":            {group("delete: {rate: .nan}"), 3, "a number is not finite"},
		"delete: share":          {group("delete: {rate: 1, share: 1.5}"), 3, "objects.0.delete.share: 1.5 (allowed: above 0, up to 1)"},
		"delete: propagation":    {group("delete: {rate: 1, propagation: All}"), 3, `objects.0.delete.propagation: "All" (allowed: Background, Foreground, Orphan)`},
		"change: no length":      {change("rate: 1, for: 0s, set: {a: 1}"), 6, "objects.0.change.1.for: 0s (allowed: above 0s"},
		"change: no field":       {change("rate: 1, for: 1s"), 6, "objects.0.change.1.set: it has no field"},
		"change: no path":        {change("rate: 1, for: 1s, set: {a..b: 1}"), 6, `objects.0.change.1.set: "a..b" is no path such as spec.replicas`},
		"change: open bracket":   {change("rate: 1, for: 1s, set: {'a[b': 1}"), 6, `objects.0.change.1.set: "a[b" is no path`},
		"change: empty path":     {change("rate: 1, for: 1s, set: {'': 1}"), 6, `objects.0.change.1.set: "" is no path`},
		"change: ends in a dot":  {change("rate: 1, for: 1s, set: {a.: 1}"), 6, `objects.0.change.1.set: "a." is no path`},
		"change: no such item":   {strings.Replace(change("rate: 1, for: 1s, set: {'data.l[2]': 1}"), "name: c}", "name: c}, data: {l: [1, 2]}", 1), 6, `objects.0.change.1.set: data.l has no item "2": it is a list of 2`},
		"change: time too long":  {change("at: 9000h, rate: 1, for: 1s, set: {a: 1}"), 6, "objects.0.change.1.at: 9000h0m0s (allowed: 0s to"},
		"change: lasts too long": {change("rate: 1, for: 9000h, set: {a: 1}"), 6, "objects.0.change.1.for: 9000h0m0s (allowed: above 0s"},
	} {
		path := write(t, "w.yaml", c.text)
		_, err := Read(path, 1)
		var at *manifest.Error
		if !errors.As(err, &at) || at.File != path || at.Line != c.line || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want line %d of the file and %q", name, err, c.line, c.want)
		}
	}
	_, err := Read("missing.yaml", 1)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "built in: deployments, ") {
		t.Errorf("a missing file: %v", err)
	}
}

const mixed = `objects:
- object: {apiVersion: v1, kind: ConfigMap, metadata: {name: "c-{i}", labels: {num: "x{i}"}}, data: {a: "1"}}
  copies: 20
  change:
  - {at: 1s, for: 4s, rate: 10, set: {data.a: ["{n}", "other {n}"], "metadata.annotations[a.b/c]": "{i}"}}
  delete: {at: 3s, rate: 10, share: 0.5, propagation: Foreground}
- object: {apiVersion: v1, kind: Secret, metadata: {name: s}}
  copies: 3
  create: {at: 500ms, rate: 2}
  change:
  - {at: 0s, for: 4s, rate: 10, set: {data.a: eA==}}
`

// TestSeed: the plan depends on the file and the seed alone.
func TestSeed(t *testing.T) {
	one, same, other := read(t, mixed, 1), read(t, mixed, 1), read(t, mixed, 2)
	if diff := cmp.Diff(lines(one), lines(same)); diff != "" {
		t.Errorf("the same seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(lines(one), lines(other)) {
		t.Error("two seeds have the same plan")
	}
}

// TestPlan: requests have their rate, and an object is changed only while it exists.
func TestPlan(t *testing.T) {
	w := read(t, mixed, 1)
	if n := len(w.initial); n != 20 {
		t.Errorf("%d initial objects, want 20", n)
	}
	if o := w.initial[7]; o.GetName() != "c-7" || o.GetLabels()["num"] != "x7" {
		t.Errorf("the object 7: %v", o)
	}
	counts, born, died := map[string]int{}, map[*unstructured.Unstructured]time.Duration{}, map[*unstructured.Unstructured]bool{}
	for _, o := range w.initial {
		born[o] = 0
	}
	var last time.Duration
	for _, a := range w.actions {
		if a.At < last {
			t.Errorf("%s comes after a request of %v", line(a), last)
		}
		last = a.At
		counts[string(a.Verb)+" "+a.Object.GetKind()]++
		_, exists := born[a.Object]
		switch {
		case a.Verb == Create:
			if want := 500*time.Millisecond + time.Duration(len(born)-20)*500*time.Millisecond; exists || a.At != want {
				t.Errorf("%s, want it once at %v", line(a), want)
			}
			born[a.Object] = a.At
		case !exists || died[a.Object]:
			t.Errorf("%s, which does not exist then", line(a))
		case a.Verb == Delete:
			if want := 3*time.Second + time.Duration(len(died))*100*time.Millisecond; a.At != want || a.Propagation != "Foreground" {
				t.Errorf("%s, want it at %v", line(a), want)
			}
			died[a.Object] = true
		}
	}
	if w.Length() != last {
		t.Errorf("length %v, want %v", w.Length(), last)
	}
	if counts["create Secret"] != 3 || counts["delete ConfigMap"] != 10 || counts["delete Secret"] != 0 {
		t.Errorf("requests: %v", counts)
	}
	// Of 40 changes each, those of objects that do not exist are dropped.
	if c, s := counts["change ConfigMap"], counts["change Secret"]; c < 25 || c >= 40 || s < 15 || s > 35 {
		t.Errorf("requests: %v", counts)
	}
	names := []string{}
	for _, a := range w.actions {
		if a.Verb == Create {
			names = append(names, a.Object.GetName())
		}
	}
	if want := []string{"s-0", "s-1", "s-2"}; !slices.Equal(names, want) {
		t.Errorf("names: %v, want %v", names, want)
	}
}

// TestValues: the values of a field are taken in turn, with the numbers of the change and the object.
func TestValues(t *testing.T) {
	w := read(t, `objects:
- object: {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
  change:
  - {for: 3s, rate: 1, set: {spec.replicas: [1, 2], "metadata.annotations[a.b/c]": "{n} of {i}", spec.tags: [["{n}"]], spec.on: true}}
`, 1)
	want := []map[string]any{}
	for n := range 3 {
		want = append(want, map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{"a.b/c": fmt.Sprint(n, " of 0")}},
			"spec":     map[string]any{"replicas": int64(n%2 + 1), "tags": []any{fmt.Sprint(n)}, "on": true},
		})
	}
	var got []map[string]any
	for _, a := range w.actions {
		got = append(got, a.Patch.(map[string]any))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}

// TestItems: a field in an item of a list is replaced there, and what is around it stays.
func TestItems(t *testing.T) {
	w := read(t, `objects:
- object: {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {containers: [{name: a}, {name: b, "x/y": [1, 2]}]}}}}
  change:
  - {for: 2s, rate: 1, set: {"spec.template.spec.containers[1].image": ["v{n}"], spec.template.spec.containers.1.x/y.0: 7, spec.replicas: 2}}
`, 1)
	const path = "/spec/template/spec/containers/1/"
	var want, got []any
	for n := range 2 {
		want = append(want, map[string]any{"spec": map[string]any{"replicas": int64(2)}}, []any{
			map[string]any{"op": "add", "path": path + "image", "value": fmt.Sprint("v", n)},
			map[string]any{"op": "replace", "path": path + "x~1y/0", "value": int64(7)},
		})
	}
	for _, a := range w.actions {
		got = append(got, a.Patch)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
}

// TestSmallRate: a rate so small that times overflow has the first request alone.
func TestSmallRate(t *testing.T) {
	w := read(t, "objects:\n- "+object+"\n  copies: 3\n  create: {rate: 1e-300}\n  change: [{for: 1h, rate: 1e-12, set: {a: 1}}]\n", 1)
	if a := w.actions; a[0].At != 0 || w.Length() != 2*maxTime {
		t.Errorf("from %v to %v", a[0].At, w.Length())
	}
}

// TestValuesOfYAML: objects have the types that manifests of a cluster have, also for values that only YAML knows.
func TestValuesOfYAML(t *testing.T) {
	w := read(t, `objects:
- object:
    apiVersion: v1
    kind: ConfigMap
    metadata: {name: c}
    data: {1: one, day: 2026-11-23, big: 18446744073709551615, num: 3, f: 1.5}
`, 1)
	want := map[string]any{"1": "one", "day": "2026-11-23", "big": float64(1 << 64), "num": int64(3), "f": 1.5}
	if diff := cmp.Diff(want, w.initial[0].Object["data"]); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
}

// TestManifest: the objects of a manifest beside the file, each copied.
func TestManifest(t *testing.T) {
	path := write(t, "w.yaml", "objects:\n- manifest: m.yaml\n  copies: 2\n")
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 'a-{i}'}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: b}\n"
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "m.yaml"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Read(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range w.initial {
		got = append(got, o.GetKind()+" "+o.GetName())
	}
	if want := []string{"ConfigMap a-0", "Secret b-0", "ConfigMap a-1", "Secret b-1"}; !slices.Equal(got, want) {
		t.Errorf("objects: %v, want %v", got, want)
	}
}

// TestBuiltin: each built-in workload is read and has requests.
func TestBuiltin(t *testing.T) {
	for _, name := range Names() {
		w, err := Read(name, 1)
		if err != nil || len(w.actions) == 0 || w.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}
