// Package apiserver tests the simulated API server with a real kubectl and a real
// controller-runtime manager against `watchlab serve`.
package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"watchlab/bench/e2e/programs"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // The tests cause errors, which klog would print.
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*loggingT).flushDaemon"),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}

// server is a running `watchlab serve`.
type server struct {
	kubeconfig, home string
}

// serve starts `watchlab serve`, which must exit with code 0 at the end of the test.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	file, _ := serveProcess(t, args...)
	return &server{home: filepath.Dir(file), kubeconfig: file}
}

// serveProcess starts `watchlab serve` and returns its kubeconfig and its process id.
func serveProcess(t testing.TB, args ...string) (kubeconfig string, pid int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	p := programs.Start(t, exec.Command(programs.Watchlab(t), append([]string{"serve", "--kubeconfig-out", file}, args...)...))
	p.Ready(t, func() error {
		_, err := os.Stat(file)
		return err
	})
	return file, p.Process.Pid
}

// config returns client-go's configuration for the server.
func (s *server) config(t *testing.T) *rest.Config {
	t.Helper()
	config := must(clientcmd.BuildConfigFromFlags("", s.kubeconfig))(t)
	config.QPS = -1
	return config
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
