package controlplane_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
)

// TestControlPlane starts a control plane with controllers. It must answer through its
// kubeconfig, report its release, and create the default service account, which pods
// need. After Stop it must not answer.
func TestControlPlane(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != cp.Release() {
		t.Errorf("version %s, want %s", version.GitVersion, cp.Release())
	}
	programs.Eventually(t, "the default service account is made", func() error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	if err := cp.Ended(); err != nil {
		t.Error(err)
	}
	killed(t, cp, client)
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("it answers after Stop")
	}
}

// killed checks that a component keeps its data through Kill and Restart. Restart of a
// running component and Kill of a stopped one must fail.
func killed(t *testing.T, cp *controlplane.ControlPlane, client kubernetes.Interface) {
	t.Helper()
	before, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []controlplane.Component{controlplane.Etcd, controlplane.APIServer} {
		if err := cp.Restart(t.Context(), name); !errors.Is(err, controlplane.ErrComponent) {
			t.Errorf("%s was started twice: %v", name, err)
		}
		if err := cp.Kill(name); err != nil {
			t.Fatal(err)
		}
		if err := cp.Kill(name); !errors.Is(err, controlplane.ErrComponent) {
			t.Errorf("%s was killed twice: %v", name, err)
		}
		if err := cp.Ended(); err != nil {
			t.Errorf("%s was killed, but reported as exited: %v", name, err)
		}
		if answers(t, client) {
			t.Errorf("the API server answers without %s", name)
		}
		if err := cp.Restart(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	after, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || after.UID != before.UID {
		t.Errorf("the default namespace was %s and is %s: %v", before.UID, after.UID, err)
	}
	if err := cp.Kill("kubelet"); !errors.Is(err, controlplane.ErrComponent) {
		t.Errorf("a kubelet: %v", err)
	}
}

// answers reports whether the API server can read from etcd. It waits 1 s, because
// without etcd the API server takes a minute to answer.
func answers(t *testing.T, client kubernetes.Interface) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
	return err == nil
}
