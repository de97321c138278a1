package access

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is how a client finds a server and is let in.
type Kubeconfig struct {
	Server string

	CA []byte

	Token string

	Namespace string
}

// name is that of the cluster, the user and the context.
const name = "watchlab"

// mark heads each kubeconfig that is written, so that it may be written again.
const mark = "# Written by watchlab serve: a simulated API server. It is replaced when it is written again.\n"

// ErrForeignFile is the error of a kubeconfig that would replace a file that
// somebody else wrote.
var ErrForeignFile = errors.New("the file exists and was not written by watchlab")

// Bytes returns the kubeconfig as YAML.
func (k Kubeconfig) Bytes() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: k.Server, CertificateAuthorityData: k.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: k.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: k.Namespace}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return append([]byte(mark), data...), nil
}

// WriteKubeconfig writes the kubeconfig to a file that only its owner can
// read, whole or not at all. It replaces a file that it wrote before; another
// one only if told to overwrite, else its error wraps [ErrForeignFile].
func WriteKubeconfig(path string, k Kubeconfig, overwrite bool) error {
	data, err := k.Bytes()
	if err != nil {
		return err
	}
	if err := CheckKubeconfig(path, overwrite); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".kubeconfig-*") // made with 0600
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("kubeconfig %s: %w", path, errors.Join(err, os.Remove(temp.Name())))
	}
	return nil
}

// CheckKubeconfig says whether [WriteKubeconfig] would find a file in its way,
// for those who want to know before they start a server.
func CheckKubeconfig(path string, overwrite bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("kubeconfig: %w", err)
	case info.IsDir():
		return fmt.Errorf("kubeconfig %s: is a directory", path)
	case overwrite:
		return nil
	case !info.Mode().IsRegular():
		return fmt.Errorf("kubeconfig %s: %w", path, ErrForeignFile)
	}
	old, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	if len(old) > 0 && !bytes.HasPrefix(old, []byte(mark)) {
		return fmt.Errorf("kubeconfig %s: %w", path, ErrForeignFile)
	}
	return nil
}
