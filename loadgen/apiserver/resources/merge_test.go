package resources

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
)

var update = flag.Bool("update", false, "write merge.yaml.gz from client-go")

// TestMergeTypes: the embedded merge schema is client-go's.
func TestMergeTypes(t *testing.T) {
	// An object of any kind leads to the whole schema.
	obj := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	value, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(obj)
	if err != nil {
		t.Fatal(err)
	}
	want, err := yamlv3.Marshal(value.Schema())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		var b bytes.Buffer
		w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("merge.yaml.gz", b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return // The next build embeds it.
	}
	if got, err := yamlv3.Marshal(&MergeTypes().Schema); err != nil || !bytes.Equal(got, want) {
		t.Errorf("merge.yaml.gz is out of date (rewrite with -update): %v", err)
	}
}
