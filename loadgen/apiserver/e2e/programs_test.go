package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// kubectlVersion is the release that the module kubectl pins.
const kubectlVersion = "v1.36.3"

// patience is how long something may take that takes a second.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard()) // what fails on purpose is not worth a line
	// Beforehand, as it may take minutes, and no test is that patient.
	if _, err := kubectl(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m,

		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*loggingT).flushDaemon"),
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
	)
}

// watchlab builds the command, once, unless $WATCHLAB names one.
var watchlab = sync.OnceValues(func() (string, error) {
	if program := os.Getenv("WATCHLAB"); program != "" {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "watchlab-e2e-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "watchlab")
	return program, build(filepath.Join("..", "..", ".."), program, "./cmd/watchlab")
})

// kubectl builds the client, or finds it where it was built before.
var kubectl = sync.OnceValues(func() (string, error) {
	dir := os.Getenv("WATCHLAB_PROGRAMS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "watchlab")
	}
	program := filepath.Join(dir, "kubectl-"+kubectlVersion, "kubectl")
	if _, err := os.Stat(program); !errors.Is(err, fs.ErrNotExist) {
		return program, err
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", err
	}
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags, "-X", pkg+".gitVersion="+kubectlVersion, "-X", pkg+".gitMajor=1", "-X", pkg+".gitMinor=36")
	}
	unfinished := fmt.Sprintf("%s.%d", program, os.Getpid())
	if err := build("kubectl", unfinished, ".", "-trimpath", "-ldflags", strings.Join(flags, " ")); err != nil {
		return "", errors.Join(err, os.Remove(unfinished))
	}
	return program, os.Rename(unfinished, program)
})

func build(dir, program, pkg string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), pkg)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}

// server is a watchlab serve that runs.
type server struct {
	kubeconfig string
	home       string
}

// serve starts watchlab serve with those arguments. It is interrupted at the
// end of the test and has to end well.
func serve(t *testing.T, args ...string) *server {
	t.Helper()
	program, err := watchlab()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{home: t.TempDir()}
	s.kubeconfig = filepath.Join(s.home, "kubeconfig")
	cmd := exec.Command(program, append([]string{"serve", "--kubeconfig-out", s.kubeconfig}, args...)...)
	out := new(output)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {

		_ = cmd.Process.Signal(os.Interrupt)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("watchlab serve: %v\n%s", err, out)
			}
		case <-time.After(patience):
			t.Errorf("watchlab serve doesn't end\n%s", errors.Join(cmd.Process.Signal(syscall.SIGKILL), <-ended))
		}
		if t.Failed() {
			t.Logf("watchlab serve said:\n%s", out)
		}
	})
	eventually(t, "the kubeconfig", func() error {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("watchlab serve ended: %v\n%s", err, out)
		default:
		}
		_, err := os.Stat(s.kubeconfig)
		return err
	})
	return s
}

// config returns what client-go connects by.
func (s *server) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// command returns a kubectl that is about to run.
func (s *server) command(ctx context.Context, t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := kubectl()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"KUBECONFIG=" + s.kubeconfig, "HOME=" + s.home, "PATH=" + os.Getenv("PATH")}
	return cmd
}

// try runs kubectl and returns what it says, in both ways, and its error.
func (s *server) try(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := s.command(ctx, t, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs kubectl, which has to succeed, and returns what it says.
func (s *server) run(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := s.try(t, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// says runs kubectl and wants certain words in what it says.
func (s *server) says(t *testing.T, words, stdin string, args ...string) {
	t.Helper()
	if out := s.run(t, stdin, args...); !strings.Contains(out, words) {
		t.Errorf("kubectl %s says\n%s\nwithout %q", strings.Join(args, " "), out, words)
	}
}

// fails runs kubectl, which has to fail with certain words.
func (s *server) fails(t *testing.T, words, stdin string, args ...string) {
	t.Helper()
	out, err := s.try(t, stdin, args...)
	if err == nil || !strings.Contains(out, words) {
		t.Errorf("kubectl %s: %v, says\n%s\nwithout %q", strings.Join(args, " "), err, out, words)
	}
}

// eventually calls check until it returns nil: another process tells nobody
// when it is ready.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not in %v: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// output collects what a process writes, for several goroutines.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
