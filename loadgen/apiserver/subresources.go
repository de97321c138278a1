package apiserver

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/storm"
)

// post serves a POST to a subresource, or to a resource that is not stored.
func (s *Server) post(req *request) error {
	kind := req.resource.GVK
	if sub, ok := req.resource.Subresource(req.subresource); ok {
		kind = sub.Kind
	}
	o, err := resources.Scheme.New(kind)
	if err != nil {
		return refused(http.StatusNotFound)
	}
	body, err := req.body()
	if err == nil {
		err = req.decode(body, kind, o)
	}
	if err != nil {
		return err
	}
	patch.SetDefaults(o)
	o.GetObjectKind().SetGroupVersionKind(kind)
	m := o.(metav1.Object) // as all kinds that can be posted
	if m.GetNamespace() == "" {
		m.SetNamespace(req.namespace)
	}
	switch o := o.(type) {
	case *v1.Binding:
		return s.bind(req, o)
	case *policyv1.Eviction:
		return s.evict(req, o)
	case *authenticationv1.TokenRequest:
		err = s.issue(req, o)
	default:
		err = req.review(o)
	}
	if err == nil && req.form.Shape().IsTable() {
		err = notAcceptable()
	}
	if err != nil {
		return err
	}
	return req.answerWhole(http.StatusCreated, o)
}

// invalid is the error of a field where a real server has a plain one.
func invalid(err *field.Error) error {
	return patch.Refused(http.StatusInternalServerError, "", err.Error())
}

// bind assigns a pod to a node.
func (s *Server) bind(req *request, b *v1.Binding) error {
	if req.subresource == "" { // a binding itself, which names the pod
		req.resource, _ = s.registry.Lookup("", podResource.Version, podResource.Resource) // always served
		req.name, req.collection = b.Name, s.collection(req.resource)
	}
	switch at := field.NewPath("target"); {
	case b.Name != req.name:
		return apierrors.NewBadRequest("name in URL does not match name in Binding object")
	case b.Target.Kind != "" && b.Target.Kind != "Node":
		return invalid(field.NotSupported(at.Child("kind"), b.Target.Kind, []string{"Node", "<empty>"}))
	case b.Target.Name == "":
		return invalid(field.Required(at.Child("name"), ""))
	}
	err := s.changePod(req, req.http.URL.Query()["dryRun"], func(pod *v1.Pod) error {
		conflict := func(format string, args ...any) error {
			resource := schema.GroupResource{Resource: "pods/binding"} // as a real server has it
			return apierrors.NewConflict(resource, req.name, fmt.Errorf(format, args...))
		}
		switch {
		case b.UID != "" && b.UID != pod.UID:
			return apierrors.NewConflict(podResource.GroupResource(), req.name, fmt.Errorf("precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, pod.UID))
		case pod.DeletionTimestamp != nil:
			return conflict("pod %s is being deleted, cannot be assigned to a host", req.name)
		case pod.Spec.NodeName != "":
			return conflict("pod %s is already assigned to node %q", req.name, pod.Spec.NodeName)
		case len(pod.Spec.SchedulingGates) > 0:
			return conflict("pod %s has non-empty .spec.schedulingGates", req.name)
		}
		pod.Spec.NodeName, pod.Status.NominatedNodeName = b.Target.Name, ""
		for key, value := range b.Annotations {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, key, value)
		}
		for key, value := range b.Labels {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value)
		}
		setCondition(pod, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
		return nil
	})
	if err != nil {
		return err
	}
	return req.succeed(http.StatusCreated, nil)
}

// changePod edits a copy of the pod of the request and stores it.
func (s *Server) changePod(req *request, dryRun []string, edit func(*v1.Pod) error) error {
	_, _, err := s.change(req, dryRun, func(current resources.Object) (patch.Result, error) {
		pod, ok := current.(*v1.Pod)
		if !ok {
			return patch.Result{}, apierrors.NewNotFound(podResource.GroupResource(), req.name)
		}
		pod = pod.DeepCopy()
		return patch.Result{Object: pod}, edit(pod)
	})
	return err
}

// setCondition sets the condition of a pod, as of now.
func setCondition(pod *v1.Pod, c v1.PodCondition) {
	c.LastTransitionTime = metav1.Now()
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, func(old v1.PodCondition) bool { return old.Type == c.Type }), c)
}

// evict deletes a pod unless its disruption budget forbids it (kube-apiserver v1.37.2, pkg/registry/core/pod/storage).
func (s *Server) evict(req *request, e *policyv1.Eviction) error {
	var create metav1.CreateOptions
	if err := decodeQuery(req.http.URL.RawQuery, &create); err != nil {
		return err
	}
	opts := cmp.Or(e.DeleteOptions, &metav1.DeleteOptions{})
	opts.DryRun = append(opts.DryRun, create.DryRun...)
	current, _ := req.log.Get(req.key())
	pod, ok := current.(*v1.Pod)
	switch {
	case e.Name != req.name:
		return apierrors.NewBadRequest("name in URL does not match name in Eviction object")
	case !ok:
		return apierrors.NewNotFound(podResource.GroupResource(), req.name)
	}
	phase := pod.Status.Phase
	if phase != v1.PodSucceeded && phase != v1.PodFailed && phase != v1.PodPending && pod.DeletionTimestamp == nil {
		all := stored[*policyv1.PodDisruptionBudget](s, policyv1.GroupName, "poddisruptionbudgets", req.namespace+"/")
		all = slices.DeleteFunc(all, func(b *policyv1.PodDisruptionBudget) bool {
			selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
			return err != nil || !selector.Matches(labels.Set(pod.Labels))
		})
		if len(all) > 1 { // The status is an answer, not an error.
			return req.answerWhole(http.StatusCreated, &metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
				Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
			})
		}
		for _, b := range all {
			var err error
			s.builtin(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")).edit(originOf(req.http.Context()), storm.ObjectKey(b.Namespace, b.Name), func(current resources.Object) (watch.EventType, resources.Object) {
				budget := current.DeepCopyObject().(*policyv1.PodDisruptionBudget)
				var disrupted bool
				if disrupted, err = disrupt(budget, pod); err != nil || !disrupted || len(opts.DryRun) > 0 {
					return "", nil
				}
				return watch.Modified, budget
			})
			if err != nil {
				return err
			}
		}
	}
	if len(opts.DryRun) == 0 && opts.Preconditions == nil {
		err := s.changePod(req, nil, func(pod *v1.Pod) error {
			setCondition(pod, v1.PodCondition{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"})
			return nil
		})
		if err != nil {
			return err
		}
	}
	if _, err := s.remove(req, opts); err != nil {
		return err
	}
	return req.succeed(http.StatusCreated, nil)
}

// disrupt counts the eviction of a pod in the status of its budget. It returns false if the eviction disrupts nothing, and
// the error of a budget that forbids it.
func disrupt(b *policyv1.PodDisruptionBudget, pod *v1.Pod) (bool, error) {
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
	st, policy := &b.Status, b.Spec.UnhealthyPodEvictionPolicy
	if !ready && (policy != nil && *policy == policyv1.AlwaysAllow || st.CurrentHealthy >= st.DesiredHealthy && st.DesiredHealthy > 0) {
		return false, nil
	}
	c := meta.FindStatusCondition(st.Conditions, policyv1.DisruptionAllowedCondition)
	said := c != nil && c.Status == metav1.ConditionFalse && c.Message != ""
	why := "does not allow evicting pods currently"
	seconds := 0
	switch {
	case st.ObservedGeneration < b.Generation:
		why, seconds = "is still being processed by the server.", 10
	case st.DisruptionsAllowed < 0:
		return false, apierrors.NewForbidden(policyv1.Resource("poddisruptionbudget"), b.Name, errors.New("pdb disruptions allowed is negative"))
	case st.DisruptionsAllowed > 0:
		if st.DisruptionsAllowed--; st.DisruptionsAllowed == 0 {
			meta.SetStatusCondition(&st.Conditions, metav1.Condition{
				Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason, ObservedGeneration: st.ObservedGeneration,
			})
		}
		if st.DisruptedPods == nil {
			st.DisruptedPods = map[string]metav1.Time{}
		}
		st.DisruptedPods[pod.Name] = metav1.Now()
		return true, nil
	case said && c.Reason == policyv1.SyncFailedReason:
		why = "does not allow evicting pods currently because it failed sync: " + c.Message
	case st.CurrentHealthy <= st.DesiredHealthy:
		why = fmt.Sprintf("needs %d healthy pods and has %d currently", st.DesiredHealthy, st.CurrentHealthy)
	case said:
		why = fmt.Sprintf("does not allow evicting pods currently (%s): %s", c.Reason, c.Message)
	}
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", seconds)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget " + b.Name + " " + why})
	return false, err
}

// issue answers with a token of a service account, which the server accepts.
func (s *Server) issue(req *request, t *authenticationv1.TokenRequest) error {
	current, _ := req.log.Get(req.key())
	account, ok := current.(*v1.ServiceAccount)
	seconds, why := *t.Spec.ExpirationSeconds, "" // which has a default
	switch {
	case !ok:
		return apierrors.NewNotFound(req.resource.GVR.GroupResource(), req.name)
	case seconds < 600:
		why = "may not specify a duration less than 10 minutes"
	case seconds > 1<<32:
		why = "may not specify a duration larger than 2^32 seconds"
	}
	if why != "" {
		return apierrors.NewInvalid(t.GroupVersionKind().GroupKind(), "", field.ErrorList{field.Invalid(field.NewPath("spec", "expirationSeconds"), seconds, why)})
	}
	if len(t.Spec.Audiences) == 0 {
		t.Spec.Audiences = []string{issuer}
	}
	details := map[string]any{"namespace": account.Namespace, "serviceaccount": map[string]any{"name": account.Name, "uid": account.UID}}
	if ref := t.Spec.BoundObjectRef; ref != nil {
		resource := map[string]string{"Pod": "pods", "Secret": "secrets", "Node": "nodes"}[ref.Kind]
		res, ok := s.registry.Lookup("", ref.APIVersion, resource)
		if !ok {
			return apierrors.NewBadRequest("cannot bind token to object of type " + schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).String())
		}
		key := ref.Name
		if res.Namespaced {
			key = storm.ObjectKey(req.namespace, ref.Name)
		}
		o, _ := s.collection(res).log.Get(key)
		if o == nil {
			return apierrors.NewNotFound(res.GVR.GroupResource(), ref.Name)
		}
		details[res.Singular] = map[string]any{"name": o.GetName(), "uid": o.GetUID()}
	}
	now := metav1.Now().Rfc3339Copy()
	expires := metav1.NewTime(now.Add(time.Duration(seconds) * time.Second))
	c := claims{
		Audiences: t.Spec.Audiences, Expires: expires.Unix(), Issued: now.Unix(), Issuer: issuer, Kubernetes: details,
		Subject: "system:serviceaccount:" + account.Namespace + ":" + account.Name, UID: string(account.UID),
	}
	t.Name, t.UID, t.CreationTimestamp = account.Name, account.UID, now
	t.Status = authenticationv1.TokenRequestStatus{Token: c.sign(), ExpirationTimestamp: expires}
	return nil
}

// review answers who somebody is, and whether he may do something: everybody may do everything.
func (req *request) review(o any) error {
	var spec authorizationv1.SubjectAccessReviewSpec
	var status *authorizationv1.SubjectAccessReviewStatus
	var errs field.ErrorList
	switch o := o.(type) {
	case *authenticationv1.SelfSubjectReview:
		o.CreationTimestamp, o.Status.UserInfo = metav1.Now().Rfc3339Copy(), *userOf(req.http)
		return nil
	case *authenticationv1.TokenReview:
		if o.Spec.Token == "" {
			return apierrors.NewBadRequest("token is required for TokenReview in authentication")
		}
		find, ok := req.http.Context().Value(authenticatorKey{}).(authenticator)
		if !ok {
			find = verify
		}
		_, user, audiences := find(o.Spec.Token)
		asked := o.Spec.Audiences
		if len(asked) == 0 {
			asked = []string{issuer}
		}
		audiences = slices.DeleteFunc(audiences, func(a string) bool { return !slices.Contains(asked, a) })
		if o.Status = (authenticationv1.TokenReviewStatus{Authenticated: true, User: user, Audiences: audiences}); len(audiences) == 0 {
			o.Status = authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
		}
		return nil
	case *authorizationv1.SelfSubjectRulesReview:
		if o.Spec.Namespace == "" {
			return apierrors.NewBadRequest("no namespace on request")
		}
		all := []string{"*"}
		o.Spec = authorizationv1.SelfSubjectRulesReviewSpec{} // as a real server answers
		o.Status.ResourceRules = []authorizationv1.ResourceRule{{Verbs: all, APIGroups: all, Resources: all}}
		o.Status.NonResourceRules = []authorizationv1.NonResourceRule{{Verbs: all, NonResourceURLs: all}}
		return nil
	case *authorizationv1.SelfSubjectAccessReview:
		spec.ResourceAttributes, spec.NonResourceAttributes, spec.User, status = o.Spec.ResourceAttributes, o.Spec.NonResourceAttributes, "self", &o.Status
	case *authorizationv1.SubjectAccessReview:
		spec, status = o.Spec, &o.Status
	case *authorizationv1.LocalSubjectAccessReview:
		spec, status = o.Spec, &o.Status
		if a := spec.ResourceAttributes; a != nil && a.Namespace != o.Namespace {
			errs = append(errs, field.Invalid(field.NewPath("spec.resourceAttributes.namespace"), a.Namespace, "must match metadata.namespace"))
		}
	default:
		return refused(http.StatusNotFound)
	}
	if (spec.ResourceAttributes == nil) == (spec.NonResourceAttributes == nil) {
		errs = append(errs, field.Invalid(field.NewPath("spec"), spec.NonResourceAttributes, "exactly one of nonResourceAttributes or resourceAttributes must be specified"))
	}
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
	}
	*status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "a simulated server has no authorization"}
	return nil
}
