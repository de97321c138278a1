package apiserver

import (
	"errors"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// query is the parsed query of a list or watch.
type query struct {
	opts   internalversion.ListOptions
	filter filter
}

// parseQuery reads the parameters of a request with apimachinery's decoder, parsers and
// validation. As in a real server, malformed parameters are a BadRequest, forbidden
// combinations are Invalid, any other boolean is true, and a negative limit is none.
func parseQuery(raw string, t *target) (*query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	q := &query{}
	if err := internalscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &q.opts); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if errs := validation.ValidateListOptions(&q.opts, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	q.opts.Limit = max(q.opts.Limit, 0)
	if o := &q.opts; o.Continue != "" && !o.Watch && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	q.filter, err = newFilter(t, q.opts.LabelSelector, q.opts.FieldSelector)
	return q, err
}

// isTrue reads a boolean parameter.
func isTrue(values []string) bool {
	if len(values) == 0 {
		return false
	}
	v := strings.ToLower(values[0])
	return v != "0" && v != "false"
}

// errContinue is the error for a foreign continue token.
var errContinue = errors.New("continue key is not valid")
