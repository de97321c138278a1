package controller_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/controller"
	"watchlab/loadgen/manifest"
)

// widgets has a definition and an object to copy, which is not one of the first objects and comes from a cluster.
const widgets = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.example.com}
spec:
  group: example.com
  names: {kind: Widget, plural: gizmos, singular: gizmo}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
---
apiVersion: example.com/v1
kind: Widget
metadata: {name: first, uid: 5b0f0e0c-0001-4000-8000-000000000001, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: gone, uid: 5b0f0e0c-0002-4000-8000-000000000002}]}
`

// TestSize measures a copier: what it lists, a process and a server for each point, and the laws of its requests, which
// are one write for each configmap and none for a widget.
func TestSize(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "widgets.yaml")
	if err := os.WriteFile(file, []byte(widgets), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	opts := controller.Options{Dir: filepath.Join(t.TempDir(), "out")}
	opts.Quick()
	sizing := controller.Sizing{
		Command: copier(t, correct), Manifests: []string{file}, Grow: []string{"configmaps=10,40", "gizmos=5,9"}, At: []string{"configmaps=1k"}, Rounds: 1,
	}
	var points, said []string
	opts.Notify = func(text string) { said = append(said, text) }
	opts.Progress = func(p controller.Progress) { points = append(points, p.Name) }
	o, err := controller.Size(ctx, sizing, opts)
	if err != nil {
		t.Fatal(err)
	}
	if len(said) != 1 || !strings.Contains(said[0], "dropped: owner ConfigMap gone") {
		t.Errorf("said %q", said)
	}
	want := []string{"configmaps=10/gizmos.example.com=5", "configmaps=40/gizmos.example.com=5", "configmaps=10/gizmos.example.com=9", "configmaps=40/gizmos.example.com=9"}
	for i, name := range points {
		if !strings.HasPrefix(name, want[i]+"/") {
			t.Errorf("point %d is %s, want %s", i, name, want[i])
		}
	}
	if len(points) != 4 || len(o.Points) != 4 {
		t.Errorf("%d points, %d results", len(points), len(o.Points))
	}
	for _, p := range o.Points {
		for unit, v := range p.Figures {
			if v <= 0 {
				t.Errorf("%v: %s = %v", p.Counts, unit, v)
			}
		}
		if peak := p.Figures[controller.UnitPeak]; peak < p.Figures[controller.UnitRest] || peak < p.Figures[controller.UnitRestartPeak] {
			t.Errorf("%v: peak %v of %v", p.Counts, peak, p.Figures)
		}
	}
	calls := o.Laws[controller.UnitStartCalls]
	if one := calls[1].Value; one < 0.9 || one > 1.1 {
		t.Errorf("%.2f requests for a configmap", one)
	}
	if none := calls[2].Value; none < -0.1 || none > 0.1 {
		t.Errorf("%.2f requests for a widget", none)
	}
	if at := o.At[controller.UnitStartCalls]; at.Value < 900 || at.Value > 1100 || at.Lo > at.Value || at.Hi < at.Value {
		t.Errorf("%+v requests for 1,000 configmaps", at)
	}
	if len(o.Watches) != 1 || o.Watches[0].Resource != "configmaps" || !o.Watches[0].Used || o.Watches[0].Encoding != "json" {
		t.Errorf("watches: %+v", o.Watches)
	}
}

// TestSizeEnds: the finished points of an interrupted run stay; by default what the program lists grows.
func TestSizeEnds(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	opts := controller.Options{Dir: filepath.Join(t.TempDir(), "out")}
	opts.Quick()
	opts.Progress = func(p controller.Progress) {
		if p.Play == 2 {
			stop()
		}
	}
	o, err := controller.Size(ctx, controller.Sizing{Command: copier(t, correct)}, opts)
	if err != nil || !o.Interrupted || len(o.Points) != 1 || o.Points[0].Counts["configmaps"] != 1000 || o.Laws != nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if data, err := os.ReadFile(filepath.Join(opts.Dir, controller.SizeFile)); err != nil || !strings.Contains(string(data), `"interrupted": true`) {
		t.Errorf("%v: %s", err, data)
	}
}

func TestSizeMistakes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		field, says string
		controller.Sizing
	}{
		{"command", "no program", controller.Sizing{}},
		{"grow", "two numbers", controller.Sizing{Grow: []string{"pods=1k"}}},
		{"grow", "two numbers", controller.Sizing{Grow: []string{"pods=1k,1000"}}},
		{"grow", "RESOURCE=N", controller.Sizing{Grow: []string{"pods=1k,many"}}},
		{"grow", "RESOURCE=N", controller.Sizing{Grow: []string{"pods=-1,5"}}},
		{"grow", "RESOURCE=N", controller.Sizing{Grow: []string{"=1,5"}}},
		{"grow", "twice", controller.Sizing{Grow: []string{"pods=1,5", "pods=1,9"}}},
		{"grow", "no object to copy", controller.Sizing{Grow: []string{"nothings=1,5"}}},
		{"at", "not RESOURCE=N", controller.Sizing{At: []string{"pods"}}},
		{"at", "does not grow", controller.Sizing{Grow: []string{"pods=1,5"}, At: []string{"nodes=5"}}},
		{"without", "oven", controller.Sizing{Without: []string{"oven"}}},
		{"manifests", "nowhere", controller.Sizing{Manifests: []string{"nowhere.yaml"}}},
	} {
		s := tc.Sizing
		if tc.field != "command" {
			s.Command = copier(t, correct)
		}
		_, err := controller.Size(t.Context(), s, controller.Options{Dir: filepath.Join(t.TempDir(), "out")})
		at, ok := errors.AsType[*manifest.Error](err)
		if !ok || at.Field != tc.field || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v", tc.Sizing, err)
		}
	}
}
