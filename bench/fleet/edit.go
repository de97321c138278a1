package fleet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/scripts/deploy"
)

// edit sets the content of a renamed object of the manifests' example run.
func (s Spec) edit(u *unstructured.Unstructured) error {
	if u.GetLabels()[RunLabel] != s.Plan.Run {
		return nil
	}
	switch ref := s.Ref(); u.GroupVersionKind().GroupKind().String() {
	case "ConfigMap":
		if ref.isClaim(u) {
			return typed(u, s.editPlan)
		}
	case "Job.batch":
		return typed(u, s.editJob)
	case "Deployment.apps":
		return typed(u, s.editServer)
	case "ClusterRole.rbac.authorization.k8s.io":
		s.label(u)
		return typed(u, s.editRole)
	case "ClusterRoleBinding.rbac.authorization.k8s.io":
		s.label(u)
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
	const example = objectPrefix + deploy.Run
	ref := s.Ref()
	if u.GetKind() == "Namespace" && u.GetName() == deploy.Namespace {
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
			case key == RunLabel && v == deploy.Run:
				return ref.Run
			case (key == "namespace" || key == NamespaceLabel) && v == deploy.Namespace:
				return ref.Namespace
			case v == example, strings.HasPrefix(v, example+"-"):
				return ref.object("") + strings.TrimPrefix(v, example)
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

// label is for cluster-scoped objects.
func (s Spec) label(u *unstructured.Unstructured) {
	labels := u.GetLabels()
	labels[NamespaceLabel] = s.Namespace
	u.SetLabels(labels)
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
	if j.Name == s.Ref().object(writerSuffix) {
		n = int32(s.Plan.Writers)
	}
	// An overlay that allows all indexes to fail does so for any number of pods.
	if most := j.Spec.MaxFailedIndexes; most != nil {
		if was := j.Spec.Completions; was != nil && *most >= *was {
			*most = n
		}
		*most = min(*most, n)
	}
	// The barrier needs all pods at the same time.
	j.Spec.Completions, j.Spec.Parallelism = &n, new(n)
	_, err := s.editPod(&j.Spec.Template.Spec)
	return err
}

const containerName = "watchlab" // container of the command

// editPod returns the command's container.
func (s Spec) editPod(p *corev1.PodSpec) (*corev1.Container, error) {
	i := slices.IndexFunc(p.Containers, func(c corev1.Container) bool { return c.Name == containerName })
	if i < 0 {
		return nil, fmt.Errorf("no container %s", containerName)
	}
	c := &p.Containers[i]
	if s.Image != "" {
		c.Image = s.Image
	}
	if kind, dir, _ := strings.Cut(s.Plan.Upload, "="); kind == "dir" {
		for i := range c.VolumeMounts {
			if c.VolumeMounts[i].Name == "results" {
				c.VolumeMounts[i].MountPath = dir
			}
		}
	}
	return c, nil
}

// editServer makes the simulated API server start the storm when all pods watch.
func (s Spec) editServer(d *appsv1.Deployment) error {
	if d.Name != s.Ref().object(serverSuffix) {
		return nil
	}
	c, err := s.editPod(&d.Spec.Template.Spec)
	if err != nil {
		return err
	}
	c.Args = slices.Concat([]string{
		"serve", "--bind=0.0.0.0", fmt.Sprintf("--port=%d", ServerPort), "--tls=false", "--insecure-listen", "--token-file=" + TokenFile,
		fmt.Sprintf("--start=%d", s.Plan.Pods), "--repeat=0",
	}, s.Serve)
	return nil
}

// editRole sets the storm's resource in the rules where pods stand for it.
func (s Spec) editRole(r *rbacv1.ClusterRole) error {
	edited := false
	for i := range r.Rules {
		rule := &r.Rules[i]
		for j, name := range rule.Resources {
			if of, _, _ := strings.Cut(name, "/"); of == "pods" {
				rule.APIGroups = []string{s.Resource.Group}
				rule.Resources[j] = strings.Replace(name, "pods", s.Resource.Resource, 1)
				edited = true
			}
		}
	}
	if !edited {
		return fmt.Errorf("the role has no rule for the storm's resource")
	}
	return nil
}

// token returns the Secret that the simulated API server and the pods share.
func (s Spec) token() *unstructured.Unstructured {
	secret := &unstructured.Unstructured{Object: map[string]any{
		"type": string(corev1.SecretTypeOpaque), "stringData": map[string]any{"token": s.Token},
	}}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	secret.SetNamespace(s.Namespace)
	secret.SetName(s.Ref().object(tokenSuffix))
	secret.SetLabels(map[string]string{nameLabel: appName, RunLabel: s.Plan.Run})
	return secret
}
