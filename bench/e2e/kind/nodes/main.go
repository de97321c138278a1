// Nodes creates and deletes fake nodes, which have no kubelet, until a cluster has
// --count of them.
//
//	go run ./kind/nodes --context kind-watchlab --count 1000
//
// --count 0 deletes all fake nodes. Other nodes stay unchanged.
//
// KWOK, which the overlay kwok deploys, renews the nodes' leases and reports their
// status. Thousands of fake nodes cause the watch streams of thousands of kubelets. A
// taint keeps ordinary pods away.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// most is the largest --count: twice what Kubernetes supports.
const most = 10_000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code: 2 for bad input, 1 for an error of the cluster.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fl := flag.NewFlagSet("nodes", flag.ContinueOnError)
	fl.SetOutput(stderr)
	kubeconfig := fl.String("kubeconfig", "", "kubeconfig file (default: as kubectl finds it)")
	inContext := fl.String("context", "", "context of the kubeconfig")
	count := fl.Int("count", 1000, "number of nodes")
	if err := fl.Parse(args); err != nil {
		return 2
	}
	bad := func(flag string, err error) int {
		fmt.Fprintf(stderr, "nodes: %s: %v\n", flag, err)
		return 2
	}
	switch {
	case *inContext == "":
		return bad("--context", errors.New("name the cluster that is written to"))
	case *count < 0 || *count > most:
		return bad("--count", fmt.Errorf("%d is not allowed (allowed: 0 to %d)", *count, most))
	case fl.NArg() > 0:
		return bad(fl.Arg(0), errors.New("no arguments are accepted"))
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = *kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: *inContext}).ClientConfig()
	if err != nil {
		return bad("--context", err)
	}
	config.QPS, config.Burst = 500, 500
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return bad("--context", err)
	}
	made, removed, err := scale(ctx, client.CoreV1().Nodes(), *count)
	if err != nil {
		fmt.Fprintf(stderr, "nodes: %v\n", err)
		return 1
	}
	fmt.Fprintf(stdout, "%d nodes without kubelets: %d made, %d removed\n", *count, made, removed)
	return 0
}

const (
	// kwokKey is the annotation and the taint by which KWOK knows its nodes.
	kwokKey  = "kwok.x-k8s.io/node"
	kwokOurs = "fake"
	// ours labels the nodes that scale may delete.
	ours = "watchlab.dev/fake-node"
	// atOnce is the number of concurrent requests.
	atOnce = 16
)

// scale creates or deletes fake nodes until there are n. It returns the numbers of
// created and deleted nodes. Cost: one list, and one request per node.
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
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		g.Go(func() error {
			_, err := nodes.Create(ctx, node(name), metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("node %s: %w", name, err)
			}
			return nil
		})
	}
	for _, name := range surplus {
		g.Go(func() error {
			err := nodes.Delete(ctx, name, metav1.DeleteOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("node %s: %w", name, err)
			}
			return nil
		})
	}
	return len(want), len(surplus), g.Wait()
}

func name(i int) string { return fmt.Sprintf("watchlab-fake-%05d", i) }

// node returns a node of a common size, in the form that a kubelet registers.
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
