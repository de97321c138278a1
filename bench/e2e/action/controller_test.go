package action

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// asController makes the test binary a controller.
const asController = "WATCHLAB_TEST_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(asController) == "" {
		os.Exit(m.Run())
	}
	kubeconfig := flag.String("kubeconfig", "", "path")
	lossy := flag.Bool("lossy", false, "ignore updates")
	flag.Parse()
	if err := control(*kubeconfig, *lossy); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// control copies data.n of config maps with the label storm into an annotation. A lossy controller misses changes.
func control(kubeconfig string, lossy bool) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // no limit: the play would wait for it
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = "storm=yes"
	}))
	reconcile := func(obj any) {
		c := obj.(*corev1.ConfigMap)
		if c.Annotations["seen"] == c.Data["n"] {
			return
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"seen":%q}}}`, c.Data["n"])
		for ctx.Err() == nil {
			_, err := client.CoreV1().ConfigMaps(c.Namespace).Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err == nil {
				return
			}
			fmt.Fprintln(os.Stderr, err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: reconcile}
	if !lossy {
		handler.UpdateFunc = func(_, obj any) { reconcile(obj) }
	}
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(handler); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}
