package main

import (
	"context"
	"errors"
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

const (
	secondSuffix = "-second"
	widgetLabel  = "widget"
	aConfigMap   = "{apiVersion: v1, kind: ConfigMap}"
)

func (c *reconciler) reconcilePattern(ctx context.Context, key string) error {
	widget := c.stores[widgets].get(key)
	if widget == nil {
		return c.clean(ctx, key)
	}
	c.seen[key] = true
	var first, second *unstructured.Unstructured
	for _, o := range c.stores[configMaps].of(key) {
		if strings.HasSuffix(o.GetName(), secondSuffix) {
			second = o
		} else {
			first = o
		}
	}
	name := widget.GetName()
	if c.bug == twice {
		name += "-"
	}
	if first == nil {
		if _, err := c.create(ctx, configMaps, widget, name, aConfigMap); err != nil {
			return err
		}
	}
	if second == nil && (first == nil || c.bug != intermediate) {
		if _, err := c.create(ctx, configMaps, widget, widget.GetName()+secondSuffix, aConfigMap); err != nil {
			return err
		}
	}
	return c.setStatus(ctx, widget, map[string]any{"observedGeneration": widget.GetGeneration()})
}

func (c *reconciler) setStatus(ctx context.Context, widget *unstructured.Unstructured, status map[string]any) error {
	if reflect.DeepEqual(widget.Object["status"], status) {
		return nil
	}
	o := widget.DeepCopy()
	o.Object["status"] = status
	_, err := c.client.Resource(widgets).Namespace(widget.GetNamespace()).UpdateStatus(ctx, o, metav1.UpdateOptions{})
	return err
}

var errBehind = errors.New("the cache is behind")

// clean deletes the ConfigMaps of a Widget that is gone.
func (c *reconciler) clean(ctx context.Context, key string) error {
	made := c.stores[configMaps].of(key)
	if len(made) == 0 || c.bug == unobserved && !c.seen[key] {
		return nil
	}
	namespace, name, _ := strings.Cut(key, "/")
	if c.bug != staleDelete {
		if err := c.gone(ctx, widgets, namespace, name); err != nil {
			return err
		}
	}
	for _, o := range made {
		if err := c.remove(ctx, configMaps, namespace, o.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// gone asks the server, past the cache, whether an object is gone.
func (c *reconciler) gone(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	_, err := c.client.Resource(r).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		return errBehind
	}
	return unlessNotFound(err)
}

func (c *reconciler) remove(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	return unlessNotFound(c.client.Resource(r).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}))
}

func unlessNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
