package main

import (
	"context"
	"errors"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The bugs of the patterns of Sieve (Sun et al., OSDI 2022), and their twin without one. Such a controller keeps two
// ConfigMaps for each Widget, which no owner reference deletes.
const (
	careful      = "careful"      // no bug
	twice        = "twice"        // looks into its cache for a ConfigMap with a made-up name, and makes another one
	staleDelete  = "stale-delete" // deletes the ConfigMaps of Widgets that its cache has not, without asking the server
	unobserved   = "unobserved"   // deletes only what belongs to a Widget whose existence this process has seen
	intermediate = "intermediate" // takes the first of two ConfigMaps for both
)

var patterns = []string{careful, twice, staleDelete, unobserved, intermediate}

const (
	secondSuffix = "-second"
	widgetLabel  = "widget"
)

func (c *reconciler) reconcilePattern(ctx context.Context, key string) error {
	if made := c.configMaps.get(key); made != nil {
		key = made.GetNamespace() + "/" + made.GetLabels()[widgetLabel]
	}
	key = strings.TrimSuffix(key, secondSuffix)
	widget := c.widgets.get(key)
	if widget == nil {
		return c.clean(ctx, key)
	}
	c.seen[key] = true
	var first, second *unstructured.Unstructured
	for _, o := range c.made(key) {
		if strings.HasSuffix(o.GetName(), secondSuffix) {
			second = o
		} else {
			first = o
		}
	}
	if first == nil {
		if err := c.create(ctx, widget, ""); err != nil {
			return err
		}
	}
	if second == nil && (first == nil || c.bug != intermediate) {
		if err := c.create(ctx, widget, secondSuffix); err != nil {
			return err
		}
	}
	status := map[string]any{"observedGeneration": widget.GetGeneration()}
	if reflect.DeepEqual(widget.Object["status"], status) {
		return nil
	}
	o := widget.DeepCopy()
	o.Object["status"] = status
	_, err := c.client.Resource(widgets).Namespace(widget.GetNamespace()).UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

// made returns the ConfigMaps of a Widget, by the cache.
func (c *reconciler) made(key string) (out []*unstructured.Unstructured) {
	for _, o := range c.configMaps.List() {
		if o := o.(*unstructured.Unstructured); o.GetNamespace()+"/"+o.GetLabels()[widgetLabel] == key {
			out = append(out, o)
		}
	}
	return out
}

func (c *reconciler) create(ctx context.Context, widget *unstructured.Unstructured, suffix string) error {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	o.SetLabels(map[string]string{widgetLabel: widget.GetName()})
	if o.SetName(widget.GetName() + suffix); c.bug == twice && suffix == "" {
		o.SetName("")
		o.SetGenerateName(widget.GetName() + "-")
	}
	_, err := c.client.Resource(configMaps).Namespace(widget.GetNamespace()).Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

var errBehind = errors.New("the cache is behind")

// clean deletes the ConfigMaps of a Widget that is gone.
func (c *reconciler) clean(ctx context.Context, key string) error {
	made := c.made(key)
	if len(made) == 0 || c.bug == unobserved && !c.seen[key] {
		return nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	if c.bug != staleDelete {
		if _, err := c.client.Resource(widgets).Namespace(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			return errBehind
		} else if !apierrors.IsNotFound(err) {
			return err
		}
	}
	for _, o := range made {
		err := c.client.Resource(configMaps).Namespace(namespace).Delete(ctx, o.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
