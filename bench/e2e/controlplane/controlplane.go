package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Options say what is started.
type Options struct {
	Controllers bool

	APIServerFlags []string
}

const (
	// readyTime is how long the API server may take to be ready, on a machine
	// that has other things to do; it takes 3 s on a quiet one.
	readyTime = 2 * time.Minute
	// stopTime is how long a program may take to stop before it is killed.
	stopTime = 10 * time.Second
)

// ControlPlane is one that runs. It has a folder of its own below the
// temporary one, which Stop removes.
type ControlPlane struct {
	dir    string
	config *rest.Config
	etcd   string
	stop   sync.Once

	stopErr error

	mu sync.Mutex

	processes []*process
}

// Start starts a control plane and returns when it is ready. It listens on
// ports of loopback that were free, with certificates of its own and a token
// that only its kubeconfig has. etcd does not wait for the disk, as what it keeps
// is thrown away: it survives the end of its process (see [ControlPlane.Kill]),
// not that of the machine. On an error nothing is left running.
func Start(ctx context.Context, p Programs, opts Options) (_ *ControlPlane, err error) {
	dir, err := os.MkdirTemp("", "watchlab-control-plane-")
	if err != nil {
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	c := &ControlPlane{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("controlplane: %w", err), c.Stop())
		}
	}()
	ports, err := freePorts(5)
	if err != nil {
		return nil, err
	}
	token, err := c.credentials()
	if err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(c.path("ca.crt"))
	if err != nil {
		return nil, err
	}
	c.config = &rest.Config{
		Host:            "https://" + address(ports[0]),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	if err := c.writeKubeconfig(); err != nil {
		return nil, err
	}
	etcd := "http://" + address(ports[1])
	c.etcd = etcd
	peer := "http://" + address(ports[2])
	err = c.run(Etcd, p.Etcd, "--name", "watchlab", "--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--quota-backend-bytes", strconv.Itoa(4<<30),
		"--listen-client-urls", etcd, "--advertise-client-urls", etcd,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "watchlab="+peer)
	if err != nil {
		return nil, err
	}
	// Endpoints of the API server's own service can't be on loopback, hence no
	// reconciler of them.
	err = c.run(APIServer, p.APIServer, append([]string{
		"--etcd-servers", etcd,
		"--bind-address", loopback, "--advertise-address", loopback, "--secure-port", strconv.Itoa(ports[0]),
		"--endpoint-reconciler-type", "none", "--allow-privileged=true",
		"--tls-cert-file", c.path("apiserver.crt"), "--tls-private-key-file", c.path("apiserver.key"),
		"--token-auth-file", c.path("tokens.csv"), "--anonymous-auth=false", "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.path("sa.pub"), "--service-account-signing-key-file", c.path("sa.key"),
		"--service-cluster-ip-range", "10.96.0.0/16",
	}, opts.APIServerFlags...)...)
	if err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if !opts.Controllers {
		return c, nil
	}
	err = c.run(ControllerManager, p.ControllerManager, "--kubeconfig", c.Kubeconfig(), "--bind-address", loopback, "--secure-port", strconv.Itoa(ports[3]),
		"--leader-elect=false", "--service-account-private-key-file", c.path("sa.key"), "--root-ca-file", c.path("ca.crt"),
		"--authentication-skip-lookup")
	if err != nil {
		return nil, err
	}
	err = c.run(Scheduler, p.Scheduler, "--kubeconfig", c.Kubeconfig(), "--bind-address", loopback, "--secure-port", strconv.Itoa(ports[4]),
		"--leader-elect=false", "--authentication-skip-lookup")
	if err != nil {
		return nil, err
	}
	return c, nil
}

const loopback = "127.0.0.1"

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }

// freePorts returns ports that nobody listens on. Somebody else may take one
// before it is used; then the program that was to have it says so and ends.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", address(0))
		if err != nil {
			return nil, err
		}
		// Held until all are found, so that they differ.
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }

// Config returns a client's configuration of an administrator.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// EtcdURL returns where etcd answers clients, without TLS.
func (c *ControlPlane) EtcdURL() string { return c.etcd }

// Kubeconfig returns the path of the same as a file, whose context is
// "watchlab".
func (c *ControlPlane) Kubeconfig() string { return c.path("kubeconfig") }

// APIServerPID returns the process of the API server, to see what it takes. After
// a Kill it is that of the one that was killed, until a Restart.
func (c *ControlPlane) APIServerPID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[c.find(APIServer)].cmd.Process.Pid
}

// credentials writes what the programs need to know each other by, and returns
// the administrator's token.
func (c *ControlPlane) credentials() (token string, err error) {
	a, err := newAuthority()
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(c.path("ca.crt"), a.pem, 0o600); err != nil {
		return "", err
	}
	if err := a.serve(c.dir, "apiserver"); err != nil {
		return "", err
	}
	if err := signer(c.dir); err != nil {
		return "", err
	}
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return "", err
	}
	token = hex.EncodeToString(secret)
	return token, os.WriteFile(c.path("tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600)
}

func (c *ControlPlane) writeKubeconfig() error {
	const name = "watchlab"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: c.config.BearerToken}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	return clientcmd.WriteToFile(*k, c.Kubeconfig())
}

// ready waits until the API server says that it is.
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
		if err := c.ended(); err != nil {
			return err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", err)
		}
	}
}

// Stop stops everything, last first, and removes the folder. A second call
// returns what the first did. A program that does not stop in time is killed.
func (c *ControlPlane) Stop() error {
	c.stop.Do(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, p := range slices.Backward(c.processes) {
			p.stop()
		}
		c.stopErr = os.RemoveAll(c.dir)
	})
	return c.stopErr
}

// Ended returns an error that says which program has ended by itself, and what
// it said last, or nil. One that was killed by [ControlPlane.Kill] is none.
func (c *ControlPlane) Ended() error {
	if err := c.ended(); err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	return nil
}

func (c *ControlPlane) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.processes {
		if p.killed {
			continue
		}
		select {
		case <-p.ended:
			return p.failed()
		default:
		}
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex

	text []byte
}

var _ io.Writer = (*tail)(nil)

const tailSize = 8 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	if extra := len(t.text) - tailSize; extra > 0 {
		t.text = bytes.Clone(t.text[extra:])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
