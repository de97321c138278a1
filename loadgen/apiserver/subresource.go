package apiserver

import (
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
)

// serveSubresource serves a subresource.
func (s *Server) serveSubresource(req *request, verb string) error {
	switch {
	case verb == resources.Get && req.subresource == resources.Scale:
		o, _ := req.log.Get(req.key())
		if o == nil {
			return apierrors.NewNotFound(req.resource.GVR.GroupResource(), req.name)
		}
		scale, err := s.editor.Scale(req.resource, req.show(o))
		if err != nil {
			return err
		}
		return req.answerWhole(http.StatusOK, scale)
	case verb == resources.Get:
		return s.get(req)
	case verb == resources.Update:
		return s.update(req)
	case verb == resources.Patch:
		return s.patch(req)
	case verb == resources.Create && req.subresource == resources.Binding:
		return s.bind(req)
	case verb == resources.Create && req.subresource == resources.Eviction:
		return s.evict(req)
	default:
		return notAllowed()
	}
}

// bind assigns a pod to a node.
func (s *Server) bind(req *request) error {
	var b v1.Binding
	if err := req.readInto(&b, v1.SchemeGroupVersion.WithKind("Binding")); err != nil {
		return err
	}
	if b.Target.Name == "" {
		return apierrors.NewBadRequest("target.name: Required value")
	}
	conflict := func(format string, args ...any) (patch.Result, error) {
		return patch.Result{}, apierrors.NewConflict(podResource.GroupResource(), req.name, fmt.Errorf(format, args...))
	}
	own := *req
	own.w, own.subresource = &recorder{header: http.Header{}}, ""
	err := s.change(&own, req.http.URL.Query()["dryRun"], func(current runtime.Object) (patch.Result, error) {
		pod, ok := current.(*v1.Pod)
		switch {
		case !ok:
			return patch.Result{}, apierrors.NewNotFound(podResource.GroupResource(), req.name)
		case b.UID != "" && b.UID != pod.UID:
			return conflict("precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, pod.UID)
		case pod.DeletionTimestamp != nil:
			return conflict("pod %s is being deleted, cannot be assigned to a host", req.name)
		case pod.Spec.NodeName != "":
			return conflict("pod %s is already assigned to node %q", req.name, pod.Spec.NodeName)
		}
		pod = pod.DeepCopy()
		pod.Spec.NodeName = b.Target.Name
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{
			Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(s.editor.Now()),
		})
		return patch.Result{Object: pod}, nil
	})
	if err != nil {
		return err
	}
	return req.succeed(http.StatusCreated, nil)
}

// evict deletes a pod. Disruption budgets are not simulated.
func (s *Server) evict(req *request) error {
	var e policyv1.Eviction
	if err := req.readInto(&e, policyv1.SchemeGroupVersion.WithKind("Eviction")); err != nil {
		return err
	}
	var create metav1.CreateOptions
	if err := decodeQuery(req.http.URL.RawQuery, &create); err != nil {
		return err
	}
	opts := &metav1.DeleteOptions{}
	if e.DeleteOptions != nil {
		opts = e.DeleteOptions
	}
	opts.DryRun = append(opts.DryRun, create.DryRun...)
	if _, err := s.remove(req, opts); err != nil {
		return err
	}
	return req.succeed(http.StatusCreated, nil)
}

// review answers access reviews: everything is allowed.
func (s *Server) review(req *request) error {
	o := req.resource.NewObject()
	if err := req.readInto(o, req.resource.GVK); err != nil {
		return err
	}
	allowed := authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "a simulated server has no authorization"}
	switch o := o.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		o.Status = allowed
	case *authorizationv1.SubjectAccessReview:
		o.Status = allowed
	case *authorizationv1.LocalSubjectAccessReview:
		o.Status = allowed
	case *authorizationv1.SelfSubjectRulesReview:
		all := []string{"*"}
		o.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}}
		o.Status.NonResourceRules = []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}}
	default:
		return notFound()
	}
	o.GetObjectKind().SetGroupVersionKind(req.resource.GVK)
	return req.answerWhole(http.StatusCreated, o)
}
