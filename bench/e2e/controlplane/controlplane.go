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
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"watchlab/bench/e2e/programs"
	"watchlab/loadgen/apiserver"
)

const (
	// readyTime is the time limit of the API server's start: 3 s on a quiet machine.
	readyTime = 2 * time.Minute
	// stopTime is the time between SIGTERM and SIGKILL.
	stopTime = 10 * time.Second

	loopback = "127.0.0.1"
)

// Options configure a control plane.
type Options struct {
	Controllers bool   // start controller-manager and scheduler too
	Audited     string // a group of users whose requests are in AuditLog; empty for none
	APIServer   string // path of another kube-apiserver than the pinned one
	Gates       string // --feature-gates of kube-apiserver; empty for the defaults
}

// ControlPlane is a running control plane. Its files are in a temporary folder that Stop removes.
type ControlPlane struct {
	dir     string
	config  *rest.Config
	etcd    string // URL
	release string
	// apiserver is the process id of kube-apiserver.
	apiserver int
	stop      func() error // once

	mu sync.Mutex
	// processes are in the order of their first start. Guarded by mu.
	processes []*programs.Process
}

// tailSize is the kept output of a component, in bytes.
const tailSize = 8 << 10

// Start starts a control plane and returns when it is ready. It listens on free ports
// of the loopback interface, with its own certificates and token. etcd does not sync its
// data to disk. On an error Start stops all programs.
func Start(ctx context.Context, opts Options) (_ *ControlPlane, err error) {
	dir, err := os.MkdirTemp("", "watchlab-control-plane-")
	if err != nil {
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	c := &ControlPlane{dir: dir}
	c.stop = sync.OnceValue(c.end)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("controlplane: %w", err), c.Stop())
		}
	}()
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	if err := c.credentials("https://" + address(ports[0])); err != nil {
		return nil, err
	}
	etcd, peer := "http://"+address(ports[1]), "http://"+address(ports[2])
	c.etcd = etcd
	args := map[string][]string{
		"etcd": {
			"--name", "watchlab", "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
			"--quota-backend-bytes", strconv.Itoa(4 << 30),
			"--listen-client-urls", etcd, "--advertise-client-urls", etcd,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "watchlab=" + peer,
		},
		// The reconciler is off: endpoints of the service kubernetes cannot be loopback addresses.
		"kube-apiserver": {
			"--etcd-servers", etcd,
			"--bind-address", loopback, "--advertise-address", loopback, "--secure-port", strconv.Itoa(ports[0]),
			"--endpoint-reconciler-type", "none", "--allow-privileged=true",
			"--tls-cert-file", c.path("apiserver.crt"), "--tls-private-key-file", c.path("apiserver.key"),
			"--token-auth-file", c.path("tokens.csv"), "--anonymous-auth=false", "--authorization-mode", "RBAC",
			"--service-account-issuer", "https://kubernetes.default.svc",
			"--service-account-key-file", c.path("sa.key"), "--service-account-signing-key-file", c.path("sa.key"),
			"--service-cluster-ip-range", "10.96.0.0/16",
		},
		"kube-controller-manager": {
			"--kubeconfig", c.Kubeconfig(), "--bind-address", loopback, "--secure-port", strconv.Itoa(ports[3]),
			"--leader-elect=false", "--service-account-private-key-file", c.path("sa.key"), "--root-ca-file", c.path("apiserver.crt"),
			"--authentication-skip-lookup",
		},
		"kube-scheduler": {
			"--kubeconfig", c.Kubeconfig(), "--bind-address", loopback, "--secure-port", strconv.Itoa(ports[4]),
			"--leader-elect=false", "--authentication-skip-lookup",
		},
	}
	if opts.Audited != "" {
		policy, err := c.auditPolicy(opts.Audited)
		if err != nil {
			return nil, err
		}
		args["kube-apiserver"] = append(args["kube-apiserver"], "--audit-policy-file", policy, "--audit-log-path", c.AuditLog())
	}
	if opts.Gates != "" {
		args["kube-apiserver"] = append(args["kube-apiserver"], "--feature-gates", opts.Gates)
	}
	components := []string{"etcd", "kube-apiserver"}
	if opts.Controllers {
		components = append(components, "kube-controller-manager", "kube-scheduler")
	}
	for _, name := range components {
		program, err := opts.APIServer, error(nil)
		if name != "kube-apiserver" || program == "" {
			program, err = programs.Path(ctx, name)
		}
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(program, args[name]...)
		cmd.Dir = c.dir
		p, err := programs.Run(cmd, tailSize)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.processes = append(c.processes, p)
		c.mu.Unlock()
		if name != "kube-apiserver" {
			continue
		}
		c.release = programs.Version(program)
		c.apiserver = p.Process.Pid
		if err := c.ready(ctx); err != nil {
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

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// freePorts returns n free ports. Another program may take one before use; the component
// then ends with an error.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", address(0))
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // Keep all open until the end: the ports must differ.
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// Config returns a copy of the administrator's client configuration.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// EtcdURL returns the client URL of etcd, without TLS.
func (c *ControlPlane) EtcdURL() string { return c.etcd }

// Release returns the Kubernetes release of the API server.
func (c *ControlPlane) Release() string { return c.release }

// APIServer returns the process id of kube-apiserver.
func (c *ControlPlane) APIServer() int { return c.apiserver }

// Kubeconfig returns the path of the administrator's kubeconfig. Its context is "watchlab".
func (c *ControlPlane) Kubeconfig() string { return c.path("kubeconfig") }

// credentials writes the API server's certificate, the signing key of service account
// tokens, and the administrator's token and kubeconfig.
func (c *ControlPlane) credentials(host string) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey(loopback, []net.IP{net.IPv6loopback, net.IPv4(10, 96, 0, 1)},
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"})
	if err != nil {
		return err
	}
	accounts, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	token := rand.Text()
	for name, data := range map[string][]byte{
		"apiserver.crt": certificate, "apiserver.key": key, "sa.key": accounts,
		"tokens.csv": []byte(token + `,admin,admin,"system:masters"` + "\n"),
	} {
		if err := os.WriteFile(c.path(name), data, 0o600); err != nil {
			return err
		}
	}
	c.config = &rest.Config{Host: host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
	return apiserver.WriteKubeconfig(c.Kubeconfig(), apiserver.Kubeconfig{Server: host, CA: certificate, Token: token}, false)
}

// AuditLog returns the path of the API server's audit log, one event of audit.k8s.io/v1 a line.
func (c *ControlPlane) AuditLog() string { return c.path("audit.log") }

func (c *ControlPlane) auditPolicy(group string) (path string, err error) {
	path = c.path("audit.yaml")
	return path, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [%q]
- level: None
`, group), 0o600)
}

// ready waits until the API server is ready, at most readyTime. It returns early if a
// component ends.
func (c *ControlPlane) ready(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		if err := c.Ended(); err != nil {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		}
	}
}

// Stop stops all components in reverse order and removes the folder. Further calls
// return the first call's error.
func (c *ControlPlane) Stop() error { return c.stop() }

func (c *ControlPlane) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range slices.Backward(c.processes) {
		p.End(syscall.SIGTERM, stopTime)
	}
	return os.RemoveAll(c.dir)
}

// Ended returns an error with the output of a component that ended before Stop. Otherwise it returns nil.
func (c *ControlPlane) Ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		select {
		case <-p.Done:
			return fmt.Errorf("controlplane: %s: %v:\n%s", p.Path, p.ProcessState, p.Output)
		default:
		}
	}
	return nil
}
