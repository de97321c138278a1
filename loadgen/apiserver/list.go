package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// query is the parsed query of a list or watch.
type query struct {
	opts   internalversion.ListOptions
	filter filter
}

// query reads the parameters of a list or watch with apimachinery's decoder, parsers and
// validation. As in a real server, malformed parameters are a BadRequest, forbidden
// combinations are Invalid, any other boolean is true, and a negative limit is none.
func (req *request) query() (*query, error) {
	q := &query{}
	o := &q.opts
	if err := decodeQuery(req.http.URL.RawQuery, o); err != nil {
		return nil, err
	}
	if err := invalidOptions("ListOptions", validation.ValidateListOptions(o, true)); err != nil {
		return nil, err
	}
	o.Limit = max(o.Limit, 0)
	if o.Continue != "" && !o.Watch && o.ResourceVersion != "" && o.ResourceVersion != "0" {
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	var err error
	q.filter, err = newFilter(&req.target, o.LabelSelector, o.FieldSelector)
	if req.converts || req.since > 0 {
		q.filter.show = req.show
	}
	return q, err
}

// continueToken is the start of the next page of a list, with a real server's fields.
type continueToken struct {
	Version         string `json:"v"`
	ResourceVersion int64  `json:"rv"`    // version of the list; -1 means the current version
	StartKey        string `json:"start"` // last key of the previous page
}

const continueVersion = "meta.k8s.io/v1"

func (t continueToken) encode() string {
	b, _ := json.Marshal(t) // which has no other values
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeContinue(s string) (continueToken, error) {
	var t continueToken
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	switch {
	case err != nil:
	case t.Version != continueVersion:
		err = fmt.Errorf("server does not recognize this encoded version %v", t.Version)
	case t.ResourceVersion == 0:
		err = fmt.Errorf("incorrect encoded start resourceVersion (version %s)", t.Version)
	case t.StartKey == "":
		err = fmt.Errorf("encoded start key empty (version %s)", t.Version)
	}
	if err != nil {
		return t, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	}
	return t, nil
}

// inconsistent is the error for a page of an expired list. It offers the token of the
// same page of the current list (k8s.io/apiserver v0.37, pkg/storage/etcd3).
func inconsistent(after string) error {
	expired := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	expired.ErrStatus.Continue = continueToken{Version: continueVersion, ResourceVersion: -1, StartKey: after}.encode()
	return expired
}

type page struct {
	meta  metav1.ListMeta
	items []*storm.Event
}

// pageOf returns the page for a list request.
func pageOf(log *store.Log, q *query) (page, error) {
	version, match, after := q.opts.ResourceVersion, q.opts.ResourceVersionMatch, ""
	limit := int(min(q.opts.Limit, 1<<30))
	if q.opts.Continue != "" {
		token, err := decodeContinue(q.opts.Continue)
		if err != nil {
			return page{}, err
		}
		after = token.StartKey
		if version = ""; token.ResourceVersion > 0 {
			version, match = strconv.FormatInt(token.ResourceVersion, 10), metav1.ResourceVersionMatchExact
		}
	}
	if q.opts.ResourceVersion == "0" {
		// A real server answers from its watch cache, which has no pages.
		limit = 0
	}
	at, err := log.Bounds().ListAt(version, match)
	switch {
	case after != "" && apierrors.IsResourceExpired(err):
		return page{}, inconsistent(after)
	case err != nil:
		return page{}, err
	}
	state := log.State(log.At(at), q.filter.prefix(), after)
	if q.filter.selects() {
		state = slices.DeleteFunc(state, func(e *storm.Event) bool { return !q.filter.matches(e.Key, e.Object) })
	}
	p := page{metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}, state}
	if limit == 0 || len(state) <= limit {
		return p, nil
	}
	p.items = state[:limit]
	remaining := int64(len(state) - limit)
	p.meta.Continue = continueToken{Version: continueVersion, ResourceVersion: int64(at), StartKey: state[limit-1].Key}.encode()
	if !q.filter.selects() {
		p.meta.RemainingItemCount = &remaining
	}
	return p, nil
}

// unreadable is the error of a list with an object that cannot be converted (k8s.io/apiserver v0.37, pkg/storage/etcd3).
func (req *request) unreadable(err error) error {
	gr := req.resource.GVR.GroupResource()
	_, text, _ := strings.Cut(err.Error(), "StorageError: ")
	text = "StorageError: " + strings.Replace(text, "Key: /"+gr.Group, "Key: /registry/"+gr.Group, 1)
	failed := patch.Refused(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, fmt.Sprintf("failed to read one or more %s from the storage: %s", gr, text))
	failed.ErrStatus.Details = &metav1.StatusDetails{Name: "list", Group: gr.Group, Kind: gr.Resource, Causes: []metav1.StatusCause{{Type: metav1.CauseTypeUnexpectedServerResponse, Message: text}}}
	return failed
}

func (s *Server) list(req *request, q *query) error {
	p, err := pageOf(req.log, q)
	if err != nil {
		return err
	}
	if q.opts.Continue == "" {
		s.snapshots.Add(1)
	}
	if req.form.Shape().IsTable() {
		objects := make([]runtime.Object, len(p.items))
		for i, it := range p.items {
			if objects[i], err = req.show(it.Object); err != nil {
				return req.unreadable(err)
			}
		}
		body, err := req.kind.AppendTable(nil, req.form, p.meta, objects)
		if err != nil {
			return err
		}
		wire.WriteBody(req.w, http.StatusOK, req.form, body)
		return nil
	}
	if !req.converts {
		if err := req.log.Prepare(req.encoder, req.form, p.items); err != nil {
			return err
		}
	}
	objects := make([][]byte, len(p.items))
	for i, it := range p.items {
		if objects[i], err = req.object(it); err != nil {
			return req.unreadable(err)
		}
	}
	req.w.Header().Set("Content-Type", req.form.ContentType())
	_ = req.kind.WriteList(req.w, req.form, p.meta, objects) // fails if the client is gone
	return nil
}

func (s *Server) get(req *request) error {
	version := req.http.URL.Query().Get("resourceVersion")
	if _, err := store.ParseVersion(version); err != nil {
		return err
	}
	if _, err := req.log.Bounds().ListAt(version, ""); err != nil {
		return err
	}
	o, _ := req.log.Get(req.key())
	if o == nil {
		return apierrors.NewNotFound(req.resource.GVR.GroupResource(), req.name)
	}
	return req.answerShown(http.StatusOK, o)
}

// filter selects the objects of a request. The zero value selects all.
type filter struct {
	namespace string                                       // empty for all namespaces and for cluster-scoped resources
	labels    labels.Selector                              // nil matches every object
	fields    fields.Selector                              // nil matches every object
	values    values                                       // of the selectable fields
	show      func(runtime.Object) (runtime.Object, error) // reads an object for fields; nil if it is kept as requested
}

// newFilter returns an error for fields that are not selectable.
func newFilter(t *target, byLabel labels.Selector, byField fields.Selector) (filter, error) {
	f := filter{namespace: t.namespace}
	if byLabel != nil && !byLabel.Empty() {
		f.labels = byLabel
	}
	if byField == nil {
		byField = fields.Everything()
	}
	if t.name != "" { // a watch of one object by its path
		byField = fields.AndSelectors(byField, fields.OneTermEqualSelector(fieldName, t.name))
	}
	if byField.Empty() {
		return f, nil
	}
	f.values = fieldsOf(t.resource)
	checked, err := byField.Transform(func(label, value string) (string, string, error) {
		if _, ok := f.values[label]; ok {
			return label, value, nil
		}
		return "", "", unknownField(t.resource, label)
	})
	if err != nil {
		return filter{}, apierrors.NewBadRequest(err.Error())
	}
	f.fields = checked
	return f, nil
}

// all reports whether every object matches.
func (f *filter) all() bool { return f.namespace == "" && !f.selects() }

// selects reports whether the request has a selector.
func (f *filter) selects() bool { return f.labels != nil || f.fields != nil }

// prefix is the common prefix of the objects' keys.
func (f *filter) prefix() string {
	if f.namespace == "" {
		return ""
	}
	return f.namespace + "/"
}

func (f *filter) matches(key string, o runtime.Object) bool {
	if f.namespace != "" && (len(key) <= len(f.namespace) || key[len(f.namespace)] != '/' || !strings.HasPrefix(key, f.namespace)) {
		return false
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
	if f.fields != nil && f.show != nil {
		if o, err = f.show(o); err != nil {
			return false
		}
	}
	return f.fields == nil || f.fields.Matches(objectFields{o, f.values})
}
