package apiserver

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
func parseQuery(raw string, t *target) (*query, error) {
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
	q.filter, err = newFilter(t, q.opts.LabelSelector, q.opts.FieldSelector)
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

// isTrue reads a boolean parameter.
func isTrue(values []string) bool {
	if len(values) == 0 {
		return false
	}
	v := strings.ToLower(values[0])
	return v == "" || v == "1" || v == "true"
}

// errContinue is what is wrong with a continue token that this server did not
// make.
var errContinue = errors.New("continue key is not valid")
