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

// filter is which objects a request is about. The zero value takes all.
type filter struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	values    map[string]func(runtime.Object) string
}

// Fields that all kinds have.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// newFilter refuses fields that cannot be selected by.
func newFilter(t *target, byLabel labels.Selector, byField fields.Selector) (filter, error) {
	f := filter{namespace: t.namespace}
	if byLabel != nil && !byLabel.Empty() {
		f.labels = byLabel
	}
	if t.name != "" {
		// A watch of one object, as its path has it.
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

// unknownField is what a real server says of a field that objects cannot be
// selected by: those of its kinds that have no selectable fields of their own say
// it in their own way (k8s.io/apimachinery, pkg/runtime).
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

// prefix is what the keys of the objects begin with.
func (f *filter) prefix() string {
	if f.namespace == "" {
		return ""
	}
	return f.namespace + "/"
}

// matches reports whether the request is about the object with that key.
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
		// All that is stored has metadata.
		return false
	}
	if f.labels != nil && !f.labels.Matches(labels.Set(m.GetLabels())) {
		return false
	}
	return f.fields == nil || f.fields.Matches(objectFields{m, o, f.values})
}

// objectFields shows an object's fields to a selector.
type objectFields struct {
	metav1.Object
	object runtime.Object
	values map[string]func(runtime.Object) string
}

// Has reports whether there is such a field.
func (o objectFields) Has(field string) bool {
	return field == fieldName || field == fieldNamespace || o.values[field] != nil
}

// Get returns the field's value.
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

// of reads a field of a Go type.
func of[T runtime.Object](value func(T) string) func(runtime.Object) string {
	return func(o runtime.Object) string {
		if t, ok := o.(T); ok {
			return value(t)
		}
		return ""
	}
}

// selectable are the fields that a real server's built-in kinds can be selected
// by (kubernetes v1.36, pkg/apis/*/v1/conversion.go).
var selectable = map[schema.GroupVersionKind]map[string]func(runtime.Object) string{
	v1.SchemeGroupVersion.WithKind("Pod"): {
		"spec.nodeName":            of(func(p *v1.Pod) string { return p.Spec.NodeName }),
		"spec.restartPolicy":       of(func(p *v1.Pod) string { return string(p.Spec.RestartPolicy) }),
		"spec.schedulerName":       of(func(p *v1.Pod) string { return p.Spec.SchedulerName }),
		"spec.serviceAccountName":  of(func(p *v1.Pod) string { return p.Spec.ServiceAccountName }),
		"spec.hostNetwork":         of(func(p *v1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) }),
		"status.phase":             of(func(p *v1.Pod) string { return string(p.Status.Phase) }),
		"status.podIP":             of(func(p *v1.Pod) string { return p.Status.PodIP }),
		"status.nominatedNodeName": of(func(p *v1.Pod) string { return p.Status.NominatedNodeName }),
	},
	v1.SchemeGroupVersion.WithKind("Node"): {
		"spec.unschedulable": of(func(n *v1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) }),
	},
	v1.SchemeGroupVersion.WithKind("Namespace"): {
		"status.phase": of(func(n *v1.Namespace) string { return string(n.Status.Phase) }),
	},
	v1.SchemeGroupVersion.WithKind("Secret"): {
		"type": of(func(s *v1.Secret) string { return string(s.Type) }),
	},
	v1.SchemeGroupVersion.WithKind("Service"): {
		"spec.clusterIP": of(func(s *v1.Service) string { return s.Spec.ClusterIP }),
		"spec.type":      of(func(s *v1.Service) string { return string(s.Spec.Type) }),
	},
	v1.SchemeGroupVersion.WithKind("ReplicationController"): {
		"status.replicas": of(func(r *v1.ReplicationController) string { return strconv.Itoa(int(r.Status.Replicas)) }),
	},
	v1.SchemeGroupVersion.WithKind("Event"): {
		"involvedObject.kind":            of(func(e *v1.Event) string { return e.InvolvedObject.Kind }),
		"involvedObject.namespace":       of(func(e *v1.Event) string { return e.InvolvedObject.Namespace }),
		"involvedObject.name":            of(func(e *v1.Event) string { return e.InvolvedObject.Name }),
		"involvedObject.uid":             of(func(e *v1.Event) string { return string(e.InvolvedObject.UID) }),
		"involvedObject.apiVersion":      of(func(e *v1.Event) string { return e.InvolvedObject.APIVersion }),
		"involvedObject.resourceVersion": of(func(e *v1.Event) string { return e.InvolvedObject.ResourceVersion }),
		"involvedObject.fieldPath":       of(func(e *v1.Event) string { return e.InvolvedObject.FieldPath }),
		"reason":                         of(func(e *v1.Event) string { return e.Reason }),
		"reportingComponent":             of(func(e *v1.Event) string { return e.ReportingController }),
		"source":                         of(func(e *v1.Event) string { return e.Source.Component }),
		"type":                           of(func(e *v1.Event) string { return e.Type }),
	},
	batchv1.SchemeGroupVersion.WithKind("Job"): {
		"status.successful": of(func(j *batchv1.Job) string { return strconv.Itoa(int(j.Status.Succeeded)) }),
	},
}

// fieldsOf returns the fields that a resource can be selected by beside its name
// and namespace.
func fieldsOf(res *resources.Resource) map[string]func(runtime.Object) string {
	if res.Custom == nil {
		return selectable[res.GVK]
	}
	values := map[string]func(runtime.Object) string{}
	for _, selectable := range res.Custom.Version.SelectableFields {
		path := strings.TrimPrefix(selectable.JSONPath, ".")
		values[path] = of(func(u *unstructured.Unstructured) string {
			v, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
			if err != nil || !found || v == nil {
				return ""
			}
			return fmt.Sprint(v)
		})
	}
	return values
}
