// Package controlplane runs a real Kubernetes control plane on the loopback interface,
// for tests and for manual use: etcd and kube-apiserver, optionally with
// controller-manager and scheduler. scripts/tools pins the programs.
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{}) // builds for minutes the first time
//	defer cp.Stop()
//	client, err := kubernetes.NewForConfig(cp.Config())
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"watchlab/bench/controller/program"
	"watchlab/bench/controller/server"
	"watchlab/bench/e2e/programs"
)

// Options configure a control plane.
type Options struct {
	Controllers bool   // start controller-manager and scheduler too
	Audited     string // a group of users whose requests are in AuditLog; empty for none
	APIServer   string // path of another kube-apiserver than the pinned one
}

// ControlPlane is a running control plane. Its files are in temporary folders that Stop removes.
type ControlPlane struct {
	*server.Plane
	dir     string // of logs
	release string
	stop    func() error // once
}

// Start starts a control plane and returns when it is ready. It ends by Stop, not with ctx. On an error Start stops all
// programs.
func Start(ctx context.Context, opts Options) (_ *ControlPlane, err error) {
	paths := map[string]string{"kube-apiserver": opts.APIServer}
	names := []string{"etcd", "kube-apiserver"}
	if opts.Controllers {
		names = append(names, "kube-controller-manager", "kube-scheduler")
	}
	for _, name := range names {
		if paths[name] == "" {
			if paths[name], err = programs.Path(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	c := &ControlPlane{release: programs.Version(paths["kube-apiserver"])}
	c.stop = sync.OnceValue(c.end)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("controlplane: %w", err), c.Stop())
		}
	}()
	if c.dir, err = os.MkdirTemp("", "watchlab-control-plane-"); err != nil {
		return nil, err
	}
	var flags []string
	if opts.Audited != "" {
		if err := os.WriteFile(filepath.Join(c.dir, "audit.yaml"), fmt.Appendf(nil, auditPolicy, opts.Audited), 0o600); err != nil {
			return nil, err
		}
		flags = append(flags, "--audit-policy-file", filepath.Join(c.dir, "audit.yaml"), "--audit-log-path", c.AuditLog())
	}
	c.Plane, err = server.Start(context.WithoutCancel(ctx), server.PlaneOptions{
		Etcd: paths["etcd"], APIServer: paths["kube-apiserver"], Logs: c.dir, Flags: flags,
	})
	if err != nil {
		return nil, err
	}
	ports, err := program.FreePorts(2)
	if err != nil {
		return nil, err
	}
	for i, name := range names[2:] {
		command := []string{paths[name], "--kubeconfig", c.Kubeconfig(), "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(ports[i]),
			"--leader-elect=false", "--authentication-skip-lookup"}
		if name == "kube-controller-manager" {
			command = append(command, "--service-account-private-key-file", c.Path("sa.key"), "--root-ca-file", c.Path("apiserver.crt"))
		}
		if err := c.Run(context.WithoutCancel(ctx), command...); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// ForTest starts a control plane and stops it when the test ends.
func ForTest(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	c, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	return c
}

// Release returns the Kubernetes release of the API server.
func (c *ControlPlane) Release() string { return c.release }

// Kubeconfig returns the path of the administrator's kubeconfig. Its context is "watchlab".
func (c *ControlPlane) Kubeconfig() string { return c.Path("kubeconfig") }

// AuditLog returns the path of the API server's audit log, one event of audit.k8s.io/v1 a line.
func (c *ControlPlane) AuditLog() string { return filepath.Join(c.dir, "audit.log") }

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [%q]
- level: None
`

// Stop stops all components in reverse order and removes the folders. Further calls
// return the first call's error.
func (c *ControlPlane) Stop() error { return c.stop() }

func (c *ControlPlane) end() (err error) {
	if c.Plane != nil {
		err = c.Plane.Stop()
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
