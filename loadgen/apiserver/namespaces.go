package apiserver

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/manifest"
)

var (
	namespaceResource  = v1.SchemeGroupVersion.WithResource("namespaces")
	podResource        = v1.SchemeGroupVersion.WithResource("pods")
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

func (s *Server) namespaceCollection() *collection {
	res, _ := s.registry.Lookup("", namespaceResource.Version, namespaceResource.Resource) // always served
	return s.collection(res)
}

// namespace returns a namespace or nil.
func (s *Server) namespace(name string) *v1.Namespace {
	o, _ := s.namespaceCollection().log.Get(name)
	ns, _ := o.(*v1.Namespace)
	return ns
}

// checkNamespace returns an error for a namespace that does not exist or is being
// deleted. The object's name comes from the path or else from the body.
func (s *Server) checkNamespace(req *request, body []byte) error {
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
	name := req.name
	if name == "" {
		var named metav1.PartialObjectMetadata
		if manifest.CheckAliases(body) == nil && yaml.Unmarshal(body, &named) == nil {
			name = named.Name
		}
	}
	err := apierrors.NewForbidden(req.resource.GVR.GroupResource(), name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", req.namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: v1.NamespaceTerminatingCause, Message: "namespace " + req.namespace + " is being terminated", Field: "metadata.namespace",
	})
	return err
}

// emptyNamespace deletes the objects of a namespace. It returns how many remain of each resource, and with each finalizer.
func (s *Server) emptyNamespace(by store.Origin, name string) (held, finalizers map[string]int) {
	s.colMu.RLock()
	all := slices.Collect(maps.Values(s.collections))
	s.colMu.RUnlock()
	// Pods hold their volumes until they are gone.
	slices.SortFunc(all, func(a, b *collection) int { return strings.Compare(b.stored.GVR.Resource, a.stored.GVR.Resource) })
	held, finalizers = map[string]int{}, map[string]int{}
	background := &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)} // of a real namespace controller
	for _, c := range all {
		if !c.stored.Namespaced {
			continue
		}
		for _, it := range c.log.State(c.log.Visible(), name+"/", "") {
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
				held[c.stored.GVR.Resource+"."+c.stored.GVR.Group]++
				for _, f := range remains.GetFinalizers() {
					finalizers[f]++
				}
			}
		}
	}
	return held, finalizers
}

// finish empties a namespace that is being deleted and deletes it if it is empty. Else its conditions say what remains.
func (s *Server) finish(by store.Origin, name string) {
	held, finalizers := s.emptyNamespace(by, name)
	s.namespaceCollection().edit(by, name, func(current resources.Object) (watch.EventType, resources.Object) {
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

// define serves the resource of a CustomResourceDefinition that is created or changed. An
// invalid definition changes nothing.
func (s *Server) define(req *request, o runtime.Object) error {
	crd, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || req.subresource != "" {
		return nil
	}
	if _, err := s.registry.Define(crd.DeepCopy()); err != nil {
		return err
	}
	resources.Establish(crd, time.Now())
	return nil
}

// after applies the effects of a write.
func (s *Server) after(req *request, t watch.EventType, key string) {
	if t != watch.Deleted {
		return
	}
	if req.resource.GVR == definitionResource {
		s.undefine(originOf(req.http.Context()), key)
		return
	}
	if req.resource.GVR == podResource {
		s.release(originOf(req.http.Context()), req.namespace)
	}
	// The last object of a namespace that is being deleted.
	if req.resource.Namespaced {
		if ns := s.namespace(req.namespace); ns != nil && ns.DeletionTimestamp != nil {
			s.finish(originOf(req.http.Context()), ns.Name)
		}
	}
}

func deleted(o resources.Object) (watch.EventType, resources.Object) {
	return watch.Deleted, o.DeepCopyObject().(resources.Object)
}

// undefine stops serving a custom resource and deletes its objects; open watches see it.
func (s *Server) undefine(by store.Origin, name string) {
	for _, res := range s.registry.Undefine(name) {
		s.colMu.Lock()
		c := s.collections[keyOf(res)]
		delete(s.collections, keyOf(res))
		s.colMu.Unlock()
		if c == nil {
			continue
		}
		for _, it := range c.log.State(c.log.Visible(), "", "") {
			c.edit(by, it.Key, deleted)
		}
	}
}

// Create creates or replaces an object as a client would, and its namespace if needed.
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
	body, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	if err := s.call(http.MethodPost, path, body); !apierrors.IsAlreadyExists(err) {
		return err
	}
	u.SetResourceVersion("")
	if body, err = u.MarshalJSON(); err != nil {
		return err
	}
	return s.call(http.MethodPut, path+"/"+strings.TrimSpace(u.GetName()), body)
}
