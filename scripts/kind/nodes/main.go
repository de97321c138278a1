// Nodes has so many nodes in a cluster that no machine stands behind: KWOK, which
// overlay kwok brings, renews their leases and tells of their status, so that thousands
// of them make the watch streams that thousands of kubelets would.
//
//	go run ./scripts/kind/nodes --context kind-watchlab --count 1000
//
// Nodes that are there stay, missing ones are made, others of ours are removed: --count 0
// leaves none. They carry a taint, so that no pod is bound to one unless it tolerates that.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// most is how many nodes may be asked for: as many as Kubernetes is made for, twice.
const most = 10_000

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code: 2 for bad input, 1 where the cluster refuses something.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	fl := flag.NewFlagSet("nodes", flag.ContinueOnError)
	fl.SetOutput(stderr)
	kubeconfig := fl.String("kubeconfig", "", "kubeconfig file (default: as kubectl finds it)")
	inContext := fl.String("context", "", "context of the kubeconfig")
	count := fl.Int("count", 1000, "how many nodes there are to be")
	if err := fl.Parse(args); err != nil {
		return 2
	}
	bad := func(flag string, err error) int {
		fmt.Fprintf(stderr, "nodes: %s: %v\n", flag, err)
		return 2
	}
	switch {
	case *inContext == "":
		return bad("--context", errors.New("this writes into a cluster, and needs to be told which"))
	case *count < 0 || *count > most:
		return bad("--count", fmt.Errorf("%d is not allowed (allowed: 0 to %d)", *count, most))
	case fl.NArg() > 0:
		return bad(fl.Arg(0), errors.New("no argument is taken"))
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
