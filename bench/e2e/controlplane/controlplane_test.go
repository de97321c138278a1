package controlplane_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/controlplane/controlplanetest"
)

// TestControlPlane: one with controllers answers through its kubeconfig, says
// its release, and has made the service account without which a namespace takes
// no pod; after Stop nothing answers.
func TestControlPlane(t *testing.T) {
	cp := controlplanetest.Start(t, controlplane.Options{Controllers: true})
	config, err := clientcmd.BuildConfigFromFlags("", cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != controlplane.KubernetesVersion {
		t.Errorf("version %s, want %s", version.GitVersion, controlplane.KubernetesVersion)
	}
	controlplanetest.Eventually(t, "the default service account is made", func() error {
		_, err := client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	if err := cp.Ended(); err != nil {
		t.Error(err)
	}
	if err := cp.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("it answers after Stop")
	}
}
