package apiserver

import (
	"cmp"
	_ "embed" // the seeds
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/manifest"
)

var (
	namespaceResource  = v1.SchemeGroupVersion.WithResource("namespaces")
	podResource        = v1.SchemeGroupVersion.WithResource("pods")
	serviceResource    = v1.SchemeGroupVersion.WithResource("services")
	definitionResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
)

// seedNamespaces creates the namespaces of every cluster and of the storms' objects.
func (s *Server) seedNamespaces(c *collection) {
	names := append([]string{
		metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, v1.NamespaceNodeLease,
	}, s.namespaces...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		c.log.Put(store.Origin{By: byManifest}, watch.Added, name, &v1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(uuid.NewString()), CreationTimestamp: metav1.Now().Rfc3339Copy(),
				Labels: map[string]string{v1.LabelMetadataName: name},
			},
			Spec:   v1.NamespaceSpec{Finalizers: []v1.FinalizerName{v1.FinalizerKubernetes}},
			Status: v1.NamespaceStatus{Phase: v1.NamespaceActive},
		}, 0)
	}
}

// seedsText are the objects that each cluster has.
//
//go:embed seeds.yaml
var seedsText string

// seeded reports whether a text of seeds may have objects of a resource.
func seeded(text string, res *resources.Resource) bool {
	return strings.Contains(text, "kind: "+res.GVK.Kind+"\n")
}

// seed creates those of a resource.
func (s *Server) seed(c *collection) {
	now := metav1.Now().Rfc3339Copy()
	for text := range strings.SplitSeq(seedsText, "---\n") {
		if !seeded(text, c.stored) {
			continue
		}
		decoded, kind, err := resources.Codecs.UniversalDeserializer().Decode([]byte(strings.ReplaceAll(text, "NOW", now.Format(`"`+time.RFC3339+`"`))), nil, nil)
		if err != nil || *kind != c.stored.GVK {
			continue
		}
		o := decoded.(resources.Object)
		patch.SetDefaults(o)
		o.SetUID(types.UID(uuid.NewString()))
		o.SetCreationTimestamp(now)
		c.log.Put(store.Origin{By: byManifest}, watch.Added, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"), withoutKind(o), 0)
	}
}

// builtin returns the collection of a resource that is always served.
func (s *Server) builtin(r schema.GroupVersionResource) *collection {
	res, _ := s.registry.Lookup(r.Group, r.Version, r.Resource)
	return s.collection(res)
}

// namespace returns a namespace or nil.
func (s *Server) namespace(name string) *v1.Namespace {
	o, _ := s.builtin(namespaceResource).log.Get(name)
	ns, _ := o.(*v1.Namespace)
	return ns
}

// checkNamespace returns an error for a namespace that does not exist or is being
// deleted, and for a definition that is. The object's name comes from the path or else from the body.
func (s *Server) checkNamespace(req *request, body []byte) error {
	name := func() string {
		var named metav1.PartialObjectMetadata
		if req.name == "" && manifest.CheckAliases(body) == nil && yaml.Unmarshal(body, &named) == nil {
			return named.Name
		}
		return req.name
	}
	if s.terminating(req.resource) {
		return apierrors.NewForbidden(req.resource.GVR.GroupResource(), name(), errors.New("create not allowed while custom resource definition is terminating"))
	}
	if !req.resource.Namespaced {
		return nil
	}
	ns := s.namespace(req.namespace)
	if ns == nil {
		return apierrors.NewNotFound(namespaceResource.GroupResource(), req.namespace)
	}
	if ns.DeletionTimestamp == nil {
		return nil
	}
	err := apierrors.NewForbidden(req.resource.GVR.GroupResource(), name(),
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", req.namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: v1.NamespaceTerminatingCause, Message: "namespace " + req.namespace + " is being terminated", Field: "metadata.namespace",
	})
	return err
}

// empty deletes the objects whose keys have a prefix and returns those that remain.
func (s *Server) empty(by store.Origin, c *collection, prefix string) (held []resources.Object) {
	background := &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)} // of a real namespace controller
	for _, it := range c.log.State(c.log.Visible(), prefix, "") {
		var remains resources.Object
		c.edit(by, it.Key, func(o resources.Object) (watch.EventType, resources.Object) {
			r, err := s.editor.Delete(c.stored, o, background)
			if remains = nil; err != nil || !r.Gone {
				remains = o
			}
			switch {
			case err != nil || r.Unchanged:
				return "", nil
			case r.Gone:
				return watch.Deleted, withoutKind(r.Object)
			}
			return watch.Modified, withoutKind(r.Object)
		})
		if remains != nil {
			held = append(held, remains)
		}
	}
	return held
}

// finish empties a namespace that is being deleted and deletes it if it is empty. Else its conditions say what remains.
func (s *Server) finish(by store.Origin, name string) {
	if s.opts.ForeignNamespaces {
		return
	}
	s.colMu.RLock()
	all := slices.Collect(maps.Values(s.collections))
	s.colMu.RUnlock()
	// Pods hold their volumes until they are gone.
	slices.SortFunc(all, func(a, b *collection) int { return strings.Compare(b.stored.GVR.Resource, a.stored.GVR.Resource) })
	held, finalizers := map[string]int{}, map[string]int{} // what remains of each resource, and with each finalizer
	for _, c := range all {
		if !c.stored.Namespaced {
			continue
		}
		for _, o := range s.empty(by, c, name+"/") {
			held[c.stored.GVR.Resource+"."+c.stored.GVR.Group]++
			for _, f := range o.GetFinalizers() {
				finalizers[f]++
			}
		}
	}
	s.builtin(namespaceResource).edit(by, name, func(current resources.Object) (watch.EventType, resources.Object) {
		ns, _ := current.DeepCopyObject().(*v1.Namespace)
		switch {
		case len(held) > 0 && ns != nil && setRemaining(ns, held, finalizers):
			return watch.Modified, ns
		case len(held) > 0 || len(current.GetFinalizers()) > 0:
			return "", nil
		}
		return deleted(current)
	})
}

// setRemaining sets the conditions of a namespace that is not empty, with the words of a real namespace controller. It
// reports whether they changed.
func setRemaining(ns *v1.Namespace, held, finalizers map[string]int) (changed bool) {
	list := func(all map[string]int, format string) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(all)) {
			parts = append(parts, fmt.Sprintf(format, name, all[name]))
		}
		return strings.Join(parts, ", ")
	}
	conditions := []v1.NamespaceCondition{
		{Type: v1.NamespaceDeletionDiscoveryFailure, Reason: "ResourcesDiscovered", Message: "All resources successfully discovered"},
		{Type: v1.NamespaceDeletionGVParsingFailure, Reason: "ParsedGroupVersions", Message: "All legacy kube types successfully parsed"},
		{Type: v1.NamespaceDeletionContentFailure, Reason: "ContentDeleted", Message: "All content successfully deleted, may be waiting on finalization"},
		{Type: v1.NamespaceContentRemaining, Status: v1.ConditionTrue, Reason: "SomeResourcesRemain", Message: "Some resources are remaining: " + list(held, "%s has %d resource instances")},
		{Type: v1.NamespaceFinalizersRemaining, Reason: "ContentHasNoFinalizers", Message: "All content-preserving finalizers finished"},
	}
	if c := &conditions[4]; len(finalizers) > 0 {
		c.Status, c.Reason = v1.ConditionTrue, "SomeFinalizersRemain"
		c.Message = "Some content in the namespace has finalizers remaining: " + list(finalizers, "%s in %d resource instances")
	}
	for _, c := range conditions {
		c.Status = cmp.Or(c.Status, v1.ConditionFalse)
		c.LastTransitionTime = metav1.Now().Rfc3339Copy()
		i := slices.IndexFunc(ns.Status.Conditions, func(old v1.NamespaceCondition) bool { return old.Type == c.Type })
		if i < 0 {
			ns.Status.Conditions, changed = append(ns.Status.Conditions, c), true
			continue
		}
		old := &ns.Status.Conditions[i]
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		changed, *old = changed || *old != c, c
	}
	return changed
}

// define serves the resource of a CustomResourceDefinition that is created or changed, if it replaces the one at
// position was; else it returns false. An invalid definition changes nothing.
func (s *Server) define(req *request, o runtime.Object, key string, was uint64) (bool, error) {
	crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || req.subresource != "" {
		return true, nil
	}
	current, at := req.log.Get(key)
	if at != was {
		return false, nil
	}
	old, _ := current.(*apiextensionsv1.CustomResourceDefinition)
	if old == nil || !apiequality.Semantic.DeepEqual(old.Spec, crd.Spec) {
		stored, err := s.registry.Define(old, crd.DeepCopy())
		if err != nil {
			return false, err
		}
		s.redefine(stored)
	}
	resources.Establish(crd)
	return true, nil
}

// after applies the effects of a write.
func (s *Server) after(req *request, t watch.EventType, key string) {
	if t != watch.Deleted {
		return
	}
	by := originOf(req.http.Context())
	if req.resource.GVR == definitionResource {
		s.undefine(by, key)
		return
	}
	if req.resource.GVR == podResource {
		s.release(by, req.namespace)
	}
	if s.terminating(req.resource) {
		s.clean(by, req.resource.Custom.Name)
	}
	// The last object of a namespace that is being deleted.
	if req.resource.Namespaced {
		if ns := s.namespace(req.namespace); ns != nil && ns.DeletionTimestamp != nil {
			s.finish(by, ns.Name)
		}
	}
}

func deleted(o resources.Object) (watch.EventType, resources.Object) {
	return watch.Deleted, o.DeepCopyObject().(resources.Object)
}

// undefine stops serving a custom resource and deletes its objects; open watches see it.
func (s *Server) undefine(by store.Origin, name string) {
	s.registry.Undefine(name)
	c := s.defined(name)
	if c == nil {
		return
	}
	s.colMu.Lock()
	delete(s.collections, keyOf(c.stored))
	s.colMu.Unlock()
	for _, it := range c.log.State(c.log.Visible(), "", "") {
		c.edit(by, it.Key, deleted)
	}
	s.watching.end(c.log)
}

// defined returns the collection of a definition, nil if it was not used yet.
func (s *Server) defined(name string) *collection {
	plural, group, _ := strings.Cut(name, ".")
	s.colMu.RLock()
	defer s.colMu.RUnlock()
	return s.collections[schema.GroupVersionResource{Group: group, Resource: plural}]
}

// terminating reports whether the definition of a resource is being deleted.
func (s *Server) terminating(res *resources.Resource) bool {
	if res.Custom == nil {
		return false
	}
	crd, _ := s.builtin(definitionResource).log.Get(res.Custom.Name)
	return crd != nil && crd.GetDeletionTimestamp() != nil
}

// clean deletes the objects of a definition that is being deleted, and then the definition.
func (s *Server) clean(by store.Origin, name string) {
	mark := func(done bool, reason, message string) (gone bool) {
		s.builtin(definitionResource).edit(by, name, func(current resources.Object) (watch.EventType, resources.Object) {
			crd := current.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
			resources.SetCondition(crd, apiextensionsv1.Terminating, !done, reason, message)
			if done {
				apihelpers.CRDRemoveFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer)
			}
			switch gone = done && len(crd.Finalizers) == 0; {
			case gone:
				return watch.Deleted, crd
			case apiequality.Semantic.DeepEqual(crd, current):
				return "", nil
			}
			return watch.Modified, crd
		})
		return gone
	}
	mark(false, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
	if c := s.defined(name); c != nil && len(s.empty(by, c, "")) > 0 {
		return
	}
	if mark(true, "InstanceDeletionCompleted", "removed all instances") {
		s.undefine(by, name)
	}
}

// CreateAll creates the objects of manifests; those that others depend on come first: definitions, then
// namespaces. The error names the file and the line.
func (s *Server) CreateAll(objects []manifest.Object) error {
	for _, o := range manifest.Ordered(objects) {
		u, err := o.Unstructured()
		if err == nil {
			err = s.Create(u)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", o.Source, o.Line, err)
		}
	}
	return nil
}

// Create creates or replaces an object as a client would, and its namespace if needed. A new object keeps the uid and
// the status that it has.
func (s *Server) Create(u *unstructured.Unstructured) error {
	res, ok := s.registry.ByKind(u.GroupVersionKind())
	if !ok {
		return &meta.NoKindMatchError{GroupKind: u.GroupVersionKind().GroupKind(), SearchedVersions: []string{u.GroupVersionKind().Version}}
	}
	namespace := u.GetNamespace()
	if res.Namespaced && namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	if res.Namespaced && s.namespace(namespace) == nil {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}}
		if err := s.Create(ns); err != nil {
			return err
		}
	}
	path := res.Path(namespace)
	u.SetResourceVersion("")
	body, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	if err := s.call(http.MethodPost, path, body); !apierrors.IsAlreadyExists(err) {
		return err
	}
	u.SetUID("")                    // that of another server
	if res.GVR == serviceResource { // The service kubernetes has its address here.
		unstructured.RemoveNestedField(u.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(u.Object, "spec", "clusterIPs")
	}
	if body, err = u.MarshalJSON(); err != nil {
		return err
	}
	return s.call(http.MethodPut, path+"/"+strings.TrimSpace(u.GetName()), body)
}
