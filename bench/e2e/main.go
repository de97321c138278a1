// Command e2e builds and runs a real control plane (see package controlplane)
// until it is interrupted, and prints where its kubeconfig lies.
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
	dir := flag.String("programs", "", "folder for the programs that are built")
	controllers := flag.Bool("controllers", true, "run the controller-manager and the scheduler too")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "e2e: --programs FOLDER is all that it takes, and --controllers=false")
		os.Exit(2)
	}
	if err := run(*dir, *controllers); err != nil {
		fmt.Fprintf(os.Stderr, "e2e: %v\n", err)
		os.Exit(1)
	}
}

func run(dir string, controllers bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Fprintln(os.Stderr, "building etcd and Kubernetes "+controlplane.KubernetesVersion+" (minutes the first time)")
	programs, err := controlplane.Build(ctx, dir)
	if err != nil {
		return err
	}
	cp, err := controlplane.Start(ctx, programs, controlplane.Options{Controllers: controllers})
	if err != nil {
		return err
	}
	fmt.Printf("export KUBECONFIG=%s\n", cp.Kubeconfig())
	fmt.Fprintln(os.Stderr, "ready; Ctrl-C ends it and removes all that it holds")
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
			if err := cp.Ended(); err != nil {
				return errors.Join(err, cp.Stop())
			}
		}
	}
	return cp.Stop()
}
