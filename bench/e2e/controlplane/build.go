// Package controlplane runs a real Kubernetes control plane on loopback, for
// tests and for hand use: etcd and kube-apiserver, and controller-manager and
// scheduler where they are asked for. All of it is built from Go modules that
// are pinned in bench/e2e/build; nothing is downloaded but these.
//
//	programs, err := controlplane.Build(ctx, dir) // minutes when cold, else a second
//	cp, err := controlplane.Start(ctx, programs, controlplane.Options{})
//	defer cp.Stop()
//	client, err := kubernetes.NewForConfig(cp.Config())
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The releases that bench/e2e/build pins.
const (
	KubernetesVersion = "v1.36.3"
	EtcdVersion       = "v3.7.3"
)

// Programs are where the programs of a control plane lie.
type Programs struct {
	Etcd, APIServer, ControllerManager, Scheduler string
}

// Build builds the programs into a folder, those of this release that lie there
// already excepted. It takes some five minutes on two cores when nothing is in
// the build cache, and needs the network for the modules then.
func Build(ctx context.Context, dir string) (Programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("controlplane: %w", err)
	}
	kube, etcd := filepath.Join(dir, "kubernetes-"+KubernetesVersion), filepath.Join(dir, "etcd-"+EtcdVersion)
	p := Programs{
		Etcd:              filepath.Join(etcd, "etcd"),
		APIServer:         filepath.Join(kube, "kube-apiserver"),
		ControllerManager: filepath.Join(kube, "kube-controller-manager"),
		Scheduler:         filepath.Join(kube, "kube-scheduler"),
	}
	for _, b := range []struct{ module, program, pkg, flags string }{
		{"etcd", p.Etcd, "go.etcd.io/etcd/server/v3", "-s -w"},
		{"kube", p.APIServer, "k8s.io/kubernetes/cmd/kube-apiserver", kubernetesFlags()},
		{"kube", p.ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager", kubernetesFlags()},
		{"kube", p.Scheduler, "k8s.io/kubernetes/cmd/kube-scheduler", kubernetesFlags()},
	} {
		if err := build(ctx, b.module, b.program, b.pkg, b.flags); err != nil {
			return Programs{}, fmt.Errorf("controlplane: %w", err)
		}
	}
	return p, nil
}

// kubernetesFlags have the programs say which release they are; without them
// they are v0.0.0, which clients of them doubt.
func kubernetesFlags() string {
	numbers := strings.SplitN(strings.TrimPrefix(KubernetesVersion, "v"), ".", 3)
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{
			"gitVersion=" + KubernetesVersion, "gitMajor=" + numbers[0], "gitMinor=" + numbers[1], "gitTreeState=clean",
		} {
			flags = append(flags, "-X", pkg+"."+v)
		}
	}
	return strings.Join(flags, " ")
}

// build builds one program, under another name until it is whole.
func build(ctx context.Context, module, program, pkg, flags string) error {
	if _, err := os.Stat(program); err == nil {
		return nil
	}
	source, err := sourceDir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	unfinished := fmt.Sprintf("%s.%d", program, os.Getpid())
	defer func() { _ = os.Remove(unfinished) }()
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", flags, "-o", unfinished, pkg)
	cmd.Dir = filepath.Join(source, "build", module)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return os.Rename(unfinished, program)
}

// sourceDir is the folder bench/e2e of the source tree: this program is run
// from one, by go test or go run.
func sourceDir() (string, error) {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return "", errors.New("the source folder is not known: the program was built with -trimpath")
	}
	return filepath.Dir(filepath.Dir(file)), nil
}
