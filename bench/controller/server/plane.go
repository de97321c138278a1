package server

import (
	"cmp"
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
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"watchlab/bench/controller/program"
	"watchlab/loadgen/apiserver"
)

const (
	// readyTime is the longest start of kube-apiserver: 3 s on a quiet machine.
	readyTime = 2 * time.Minute
	// stopTime is the time from SIGTERM to SIGKILL.
	stopTime = 10 * time.Second
	// pollPeriod is the time between two looks at what takes its time.
	pollPeriod = 100 * time.Millisecond

	loopback = "127.0.0.1"
)

// envtestFlags are those that controller-runtime's envtest gives kube-apiserver: without a controller for service
// accounts, pods have none.
var envtestFlags = []string{"--disable-admission-plugins=ServiceAccount"}

// assets returns the paths of etcd and kube-apiserver, by the convention of controller-runtime's envtest.
func assets() (etcd, kube string, err error) {
	find := func(name string) string {
		dir := cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), "/usr/local/kubebuilder/bin")
		path, failed := exec.LookPath(filepath.Join(dir, name))
		if failed != nil {
			if path, failed = exec.LookPath(name); failed != nil {
				err = fmt.Errorf("no %s in KUBEBUILDER_ASSETS, %s or PATH (setup-envtest use -p path prints where it has one)", name, dir)
			}
		}
		return path
	}
	etcd, kube = find("etcd"), find("kube-apiserver")
	return etcd, kube, err
}

// PlaneOptions configure a [Plane].
type PlaneOptions struct {
	Etcd, APIServer string   // paths of the programs
	Logs            string   // folder of etcd.log and kube-apiserver.log, which exists; empty for one that Stop removes
	Flags           []string // further ones of kube-apiserver
}

// Plane is an etcd and a kube-apiserver on loopback, with certificates, a token and data of their own.
type Plane struct {
	EtcdURL   string // of clients, without TLS
	dir, logs string // of the data and the credentials, and of the programs' logs
	config    *rest.Config
	programs  []*program.Program // in the order of their start
	names     []string           // of the programs
	stop      func() error       // once
}

// Start starts a plane on free ports and returns when it is ready. etcd does not sync its data to disk. The programs
// end with this process, or when ctx ends. On an error no program is left.
func Start(ctx context.Context, o PlaneOptions) (_ *Plane, err error) {
	dir, err := os.MkdirTemp("", "watchlab-control-plane-")
	if err != nil {
		return nil, err
	}
	p := &Plane{dir: dir, logs: cmp.Or(o.Logs, dir)}
	p.stop = sync.OnceValue(func() error {
		for _, one := range slices.Backward(p.programs) {
			one.Stop(stopTime)
		}
		return os.RemoveAll(p.dir)
	})
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("control plane: %w", err), p.Stop())
		}
	}()
	if p.logs, err = filepath.Abs(p.logs); err != nil {
		return nil, err
	}
	ports, err := program.FreePorts(3)
	if err != nil {
		return nil, err
	}
	if err := p.credentials("https://" + program.Address(ports[0])); err != nil {
		return nil, err
	}
	p.EtcdURL = "http://" + program.Address(ports[1])
	peer := "http://" + program.Address(ports[2])
	for _, command := range [][]string{{
		o.Etcd, "--name", "watchlab", "--data-dir", p.Path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--quota-backend-bytes", strconv.Itoa(4 << 30), "--listen-client-urls", p.EtcdURL, "--advertise-client-urls", p.EtcdURL,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "watchlab=" + peer,
	}, append([]string{
		// The reconciler is off: endpoints of the service kubernetes cannot be loopback addresses.
		o.APIServer, "--etcd-servers", p.EtcdURL, "--bind-address", loopback, "--advertise-address", loopback, "--secure-port", strconv.Itoa(ports[0]),
		"--endpoint-reconciler-type", "none", "--allow-privileged=true",
		"--tls-cert-file", p.Path("apiserver.crt"), "--tls-private-key-file", p.Path("apiserver.key"),
		"--token-auth-file", p.Path("tokens.csv"), "--anonymous-auth=false", "--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", p.Path("sa.key"),
		"--service-account-signing-key-file", p.Path("sa.key"), "--service-cluster-ip-range", "10.96.0.0/16",
	}, o.Flags...)} {
		if err := p.Run(ctx, command...); err != nil {
			return nil, err
		}
	}
	return p, p.ready(ctx)
}

// Run runs a further program with the log NAME.log, until [Plane.Stop].
func (p *Plane) Run(ctx context.Context, command ...string) error {
	name := filepath.Base(command[0])
	one, err := program.Start(ctx, program.Options{Client: name, Command: command, Log: p.log(name), Dir: p.dir})
	if err == nil {
		p.programs, p.names = append(p.programs, one), append(p.names, name)
	}
	return err
}

func (p *Plane) log(name string) string { return filepath.Join(p.logs, name+".log") }

// Path returns the path of a file of the plane: apiserver.crt, apiserver.key, sa.key, kubeconfig.
func (p *Plane) Path(name string) string { return filepath.Join(p.dir, name) }

// Config returns a copy of the administrator's client configuration.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.config) }

// APIServer returns the process id of kube-apiserver.
func (p *Plane) APIServer() int { return p.programs[1].Pid() }

// credentials writes the API server's certificate, the signing key of service account tokens, and the administrator's
// token and kubeconfig.
func (p *Plane) credentials(host string) error {
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
		if err := os.WriteFile(p.Path(name), data, 0o600); err != nil {
			return err
		}
	}
	p.config = &rest.Config{Host: host, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
	return apiserver.WriteKubeconfig(p.Path("kubeconfig"), apiserver.Kubeconfig{Server: host, CA: certificate, Token: token}, false)
}

// readyPaths answer when kube-apiserver is ready and has made its own namespaces, which it does later.
var readyPaths = []string{
	"/readyz", "/api/v1/namespaces/kube-system", "/api/v1/namespaces/kube-public", "/api/v1/namespaces/kube-node-lease", "/api/v1/namespaces/default",
}

// ready waits until kube-apiserver is ready, or a program ends.
func (p *Plane) ready(ctx context.Context) error {
	client, err := discovery.NewDiscoveryClientForConfig(p.config)
	if err != nil {
		return err
	}
	var last error
	at := 0
	err = wait.PollUntilContextTimeout(ctx, pollPeriod, readyTime, true, func(ctx context.Context) (bool, error) {
		for ; at < len(readyPaths); at++ {
			if _, last = client.RESTClient().Get().AbsPath(readyPaths[at]).DoRaw(ctx); last != nil {
				return false, p.Ended()
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) {
		return fmt.Errorf("not ready in %v: %w", readyTime, last)
	}
	return err
}

// Ended returns an error with the last lines of a program that has ended before Stop. Otherwise it returns nil.
func (p *Plane) Ended() error {
	for i, one := range p.programs {
		select {
		case <-one.Exited():
			log, _ := os.ReadFile(p.log(p.names[i]))
			return fmt.Errorf("%s: %s (its log ends with: %s)", p.names[i], one.Exit().Status, program.LastLines(log))
		default:
		}
	}
	return nil
}

// Stop stops the programs and removes the data. Further calls return the first call's error.
func (p *Plane) Stop() error { return p.stop() }
