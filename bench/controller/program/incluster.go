package program

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// InCluster is what a program in a pod finds: the environment variables of the API server, and the files
// of its service account. The files are at [ServiceAccount] in a mount namespace of the program alone.
// Needs Linux, and root or a user namespace.
type InCluster struct {
	Host, Port string // of the server, which needs TLS
	CA         []byte // in PEM
	Token      string
	Namespace  string // of the pod
}

// ServiceAccount is the folder of a pod's service account, which client-go reads.
const ServiceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// ErrInCluster means that this machine cannot run a program as in a pod.
var ErrInCluster = errors.New("cannot run the program as in a cluster; run it with a kubeconfig")

// The folders of InCluster in that of the program.
const (
	accountFolder = "serviceaccount"
	mountFolder   = "mount" // mount point in the program's namespace
)

// Clean removes the files of InCluster, the token among them, from the folder of a program that has ended.
func Clean(dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, accountFolder)), os.RemoveAll(filepath.Join(dir, mountFolder)))
}

// write writes the files of the service account.
func (c *InCluster) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, data := range map[string][]byte{"ca.crt": c.CA, "token": []byte(c.Token), "namespace": []byte(c.Namespace)} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *InCluster) env() []string {
	return []string{"KUBERNETES_SERVICE_HOST=" + c.Host, "KUBERNETES_SERVICE_PORT=" + c.Port}
}

func inClusterError(err error) error { return fmt.Errorf("%w: %w", ErrInCluster, err) }
