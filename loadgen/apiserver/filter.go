package apiserver

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/apiserver/resources"
)

// filter selects the objects of a request. The zero value selects all.
type filter struct {
	// namespace is empty for all namespaces and for cluster-scoped resources.
	namespace string
	// labels and fields are nil if they match every object.
	labels labels.Selector
	fields fields.Selector
	// values reads the selectable fields that are specific to the kind, by path.
	values map[string]func(runtime.Object) string
}

// Fields of all kinds.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// newFilter returns an error for fields that are not selectable.
func newFilter(t *target, byLabel labels.Selector, byField fields.Selector) (filter, error) {
	f := filter{namespace: t.namespace}
	if byLabel != nil && !byLabel.Empty() {
		f.labels = byLabel
	}
	if t.name != "" {
		// A watch of one object by its path.
		byName := fields.OneTermEqualSelector(fieldName, t.name)
		if byField == nil || byField.Empty() {
			byField = byName
		} else {
			byField = fields.AndSelectors(byField, byName)
		}
	}
	if byField == nil || byField.Empty() {
		return f, nil
	}
	f.values = fieldsOf(t.resource)
	checked, err := byField.Transform(func(label, value string) (string, string, error) {
		if _, ok := f.values[label]; ok || label == fieldName || (label == fieldNamespace && t.resource.Namespaced) {
			return label, value, nil
		}
		return "", "", unknownField(t, label)
	})
	if err != nil {
		return filter{}, apierrors.NewBadRequest(err.Error())
	}
	f.fields = checked
	return f, nil
}

// unknownField is the error for a field that is not selectable. Kinds without fields of
// their own have another text (k8s.io/apimachinery, pkg/runtime).
func unknownField(t *target, label string) error {
	if _, own := selectable[t.resource.GVK]; own || t.resource.Custom != nil {
		return fmt.Errorf("field label not supported: %s", label)
	}
	return fmt.Errorf("%q is not a known field selector: only %q, %q", label, fieldName, fieldNamespace)
}

// all reports whether every object matches.
func (f *filter) all() bool { return f.namespace == "" && f.labels == nil && f.fields == nil }

// selects reports whether the request has a selector.
func (f *filter) selects() bool { return f.labels != nil || f.fields != nil }

// prefix is the common prefix of the objects' keys.
func (f *filter) prefix() string {
	if f.namespace == "" {
		return ""
	}
	return f.namespace + "/"
}

// matches reports whether the filter selects an object.
func (f *filter) matches(key string, o runtime.Object) bool {
	if f.namespace != "" {
		if len(key) <= len(f.namespace) || key[len(f.namespace)] != '/' || !strings.HasPrefix(key, f.namespace) {
			return false
		}
	}
	if !f.selects() {
		return true
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return false // all stored objects have metadata
	}
	if f.labels != nil && !f.labels.Matches(labels.Set(m.GetLabels())) {
		return false
	}
	return f.fields == nil || f.fields.Matches(objectFields{m, o, f.values})
}

// objectFields adapts an object to a field selector.
type objectFields struct {
	metav1.Object
	object runtime.Object
	values map[string]func(runtime.Object) string
}

// Has reports whether a field exists.
func (o objectFields) Has(field string) bool {
	return field == fieldName || field == fieldNamespace || o.values[field] != nil
}

// Get returns the value of a field.
func (o objectFields) Get(field string) string {
	switch field {
	case fieldName:
		return o.GetName()
	case fieldNamespace:
		return o.GetNamespace()
	}
	if value := o.values[field]; value != nil {
		return value(o.object)
	}
	return ""
}

// get reads a field of a Go type.
func get[T runtime.Object](value func(T) string) func(runtime.Object) string {
	return func(o runtime.Object) string {
		if t, ok := o.(T); ok {
			return value(t)
		}
		return ""
	}
}

// selectable are the selectable fields of built-in kinds (Kubernetes v1.36,
// pkg/apis/*/v1/conversion.go).
var selectable = map[schema.GroupVersionKind]map[string]func(runtime.Object) string{
	v1.SchemeGroupVersion.WithKind("Pod"): {
		"spec.nodeName":            get(func(p *v1.Pod) string { return p.Spec.NodeName }),
		"spec.restartPolicy":       get(func(p *v1.Pod) string { return string(p.Spec.RestartPolicy) }),
		"spec.schedulerName":       get(func(p *v1.Pod) string { return p.Spec.SchedulerName }),
		"spec.serviceAccountName":  get(func(p *v1.Pod) string { return p.Spec.ServiceAccountName }),
		"spec.hostNetwork":         get(func(p *v1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) }),
		"status.phase":             get(func(p *v1.Pod) string { return string(p.Status.Phase) }),
		"status.podIP":             get(func(p *v1.Pod) string { return p.Status.PodIP }),
		"status.nominatedNodeName": get(func(p *v1.Pod) string { return p.Status.NominatedNodeName }),
	},
	v1.SchemeGroupVersion.WithKind("Node"): {
		"spec.unschedulable": get(func(n *v1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) }),
	},
	v1.SchemeGroupVersion.WithKind("Namespace"): {
		"status.phase": get(func(n *v1.Namespace) string { return string(n.Status.Phase) }),
	},
	v1.SchemeGroupVersion.WithKind("Secret"): {
		"type": get(func(s *v1.Secret) string { return string(s.Type) }),
	},
	v1.SchemeGroupVersion.WithKind("Service"): {
		"spec.clusterIP": get(func(s *v1.Service) string { return s.Spec.ClusterIP }),
		"spec.type":      get(func(s *v1.Service) string { return string(s.Spec.Type) }),
	},
	v1.SchemeGroupVersion.WithKind("ReplicationController"): {
		"status.replicas": get(func(r *v1.ReplicationController) string { return strconv.Itoa(int(r.Status.Replicas)) }),
	},
	v1.SchemeGroupVersion.WithKind("Event"): {
		"involvedObject.kind":            get(func(e *v1.Event) string { return e.InvolvedObject.Kind }),
		"involvedObject.namespace":       get(func(e *v1.Event) string { return e.InvolvedObject.Namespace }),
		"involvedObject.name":            get(func(e *v1.Event) string { return e.InvolvedObject.Name }),
		"involvedObject.uid":             get(func(e *v1.Event) string { return string(e.InvolvedObject.UID) }),
		"involvedObject.apiVersion":      get(func(e *v1.Event) string { return e.InvolvedObject.APIVersion }),
		"involvedObject.resourceVersion": get(func(e *v1.Event) string { return e.InvolvedObject.ResourceVersion }),
		"involvedObject.fieldPath":       get(func(e *v1.Event) string { return e.InvolvedObject.FieldPath }),
		"reason":                         get(func(e *v1.Event) string { return e.Reason }),
		"reportingComponent":             get(func(e *v1.Event) string { return e.ReportingController }),
		"source":                         get(func(e *v1.Event) string { return e.Source.Component }),
		"type":                           get(func(e *v1.Event) string { return e.Type }),
	},
	batchv1.SchemeGroupVersion.WithKind("Job"): {
		"status.successful": get(func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) }),
	},
}

// fieldsOf returns the selectable fields of a resource beside name and namespace.
func fieldsOf(res *resources.Resource) map[string]func(runtime.Object) string {
	if res.Custom == nil {
		return selectable[res.GVK]
	}
	values := map[string]func(runtime.Object) string{}
	for _, f := range res.Custom.Version.SelectableFields {
		path := strings.TrimPrefix(f.JSONPath, ".")
		values[path] = get(func(u *unstructured.Unstructured) string {
			v, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
			if err != nil || !found || v == nil {
				return ""
			}
			return fmt.Sprint(v)
		})
	}
	return values
}
