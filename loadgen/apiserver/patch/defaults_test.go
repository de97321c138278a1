package patch

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var samples = flag.String("samples", "testdata/defaults.json.gz", "objects before and after kube-apiserver's defaults, as scripts/tools/kube/defaults writes them")

// now matches the default of a time; samples have 2030.
var now = regexp.MustCompile(`timeAdded: "202\d.*"`)

// TestDefaults: random objects of all kinds get the defaults that kube-apiserver's functions set.
func TestDefaults(t *testing.T) {
	file, err := os.Open(*samples)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for lines := json.NewDecoder(z); ; {
		var pair [2]json.RawMessage
		if err := lines.Decode(&pair); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := json.Unmarshal(pair[0], &kind); err != nil {
			t.Fatal(err)
		}
		var objects [2]string
		for i, text := range pair {
			obj, err := scheme.Scheme.New(kind.GroupVersionKind())
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, obj); err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				SetDefaults(obj)
			}
			y, err := yaml.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			objects[i] = now.ReplaceAllString(string(y), "timeAdded: now")
		}
		if diff := gocmp.Diff(objects[1], objects[0]); diff != "" {
			t.Errorf("%s:\n%s\n%s", kind.GroupVersionKind(), diff, pair[0])
		}
	}
}
