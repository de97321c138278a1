package apiserver

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The field labels that selectors may name.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
	fieldNodeName  = "spec.nodeName"
)

// query is what a request asks for.
type query struct {
	opts   internalversion.ListOptions
	filter filter
}

// parseQuery reads the parameters of a request with apimachinery's own
// decoder, parsers and validation. The error is a BadRequest for what is
// malformed, and Invalid for what is not allowed together, as it is with a
// real server. Where that takes any value of a boolean for true, this one
// doesn't.
func (s *Server) parseQuery(raw string, t target) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	for _, name := range []string{"watch", "allowWatchBookmarks", "sendInitialEvents"} {
		if err := checkBool(values, name); err != nil {
			return nil, err
		}
	}
	q := &query{}
	if err := internalscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &q.opts); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(&q.opts, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	switch o := &q.opts; {
	case o.Limit < 0:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("limit: Invalid value: %d: must not be negative", o.Limit))
	case o.TimeoutSeconds != nil && *o.TimeoutSeconds < 0:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("timeoutSeconds: Invalid value: %d: must not be negative", *o.TimeoutSeconds))
	case o.Continue != "" && !o.Watch && o.ResourceVersion != "" && o.ResourceVersion != "0":
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	q.filter, err = s.newFilter(t.namespace, q.opts.LabelSelector, q.opts.FieldSelector)
	return q, err
}

// checkBool refuses a value that is neither true nor false. An empty one is
// true, as with a real server.
func checkBool(values url.Values, name string) error {
	if len(values[name]) == 0 {
		return nil
	}
	switch v := values[name][0]; strings.ToLower(v) {
	case "", "0", "1", "true", "false":
		return nil
	default:
		return apierrors.NewBadRequest(fmt.Sprintf("%s: Invalid value: %q: must be true or false", name, v))
	}
}

// filter is which objects a request is about. The zero value takes all.
type filter struct {
	namespace string
	// labels and fields are nil where everything matches.
	labels labels.Selector
	fields fields.Selector
}

// newFilter refuses fields that cannot be selected by.
func (s *Server) newFilter(namespace string, byLabel labels.Selector, byField fields.Selector) (filter, error) {
	f := filter{namespace: namespace}
	if byLabel != nil && !byLabel.Empty() {
		f.labels = byLabel
	}
	if byField == nil || byField.Empty() {
		return f, nil
	}
	pods := s.storm.Kind == v1.SchemeGroupVersion.WithKind("Pod")
	checked, err := byField.Transform(func(label, value string) (string, string, error) {
		if label == fieldName || label == fieldNamespace || (label == fieldNodeName && pods) {
			return label, value, nil
		}
		return "", "", fmt.Errorf("field label not supported: %s", label)
	})
	if err != nil {
		return filter{}, apierrors.NewBadRequest(err.Error())
	}
	f.fields = checked
	return f, nil
}

// all reports whether every object matches.
func (f *filter) all() bool { return f.namespace == "" && f.labels == nil && f.fields == nil }

// selects reports whether the request has a selector.
func (f *filter) selects() bool { return f.labels != nil || f.fields != nil }

// matches reports whether the request is about the object.
func (f *filter) matches(o runtime.Object) bool {
	if f.all() {
		return true
	}
	m, err := meta.Accessor(o)
	if err != nil {
		// It was checked when the storm was: a storm's objects all have
		// metadata.
		return false
	}
	switch {
	case f.namespace != "" && m.GetNamespace() != f.namespace:
		return false
	case f.labels != nil && !f.labels.Matches(labels.Set(m.GetLabels())):
		return false
	case f.fields != nil && !f.fields.Matches(objectFields{m, o}):
		return false
	}
	return true
}

// objectFields shows an object's fields to a selector.
type objectFields struct {
	metav1.Object
	object runtime.Object
}

// Has reports whether there is such a field.
func (o objectFields) Has(field string) bool {
	return field == fieldName || field == fieldNamespace || field == fieldNodeName
}

// Get returns the field's value.
func (o objectFields) Get(field string) string {
	switch field {
	case fieldName:
		return o.GetName()
	case fieldNamespace:
		return o.GetNamespace()
	case fieldNodeName:
		if p, ok := o.object.(*v1.Pod); ok {
			return p.Spec.NodeName
		}
	}
	return ""
}

// errContinue is what is wrong with a continue token that this server did not
// make.
var errContinue = errors.New("continue key is not valid")
