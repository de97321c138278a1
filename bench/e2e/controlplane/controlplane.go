// Package controlplane runs a real Kubernetes control plane on the loopback interface during a test:
// etcd and kube-apiserver, optionally with controller-manager and scheduler. scripts/tools pins the
// programs. The first build takes minutes.
//
//	cp := controlplane.ForTest(t, controlplane.Options{})
//	client, err := kubernetes.NewForConfig(cp.Config())
package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

// ControlPlane is a running control plane.
type ControlPlane struct {
	*server.Plane
	dir     string // of logs
	release string
}

// ForTest starts a control plane and stops it when the test ends.
func ForTest(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	if opts.APIServer == "" {
		opts.APIServer = programs.Pinned(t, "kube-apiserver")
	}
	c := &ControlPlane{dir: t.TempDir(), release: programs.Version(opts.APIServer)}
	fail := func(err error) {
		if err != nil {
			t.Fatalf("control plane: %v", err)
		}
	}
	var flags []string
	if opts.Audited != "" {
		fail(os.WriteFile(filepath.Join(c.dir, "audit.yaml"), fmt.Appendf(nil, auditPolicy, opts.Audited), 0o600))
		flags = append(flags, "--audit-policy-file", filepath.Join(c.dir, "audit.yaml"), "--audit-log-path", c.AuditLog())
	}
	ctx := context.WithoutCancel(t.Context())
	plane, err := server.Start(ctx, server.PlaneOptions{Etcd: programs.Pinned(t, "etcd"), APIServer: opts.APIServer, Logs: c.dir, Flags: flags})
	fail(err)
	c.Plane = plane
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("control plane: %v", err)
		}
	})
	if opts.Controllers {
		ports, err := program.FreePorts(2)
		fail(err)
		common := []string{"--kubeconfig", c.Kubeconfig(), "--bind-address", "127.0.0.1", "--leader-elect=false", "--authentication-skip-lookup", "--secure-port"}
		fail(c.Run(ctx, slices.Concat([]string{programs.Pinned(t, "kube-controller-manager")}, common, []string{strconv.Itoa(ports[0]),
			"--service-account-private-key-file", c.Path("sa.key"), "--root-ca-file", c.Path("apiserver.crt")})...))
		fail(c.Run(ctx, slices.Concat([]string{programs.Pinned(t, "kube-scheduler")}, common, []string{strconv.Itoa(ports[1])})...))
	}
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
