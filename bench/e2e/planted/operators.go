package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/yaml"
)

// The second controllers of the patterns. Each is an operator of its own shape with a bug, and without it if it is fixed.
const (
	scaleDown = "scale-down" // stale: deletes the claims of replicas that its cache does not ask for
	release   = "release"    // unobserved: deletes the Service of a pod that it sees ending, and of no other
	secret    = "secret"     // intermediate: makes a Secret, and then notes its made-up name in the status
	rerun     = "rerun"      // twice: makes a Job with a made-up name for a generation, unless the status has that
)

// operator is what a controller of a pattern watches, and how it reconciles a key.
type operator struct {
	watched   []schema.GroupVersionResource
	reconcile func(*reconciler, context.Context, string) error
	owns      bool // its Widgets own what it makes for them
}

var first = operator{[]schema.GroupVersionResource{widgets, configMaps}, (*reconciler).reconcilePattern, false}

var operators = map[string]operator{
	careful: first, twice: first, staleDelete: first, unobserved: first, intermediate: first,
	scaleDown: {[]schema.GroupVersionResource{widgets, pods, claims}, (*reconciler).scale, true},
	release:   {[]schema.GroupVersionResource{pods, services}, (*reconciler).serve, true},
	secret:    {[]schema.GroupVersionResource{widgets}, (*reconciler).credentials, true},
	rerun:     {[]schema.GroupVersionResource{widgets, jobs}, (*reconciler).runJob, true},
}

var (
	core                            = schema.GroupVersion{Version: "v1"}
	pods, claims, services, secrets = core.WithResource("pods"), core.WithResource("persistentvolumeclaims"), core.WithResource("services"), core.WithResource("secrets")
	jobs                            = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

// What the operators make.
const (
	aClaim   = "{apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	aPod     = "{apiVersion: v1, kind: Pod, spec: {containers: [{name: main, image: example.com/main}]}}"
	aService = "{apiVersion: v1, kind: Service, spec: {ports: [{port: 80}], selector: {app: main}}}"
	aSecret  = "{apiVersion: v1, kind: Secret, stringData: {user: main}}"
	aJob     = "{apiVersion: batch/v1, kind: Job, metadata: {annotations: {run: %q}}, " +
		"spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: example.com/main}]}}}}"
)

// scale keeps a claim and a pod for each replica of a Widget, with the replica's number in their names.
func (c *reconciler) scale(ctx context.Context, key string) error {
	widget := c.stores[widgets].get(key)
	if widget == nil {
		return nil // The garbage collector deletes them.
	}
	namespace := widget.GetNamespace()
	replicas, _, _ := unstructured.NestedInt64(widget.Object, "spec", "replicas")
	for i := range replicas {
		name := fmt.Sprintf("%s-%d", widget.GetName(), i)
		for resource, content := range map[schema.GroupVersionResource]string{claims: aClaim, pods: aPod} {
			if c.stores[resource].get(namespace+"/"+name) == nil {
				if _, err := c.create(ctx, resource, widget, name, content); err != nil {
					return err
				}
			}
		}
	}
	for _, claim := range c.stores[claims].of(key) {
		name := claim.GetName()
		if n, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 64); err != nil || n < replicas {
			continue
		}
		if c.fixed {
			now, err := c.client.Resource(widgets).Namespace(namespace).Get(ctx, widget.GetName(), metav1.GetOptions{})
			if err != nil || now.GetResourceVersion() != widget.GetResourceVersion() {
				return errBehind
			}
		}
		if err := errors.Join(c.remove(ctx, pods, namespace, name), c.remove(ctx, claims, namespace, name)); err != nil {
			return err
		}
	}
	return nil
}

// serve keeps a Service for each pod.
func (c *reconciler) serve(ctx context.Context, key string) error {
	pod, service := c.stores[pods].get(key), c.stores[services].get(key)
	namespace, name, _ := strings.Cut(key, "/")
	ending := pod != nil && pod.GetDeletionTimestamp() != nil
	switch {
	case service == nil && pod != nil && !ending:
		_, err := c.create(ctx, services, pod, name, aService)
		return err
	case service == nil || !ending && (pod != nil || !c.fixed):
		return nil
	case pod == nil:
		if err := c.gone(ctx, pods, namespace, name); err != nil {
			return err
		}
	}
	return c.remove(ctx, services, namespace, name)
}

// credentials keeps a Secret for each Widget, whose status has its name.
func (c *reconciler) credentials(ctx context.Context, key string) error {
	widget := c.stores[widgets].get(key)
	if widget == nil {
		return nil
	}
	switch name, _, _ := unstructured.NestedString(widget.Object, "status", "secret"); {
	case name == "" && c.fixed:
		return c.setStatus(ctx, widget, map[string]any{"secret": widget.GetName() + "-" + rand.String(5)}) // The change comes back.
	case c.fixed:
		_, err := c.create(ctx, secrets, widget, name, aSecret)
		return err
	case name == "":
		made, err := c.create(ctx, secrets, widget, widget.GetName()+"-", aSecret)
		if err != nil {
			return err
		}
		return c.setStatus(ctx, widget, map[string]any{"secret": made.GetName()})
	}
	return nil
}

// runJob makes a Job for each generation of a Widget and deletes those of earlier ones.
func (c *reconciler) runJob(ctx context.Context, key string) error {
	widget := c.stores[widgets].get(key)
	if widget == nil {
		return nil
	}
	generation := widget.GetGeneration()
	if run, _, _ := unstructured.NestedInt64(widget.Object, "status", "run"); run != generation {
		name, number := widget.GetName()+"-", strconv.FormatInt(generation, 10)
		if c.fixed {
			name += number
		}
		if _, err := c.create(ctx, jobs, widget, name, fmt.Sprintf(aJob, number)); err != nil {
			return err
		}
		c.queue.AddAfter(key, 500*time.Millisecond)
		return c.setStatus(ctx, widget, map[string]any{"run": generation})
	}
	for _, job := range c.stores[jobs].of(key) {
		if run, err := strconv.ParseInt(job.GetAnnotations()["run"], 10, 64); err == nil && run < generation {
			if err := c.remove(ctx, jobs, job.GetNamespace(), job.GetName()); err != nil {
				return err
			}
		}
	}
	return nil
}

// create makes an object for another one, which owns it if that is an operator's Widget. The server completes a name with
// a dash at its end.
func (c *reconciler) create(ctx context.Context, r schema.GroupVersionResource, of *unstructured.Unstructured, name, content string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(content), &o.Object); err != nil {
		return nil, err
	}
	o.SetLabels(map[string]string{widgetLabel: of.GetName()})
	if o.SetName(name); strings.HasSuffix(name, "-") {
		o.SetName("")
		o.SetGenerateName(name)
	}
	if c.operator.owns && of.GetKind() == "Widget" {
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(of, widgets.GroupVersion().WithKind("Widget"))})
	}
	made, err := c.client.Resource(r).Namespace(of.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return o, nil
	}
	return made, err
}
