package controlplane_test

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
)

// TestControlPlane: a control plane with controllers answers through its kubeconfig, reports its release and creates
// the default service account, which pods need. A component keeps its data through Kill and Restart. After Stop
// nothing answers.
func TestControlPlane(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: true})
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	if version, err := client.Discovery().ServerVersion(); err != nil || version.GitVersion != cp.Release() {
		t.Errorf("version %v, want %s: %v", version, cp.Release(), err)
	}
	var account *v1.ServiceAccount
	programs.Eventually(t, "the default service account is made", func() (err error) {
		account, err = client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	for _, name := range []controlplane.Component{controlplane.Etcd, controlplane.APIServer} {
		if err := cp.Restart(t.Context(), name); !errors.Is(err, controlplane.ErrComponent) {
			t.Errorf("%s was started twice: %v", name, err)
		}
		if err := errors.Join(cp.Kill(name), cp.Ended(), cp.Restart(t.Context(), name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := cp.Kill("kubelet"); !errors.Is(err, controlplane.ErrComponent) {
		t.Errorf("a kubelet: %v", err)
	}
	after, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || after.UID != account.UID {
		t.Errorf("the service account was %s and is %s: %v", account.UID, after.UID, err)
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("it answers after Stop")
	}
}
