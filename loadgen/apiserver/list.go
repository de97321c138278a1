package apiserver

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/source/stream"
	"watchlab/loadgen/storm"
)

// query is the parsed query of a list or watch.
type query struct {
	opts   internalversion.ListOptions
	filter filter
}

// parseQuery reads the parameters of a request with apimachinery's decoder, parsers and
// validation. As in a real server, malformed parameters are a BadRequest, forbidden
// combinations are Invalid, any other boolean is true, and a negative limit is none.
func (s *Server) parseQuery(raw string, t *target) (*query, error) {
	q := &query{}
	o := &q.opts
	if err := decodeQuery(raw, o); err != nil {
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
	if q.filter, err = newFilter(t, o.LabelSelector, o.FieldSelector); err == nil && s.opts.ShardedListAndWatch && o.ShardSelector != "" {
		q.filter.shards, err = parseShards(o.ShardSelector)
	}
	return q, err
}

// query returns the parsed query of a list or watch.
func (req *request) query() (*query, error) {
	q, err := req.server.parseQuery(req.http.URL.RawQuery, &req.target)
	if err == nil && (req.converts || req.since > 0) {
		q.filter.show = req.show
	}
	return q, err
}

func isTrue(values []string) bool {
	if len(values) == 0 {
		return false
	}
	v := strings.ToLower(values[0])
	return v != "0" && v != "false"
}

// continueToken is the start of the next page of a list, with a real server's fields.
type continueToken struct {
	Version         string `json:"v"`
	ResourceVersion int64  `json:"rv"`    // version of the list; -1 means the current version
	StartKey        string `json:"start"` // last key of the previous page
}

const continueVersion = "meta.k8s.io/v1"

func (t continueToken) encode() (string, error) {
	b, err := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(b), err
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
	next, err := continueToken{Version: continueVersion, ResourceVersion: -1, StartKey: after}.encode()
	if err != nil {
		return err
	}
	expired := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	expired.ErrStatus.Continue = next
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
	} else if version == "0" {
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
	p := page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}}
	if q.filter.shards != nil {
		p.meta.ShardInfo = &metav1.ShardInfo{Selector: q.filter.shards.String()}
	}
	state := log.State(log.At(at), q.filter.prefix(), after)
	if q.filter.selects() {
		state = slices.DeleteFunc(state, func(e *storm.Event) bool { return !q.filter.matches(e.Key, e.Object) })
	}
	p.items = state
	if limit == 0 || len(state) <= limit {
		return p, nil
	}
	p.items = state[:limit]
	remaining := int64(len(state) - limit)
	p.meta.Continue, err = continueToken{Version: continueVersion, ResourceVersion: int64(at), StartKey: state[limit-1].Key}.encode()
	if !q.filter.selects() {
		p.meta.RemainingItemCount = &remaining
	}
	return p, err
}

func (s *Server) list(req *request, q *query) error {
	p, err := pageOf(req.log, q)
	if err != nil {
		return err
	}
	done := func() {
		s.lists.Add(1)
		if q.opts.Continue == "" {
			s.snapshots.Add(1)
		}
	}
	if req.form.Shape().IsTable() {
		objects := make([]runtime.Object, len(p.items))
		for i, it := range p.items {
			if objects[i], err = req.show(it.Object); err != nil {
				return err
			}
		}
		body, err := req.kind.AppendTable(nil, req.form, p.meta, objects)
		if err != nil {
			return err
		}
		done()
		writeBody(req.w, http.StatusOK, req.form, body)
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
			return err
		}
	}
	done()
	req.w.Header().Set("Content-Type", req.form.ContentType())
	_ = req.kind.WriteList(req.w, req.form, p.meta, objects) // fails if the client is gone
	return nil
}

func (s *Server) get(req *request) error {
	version := req.http.URL.Query().Get("resourceVersion")
	if _, err := stream.ParseVersion(version); err != nil {
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
	namespace string          // empty for all namespaces and for cluster-scoped resources
	labels    labels.Selector // nil matches every object
	fields    fields.Selector // nil matches every object
	values    values          // of the selectable fields
	shards    sharding.Selector
	show      func(runtime.Object) (runtime.Object, error) // reads an object for fields; nil if it is kept as requested
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
		if _, ok := f.values[label]; ok {
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
func (f *filter) all() bool { return f.namespace == "" && !f.selects() }

// selects reports whether the request has a selector.
func (f *filter) selects() bool { return f.labels != nil || f.fields != nil || f.shards != nil }

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
	if f.shards != nil {
		if in, err := f.shards.Matches(o); err != nil || !in {
			return false
		}
	}
	if f.fields != nil && f.show != nil {
		if o, err = f.show(o); err != nil {
			return false
		}
	}
	return f.fields == nil || f.fields.Matches(objectFields{o, f.values})
}

// values reads selectable fields by path.
type values map[string]func(runtime.Object) string

// objectFields adapts an object to a field selector.
type objectFields struct {
	object runtime.Object
	values values
}

func (o objectFields) Has(field string) bool { return o.values[field] != nil }
func (o objectFields) Get(field string) string {
	if value := o.values[field]; value != nil {
		return value(o.object)
	}
	return ""
}

// get reads a field of a Go type.
func get[T any](value func(T) string) func(runtime.Object) string {
	return func(o runtime.Object) string {
		if t, ok := o.(T); ok {
			return value(t)
		}
		return ""
	}
}

// selectable are the selectable fields of built-in kinds (Kubernetes v1.37,
// pkg/apis/*/v1/conversion.go).
var selectable = map[schema.GroupVersionKind]values{
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

// fieldsOf returns the selectable fields of a resource.
func fieldsOf(res *resources.Resource) values {
	all := values{fieldName: get(metav1.Object.GetName)}
	if res.Namespaced {
		all[fieldNamespace] = get(metav1.Object.GetNamespace)
	}
	if res.Custom == nil {
		maps.Copy(all, selectable[res.GVK])
		return all
	}
	for _, f := range res.Custom.Version.SelectableFields {
		path := strings.TrimPrefix(f.JSONPath, ".")
		all[path] = get(func(u *unstructured.Unstructured) string {
			v, found, err := unstructured.NestedFieldNoCopy(u.Object, strings.Split(path, ".")...)
			if err != nil || !found || v == nil {
				return ""
			}
			return fmt.Sprint(v)
		})
	}
	return all
}
