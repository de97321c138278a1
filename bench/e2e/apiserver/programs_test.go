// Package apiserver tests the simulated API server with a real kubectl and a real
// controller-runtime manager against `watchlab serve`.
package apiserver

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	kubectl    string
	kubeconfig string
	home       string
}

// serve starts `watchlab serve`, which must exit with code 0 at the end of the test.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{kubectl: programs.Pinned(t, "kubectl"), home: t.TempDir()}
	s.kubeconfig = filepath.Join(s.home, "kubeconfig")
	p := programs.Start(t, exec.Command(programs.Watchlab(t), append([]string{"serve", "--kubeconfig-out", s.kubeconfig}, args...)...))
	p.Ready(t, func() error {
		_, err := os.Stat(s.kubeconfig)
		return err
	})
	return s
}

// config returns client-go's configuration for the server.
func (s *server) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// command returns a kubectl command for the server.
func (s *server) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.kubectl, args...)
	cmd.Env = []string{"KUBECONFIG=" + s.kubeconfig, "HOME=" + s.home, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// try runs kubectl and returns its output and its error.
func (s *server) try(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), programs.Patience)
	defer cancel()
	cmd := s.command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs kubectl, which must succeed, and returns its output.
func (s *server) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := s.try(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// says runs kubectl, which must succeed and print words.
func (s *server) says(t *testing.T, words, stdin string, args ...string) {
	t.Helper()
	if out := s.run(t, stdin, args...); !strings.Contains(out, words) {
		t.Errorf("kubectl %s prints\n%s\nwithout %q", strings.Join(args, " "), out, words)
	}
}

// fails runs kubectl, which must fail and print words.
func (s *server) fails(t *testing.T, words, stdin string, args ...string) {
	t.Helper()
	out, err := s.try(t, stdin, args...)
	if err == nil || !strings.Contains(out, words) {
		t.Errorf("kubectl %s: %v, prints\n%s\nwithout %q", strings.Join(args, " "), err, out, words)
	}
}
