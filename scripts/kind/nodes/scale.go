package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// kwokKey is the annotation and the taint by which KWOK knows its nodes.
	kwokKey  = "kwok.x-k8s.io/node"
	kwokOurs = "fake"
	// ours is the label of those that were made here; nobody else's are touched.
	ours = "watchlab.dev/fake-node"
	// atOnce is how many requests are under way.
	atOnce = 16
)

// scale sees to it that there are n nodes of ours, and returns what it took. It costs a
// list and a request for each node that is missing or too many.
func scale(ctx context.Context, nodes typed.NodeInterface, n int) (made, removed int, err error) {
	want := map[string]bool{}
	for i := range n {
		want[name(i)] = true
	}
	list, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: ours})
	if err != nil {
		return 0, 0, err
	}
	var surplus []string
	for _, node := range list.Items {
		if !want[node.Name] {
			surplus = append(surplus, node.Name)
		}
		delete(want, node.Name)
	}
	missing := make([]string, 0, len(want))
	for name := range want {
		missing = append(missing, name)
	}
	slices.SortFunc(missing, strings.Compare)

	var creates, deletes atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, name := range missing {
		g.Go(func() error {
			_, err := nodes.Create(ctx, node(name), metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("node %s: %w", name, err)
			}
			creates.Add(1)
			return nil
		})
	}
	for _, name := range surplus {
		g.Go(func() error {
			err := nodes.Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("node %s: %w", name, err)
			}
			deletes.Add(1)
			return nil
		})
	}
	err = g.Wait()
	return int(creates.Load()), int(deletes.Load()), err
}

func name(i int) string { return fmt.Sprintf("watchlab-fake-%05d", i) }

// node is one as a kubelet would register it, of a common size.
func node(name string) *corev1.Node {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("32"),
		corev1.ResourceMemory: resource.MustParse("128Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				ours: "true", "type": "kwok",
				corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			},
			Annotations: map[string]string{kwokKey: kwokOurs},
		},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: kwokKey, Value: kwokOurs, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity, Phase: corev1.NodeRunning},
	}
}
