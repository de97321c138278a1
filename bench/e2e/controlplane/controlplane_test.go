package controlplane_test

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
)

var (
	hold        = flag.Bool("hold", false, "keep a control plane until Ctrl-C")
	controllers = flag.Bool("controllers", true, "with controller-manager and scheduler")
)

// TestHold is make control-plane, to look at a real server and to record its answers.
func TestHold(t *testing.T) {
	if !*hold {
		t.Skip("needs -hold")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cp := controlplane.ForTest(t, controlplane.Options{Controllers: *controllers})
	fmt.Printf("export KUBECONFIG=%s\n", cp.Kubeconfig())
	<-ctx.Done()
}

// TestControlPlane: a control plane with controllers answers through its kubeconfig, reports its release and creates
// the default service account, which pods need. After Stop nothing answers.
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
	programs.Eventually(t, "the default service account is made", func() error {
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
