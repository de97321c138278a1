package patch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"watchlab/loadgen/apiserver/resources"
)

func TestSmoke(t *testing.T) {
	e := New(Options{})
	reg := resources.New()
	cm, _ := reg.Lookup("", "v1", "configmaps")
	r, err := e.Create(cm, []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"},"foo":1}`), Request{Namespace: "default", UserAgent: "curl/1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v %v", r.Object, r.Warnings)
	o := r.Object.(*corev1.ConfigMap)
	o.ResourceVersion = "5"
	r, err = e.Patch(cm, o, []byte(`{"data":{"k":"w"}}`), Request{Namespace: "default", Name: "a", ContentType: "application/strategic-merge-patch+json", UserAgent: "x"})
	if err != nil {
		t.Fatal(err)
	}
	r, err = e.Patch(cm, r.Object, []byte(`{"kind":"ConfigMap","apiVersion":"v1","data":{"k":"z"}}`), Request{Namespace: "default", Name: "a", ContentType: "application/apply-patch+yaml", FieldManager: "x"})
	t.Logf("%+v %v", r.Object, err)
}
