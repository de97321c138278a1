package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"watchlab/bench/lab"
	"watchlab/loadgen/manifest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// PlayOptions configure [Fleet.Play].
type PlayOptions struct {
	Detach      bool             // return after the start
	WaitForPods time.Duration    // limit for a pod's wait for a node or its image
	Hint        func(Pod) string // advice for a waiting pod
	Say         func(string)     // receives what happens, and the command line for what is next
}

// Play starts a run and follows it until it ends. The error wraps [ErrContinues] if ctx ends meanwhile, or
// is one of [Fleet.Start], [Fleet.Follow] or of pods that failed for good.
func (f *Fleet) Play(ctx context.Context, s Spec, o PlayOptions) error {
	ref := s.Ref()
	if err := f.Start(ctx, s); errors.Is(err, ErrExists) {
		return fmt.Errorf("%w (%s deletes it)", err, ref.Command("clean"))
	} else if err != nil {
		return err
	}
	o.Say(fmt.Sprintf("run %s: %s", ref, lab.Plural(s.Plan.Pods, "pod")))
	if o.Detach {
		o.Say(ref.Command("status") + " shows it")
		return nil
	}
	state, err := f.Follow(ctx, ref, o.WaitForPods, o.Hint, o.Say)
	switch {
	case ctx.Err() != nil:
		o.Say(fmt.Sprintf("interrupted; %v; %s shows it", ErrContinues, ref.Command("status")))
		return fmt.Errorf("%w: %w", ErrContinues, ctx.Err())
	case err != nil:
		return err
	}
	o.Say(fmt.Sprintf("run %s has ended; %s merges its results, %s deletes it", ref.Run, ref.Command("collect"), ref.Command("clean")))
	if n := state.Count(Succeeded); n < s.Plan.Pods {
		return fmt.Errorf("%d of %d pods succeeded: %s", n, s.Plan.Pods, strings.Join(state.Unfinished(), "; "))
	}
	return nil
}

// Start creates a run with about ten requests. The pods start later. The error wraps [ErrExists]
// for an existing run, which stays unchanged. After any other error Start deletes its objects.
func (f *Fleet) Start(ctx context.Context, s Spec) error {
	objects, err := Build(s)
	if err != nil {
		return err
	}
	ref := s.Ref()
	if !slices.ContainsFunc(objects, ref.isClaim) {
		return manifest.Bad("overlay", "%q: ConfigMap %s is missing", s.Overlay, ref.object())
	}
	foreign, err := f.foreignNamespace(ctx, s.Namespace)
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	// The name may have objects of an earlier run left.
	left, err := f.first(ctx, configMaps, ref.Namespace, ref.selector())
	switch {
	case err != nil:
		return fmt.Errorf("fleet: %w", err)
	case left != nil:
		return fmt.Errorf("%w: %s (%s %s has its name)", ErrExists, ref, configMaps.Resource, left.Name)
	}
	claimed := false
	for _, u := range objects {
		claim := ref.isClaim(u)
		if foreign && u.GetKind() == "Namespace" && u.GetName() == s.Namespace {
			continue
		}
		err := f.apply(ctx, u, claim)
		switch {
		case claim && apierrors.IsAlreadyExists(err):
			return fmt.Errorf("%w: %s", ErrExists, ref)
		case err != nil && claimed:
			// This run owns the claim, so all objects of the run are its own.
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			return errors.Join(err, f.Clean(clean, ref))
		case err != nil:
			return err
		}
		claimed = claimed || claim
	}
	return nil
}

const undoLimit = time.Minute // timeout for deleting a run that failed to start

// foreignNamespace reports whether the namespace exists with another owner.
func (f *Fleet) foreignNamespace(ctx context.Context, name string) (bool, error) {
	ns, err := f.metadata.Resource(namespaces).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, err
	case ns.DeletionTimestamp != nil:
		return false, fmt.Errorf("namespace %s is being deleted", name)
	}
	return ns.Labels[nameLabel] != appName, nil
}

// first may return nil.
func (f *Fleet) first(ctx context.Context, r schema.GroupVersionResource, namespace, selector string) (*metav1.PartialObjectMetadata, error) {
	list, err := f.metadata.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: 1})
	if err != nil || len(list.Items) == 0 {
		return nil, err
	}
	return &list.Items[0], nil
}

// apply validates fields strictly. It creates a claim, so that an existing one is an error.
func (f *Fleet) apply(ctx context.Context, u *unstructured.Unstructured, claim bool) error {
	kind := u.GroupVersionKind()
	m, err := f.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("fleet: %s %s: %w", kind.Kind, u.GetName(), err)
	}
	var client dynamic.ResourceInterface = f.dynamic.Resource(m.Resource)
	if m.Scope.Name() == meta.RESTScopeNameNamespace {
		client = f.dynamic.Resource(m.Resource).Namespace(u.GetNamespace())
	}
	if claim {
		_, err = client.Create(ctx, u, metav1.CreateOptions{FieldManager: Manager, FieldValidation: metav1.FieldValidationStrict})
	} else if data, failed := u.MarshalJSON(); failed != nil {
		err = failed
	} else {
		_, err = client.Patch(ctx, u.GetName(), types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: Manager, Force: new(true), FieldValidation: metav1.FieldValidationStrict})
	}
	if err != nil {
		return fmt.Errorf("fleet: %s %s: %w", kind.Kind, u.GetName(), err)
	}
	return nil
}
