package manifest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/loadgen/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const pod = `apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: web
spec:
  containers:
  - name: c
    image: x
`

// files creates a folder of files.
func files(t testing.TB, content map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range content {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// names returns the loaded objects, without the folder's own name.
func names(dir string, objects []manifest.Object) []string {
	var out []string
	for _, o := range objects {
		out = append(out, strings.ReplaceAll(o.String(), dir+string(filepath.Separator), ""))
	}
	return out
}

func TestLoad(t *testing.T) {
	dir := files(t, map[string]string{
		"a.yaml": "# A comment.\n---\n\n# Another.\n" + fmt.Sprintf(pod, "one") + "--- # and\n---\n" + fmt.Sprintf(pod, "two") + "---\n# Nothing.\n",
		"b.json": `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}` + "\n\n" + `{"apiVersion":"v1",
"kind":"Namespace","metadata":{"name":"web"}}`,
		"c.yml": `apiVersion: v1
kind: List
items:
- apiVersion: example.com/v1
  kind: Gadget
  metadata: {name: g, namespace: web}
  spec: {size: 3}
- apiVersion: v1
  kind: Pod
  metadata: {generateName: three-}
`,
		"flow.yaml":     `{apiVersion: v1, kind: Pod, metadata: {name: flow}}`,
		"notes.txt":     "not a manifest",
		"deep/d.yaml":   fmt.Sprintf(pod, "deep"),
		"deep/er/e.yml": fmt.Sprintf(pod, "deeper"),
	})
	flat := []string{
		"Pod web/one (a.yaml:5)", "Pod web/two (a.yaml:16)",
		"Node /n (b.json:1)", "Namespace /web (b.json:3)",
		"Gadget web/g (c.yml:1)", "Pod / (c.yml:1)",
	}
	for name, test := range map[string]struct {
		filenames []string
		recursive bool
		want      []string
	}{
		"folder":    {filenames: []string{dir}, want: append(flat[:6:6], "Pod /flow (flow.yaml:1)")},
		"recursive": {filenames: []string{dir}, recursive: true, want: append(flat[:6:6], "Pod web/deep (deep/d.yaml:1)", "Pod web/deeper (deep/er/e.yml:1)", "Pod /flow (flow.yaml:1)")},
		"files":     {filenames: []string{filepath.Join(dir, "b.json"), filepath.Join(dir, "a.yaml")}, want: []string{flat[2], flat[3], flat[0], flat[1]}},
		"pattern":   {filenames: []string{filepath.Join(dir, "[ab].*")}, want: flat[:4]},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := manifest.Load(t.Context(), manifest.Options{Filenames: test.filenames, Recursive: test.recursive})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, names(dir, got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, o := range got {
				_, isUnstructured := o.Object.(*unstructured.Unstructured)
				if isUnstructured != (o.Kind.Kind == "Gadget") {
					t.Errorf("%s is a %T", o, o.Object)
				}
				if o.GetObjectKind().GroupVersionKind() != o.Kind {
					t.Errorf("%s is a %v", o, o.GetObjectKind().GroupVersionKind())
				}
				if p, ok := o.Object.(*v1.Pod); ok && o.Namespace == "web" && p.Spec.Containers[0].Image != "x" {
					t.Errorf("%s: %+v", o, p.Spec)
				}
			}
		})
	}
}

// Errors contain the file and the line; all other objects are loaded.
func TestMistakes(t *testing.T) {
	good := fmt.Sprintf(pod, "good")
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"syntax":        {good + "---\na: b\n c: d\n", "f.yaml:12: invalid manifest: mapping values are not allowed in this context"},
		"tab":           {"# x\n---\na:\n\tb: c\n---\n" + good, "f.yaml:4: invalid manifest: found character that cannot start any token"},
		"twice":         {strings.Replace(good, "spec:", "metadata:\n  name: y\nspec:", 1) + "---\n" + good, `f.yaml:7: invalid manifest: key "metadata" already set in map`},
		"unknown field": {good + "---\n" + strings.Replace(good, "containers", "contaners", 1), `f.yaml:11: invalid manifest: Pod good: strict decoding error: unknown field "spec.contaners"`},
		"wrong type":    {good + "---\n" + strings.Replace(good, "- name: c\n    image: x", "  3", 1), "f.yaml:11: invalid manifest: Pod good: "},
		"no kind":       {good + "---\nmetadata: {name: x}\n", "f.yaml:11: invalid manifest: Object 'Kind' is missing"},
		"no version":    {good + "---\nkind: Gadget\nmetadata: {name: x}\n", "f.yaml:11: invalid manifest: Object 'apiVersion' is missing"},
		"no name":       {good + "---\n\napiVersion: v1\nkind: Pod\n", "f.yaml:12: invalid manifest: Pod: metadata.name is missing"},
		"scalar":        {good + "---\nhello\n", "f.yaml:11: invalid manifest: it is not an object"},
		"list":          {good + "---\n- a\n", "f.yaml:11: invalid manifest: it is not an object"},
		"item":          {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: good}\n", "f.yaml:1: invalid manifest: Pod: metadata.name is missing"},
		"separator":     {good + "--- x\n", `f.yaml:10: invalid manifest: a document separator with "x" behind it`},
		"json":          {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"good"}}` + "\n\n{\n\"a\": ,\n}", "f.yaml:4: invalid manifest: invalid character ',' looking for beginning of value"},
		"json cut":      {`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"good"}}` + "\n{\"a\":\n", "f.yaml:3: invalid manifest: the file ends in the middle of an object"},
		"binary":        {"\x00\x01\x02", "f.yaml:1: invalid manifest: control characters are not allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := files(t, map[string]string{"f.yaml": test.text, "g.yaml": good})
			got, err := manifest.Load(t.Context(), manifest.Options{Filenames: []string{dir}})
			var at *manifest.Error
			if !errors.As(err, &at) || !errors.Is(err, manifest.ErrManifest) || at.File != filepath.Join(dir, "f.yaml") {
				t.Fatalf("%v, want an Error of f.yaml", err)
			}
			text := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
			if !strings.HasPrefix(text, test.want) || strings.Contains(text, "\n") {
				t.Errorf("%s\nwant one line that begins with\n%s", text, test.want)
			}
			want := 2
			if name == "separator" || name == "binary" {
				want = 1
			}
			if len(got) != want {
				t.Errorf("%d other objects, want %d: %v", len(got), want, names(dir, got))
			}
		})
	}
}

func TestLenient(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(pod, "x"), "containers", "contaners", 1)
	got, err := manifest.Decode("f.yaml", []byte(text), true)
	if err != nil || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestBadSources(t *testing.T) {
	dir := files(t, map[string]string{"a/x.txt": "", "empty.yaml": "# Nothing.\n"})
	for name, want := range map[string]string{
		filepath.Join(dir, "none.yaml"):  "none.yaml: no such file or directory",
		filepath.Join(dir, "a"):          "a: no objects: a folder without .json, .yaml, .yml files",
		filepath.Join(dir, "*.none"):     "*.none: the pattern matches no files",
		filepath.Join(dir, "[.none"):     "[.none: syntax error in pattern",
		filepath.Join(dir, "empty.yaml"): `empty.yaml"`,
		"http://":                        "http://: it is not a URL",
		"-":                              "standard input: it cannot be read here",
		os.DevNull:                       "it is neither a file nor a folder",
	} {
		got, err := manifest.Load(t.Context(), manifest.Options{Filenames: []string{name}})
		if err == nil || !strings.Contains(err.Error(), want) || len(got) > 0 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, %v, want %q", name, got, err, want)
		}
	}
	if _, err := manifest.Load(t.Context(), manifest.Options{}); !errors.Is(err, manifest.ErrEmpty) {
		t.Errorf("no names: %v", err)
	}
	if _, err := manifest.Load(t.Context(), manifest.Options{Filenames: []string{filepath.Join(dir, "empty.yaml")}}); !errors.Is(err, manifest.ErrEmpty) {
		t.Errorf("an empty file: %v", err)
	}
}

func TestStdin(t *testing.T) {
	in := manifest.Options{Filenames: []string{"-", "-"}, Stdin: strings.NewReader("\ufeff" + fmt.Sprintf(pod, "x") + "---\nx")}
	got, err := manifest.Load(t.Context(), in)
	if len(got) != 1 || got[0].String() != "Pod web/x (standard input:1)" {
		t.Errorf("%v", got)
	}
	if want := "standard input:11: invalid manifest: it is not an object"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestURL(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/none":
			http.NotFound(w, r)
		case r.URL.Path == "/slow":
			<-r.Context().Done()
		default:
			_, _ = fmt.Fprintf(w, pod, "x")
		}
	}))
	defer srv.Close()
	var opts manifest.Options
	defer http.DefaultClient.CloseIdleConnections()

	opts.Filenames = []string{srv.URL + "/pod.yaml"}
	got, err := manifest.Load(t.Context(), opts)
	if err != nil || len(got) != 1 || got[0].Source != srv.URL+"/pod.yaml" {
		t.Errorf("%v, %v", got, err)
	}
	opts.Filenames = []string{srv.URL + "/none", srv.URL + "/pod.yaml"}
	got, err = manifest.Load(t.Context(), opts)
	if want := srv.URL + "/none: the server answered 404 Not Found"; err == nil || err.Error() != want || len(got) != 1 {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	opts.Filenames = []string{srv.URL + "/slow"}
	done := make(chan error)
	go func() {
		_, err := manifest.Load(ctx, opts)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		fmt.Sprintf(pod, "x"), "---\n---\n" + fmt.Sprintf(pod, "x"), `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"}}{`,
		"apiVersion: v1\nkind: List\nitems: [{}]", "apiVersion: v1\nkind: PodList\nitems: 3", "{a: b}", "--- x", "&a [*a]", "\xff\xfe", "{}", "- ", "? ",
		"apiVersion: v1\nkind: Pod\nmetadata:\n  name: 3\n", "apiVersion: a/b/c\nkind: Pod\nmetadata:\n  name: x\n",
		"apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - null\n",
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	f.Fuzz(func(t *testing.T, data []byte, lenient bool) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		objects, err := manifest.Decode("f", data, lenient)
		lines := 1
		for _, end := range []string{"\n", "\r", "\u0085", "\u2028", "\u2029"} { // YAML 1.1 has them all.
			lines += strings.Count(string(data), end)
		}
		for _, o := range objects {
			if o.Object == nil || o.Kind.Kind == "" || o.Line < 1 || o.Line > lines {
				t.Fatalf("%+v of %d lines", o, lines)
			}
			if _, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object); err != nil {
				t.Fatal(err)
			}
		}
		var at *manifest.Error
		if err != nil && (!errors.As(err, &at) || at.Line < 1 || at.Line > lines+1) {
			t.Fatalf("%v: line %d of %d", err, at.Line, lines)
		}
	})
}
