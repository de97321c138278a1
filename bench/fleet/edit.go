package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// edit sets the content of a renamed object of the manifests' example run.
func (s Spec) edit(u *unstructured.Unstructured) error {
	if u.GetLabels()[RunLabel] != s.Plan.Run {
		return nil
	}
	switch {
	case s.Ref().isClaim(u):
		return typed(u, s.editPlan)
	case u.GroupVersionKind().GroupKind().String() == "Job.batch":
		return typed(u, s.editJob)
	}
	return nil
}

// typed edits an object as its Go type. Unknown fields are errors, not dropped.
func typed[T any](u *unstructured.Unstructured, edit func(*T) error) error {
	var o T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, &o, true); err != nil {
		return err
	}
	if err := edit(&o); err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o)
	if err != nil {
		return err
	}
	delete(content, "status") // It belongs to the API server.
	u.Object = content
	return nil
}

// rename replaces the names of the example run, except in the data of ConfigMaps and Secrets.
func (s Spec) rename(u *unstructured.Unstructured) {
	const example = objectPrefix + exampleRun
	ref := s.Ref()
	if u.GetKind() == "Namespace" && u.GetName() == Namespace {
		u.SetName(ref.Namespace)
	}
	var walk func(key string, v any) any
	walk = func(key string, v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k, inner := range v {
				v[k] = walk(k, inner)
			}
		case []any:
			for i, inner := range v {
				v[i] = walk("", inner)
			}
		case string:
			switch {
			case key == RunLabel && v == exampleRun:
				return ref.Run
			case (key == "namespace" || key == NamespaceLabel) && v == Namespace:
				return ref.Namespace
			case v == example, strings.HasPrefix(v, example+"-"):
				return ref.object() + strings.TrimPrefix(v, example)
			}
		}
		return v
	}
	for _, key := range slices.Collect(maps.Keys(u.Object)) {
		if key != "data" && key != "binaryData" && key != "stringData" {
			u.Object[key] = walk(key, u.Object[key])
		}
	}
}

func (s Spec) editPlan(m *corev1.ConfigMap) error {
	plan, err := s.Plan.YAML()
	if err != nil {
		return err
	}
	m.Data, m.BinaryData = map[string]string{planName: string(plan)}, map[string][]byte{}
	for name, data := range s.Files {
		if utf8.Valid(data) {
			m.Data[name] = string(data)
		} else {
			m.BinaryData[name] = data
		}
	}
	return nil
}

func (s Spec) editJob(j *batchv1.Job) error {
	n := int32(s.Plan.Pods)
	// An overlay that allows all indexes to fail does so for any number of pods.
	if most := j.Spec.MaxFailedIndexes; most != nil {
		if was := j.Spec.Completions; was != nil && *most >= *was {
			*most = n
		}
		*most = min(*most, n)
	}
	// The barrier needs all pods at the same time.
	j.Spec.Completions, j.Spec.Parallelism = &n, new(n)
	containers := j.Spec.Template.Spec.Containers
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		return fmt.Errorf("no container %s", containerName)
	}
	containers[i].Image = cmp.Or(s.Image, containers[i].Image)
	return nil
}

const containerName = "watchlab" // container of the command
