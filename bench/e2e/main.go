// Command e2e starts a real control plane (package controlplane), prints the path of its
// kubeconfig, and runs until an interrupt. The tests of this folder use the same control plane.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"watchlab/bench/e2e/controlplane"
)

func main() {
	controllers := flag.Bool("controllers", true, "run controller-manager and scheduler too")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "e2e: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if err := run(*controllers); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
		os.Exit(1)
	}
}

func run(controllers bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(os.Stderr, "starting etcd and Kubernetes; the first time builds them for minutes")
	cp, err := controlplane.Start(ctx, controlplane.Options{Controllers: controllers})
	if err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\n", cp.Kubeconfig())
	fmt.Fprintln(os.Stderr, "ready; Ctrl-C stops it and removes its data")
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			err = cp.Ended()
		}
	}
	return errors.Join(err, cp.Stop())
}
