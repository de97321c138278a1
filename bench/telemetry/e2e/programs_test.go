package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// Beforehand, as it may take minutes, and no test is that patient.
	if _, err := collector(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// collectorVersion is what the module collector pins.
const collectorVersion = "v0.162.0"

// patience is how long something may take that takes seconds.
const patience = 2 * time.Minute

// watchlab builds the command, once, unless $WATCHLAB names one.
var watchlab = sync.OnceValues(func() (string, error) {
	if program := os.Getenv("WATCHLAB"); program != "" {
		return program, nil
	}
	dir, err := os.MkdirTemp("", "watchlab-telemetry-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "watchlab")
	return program, build(filepath.Join("..", "..", ".."), program, "./cmd/watchlab")
})

// collector builds the collector, or finds it where it was built before.
var collector = sync.OnceValues(func() (string, error) {
	dir := os.Getenv("WATCHLAB_PROGRAMS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "watchlab")
	}
	program := filepath.Join(dir, "otelcol-"+collectorVersion, "collector")
	if _, err := os.Stat(program); !errors.Is(err, fs.ErrNotExist) {
		return program, err
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", err
	}
	unfinished := fmt.Sprintf("%s.%d", program, os.Getpid())
	if err := build("collector", unfinished, ".", "-trimpath", "-ldflags", "-s -w"); err != nil {
		return "", errors.Join(err, os.Remove(unfinished))
	}
	return program, os.Rename(unfinished, program)
})

func build(dir, program, pkg string, flags ...string) error {
	cmd := exec.Command("go", append(append([]string{"build", "-o", program}, flags...), pkg)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", program, err, out)
	}
	return nil
}

// run runs the command to its end and returns what it printed.
func run(t testing.TB, env []string, args ...string) (stdout, stderr string) {
	t.Helper()
	program, err := watchlab()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"run"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("watchlab run %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), errs.String()
}

// start starts a program that serves until the test is over, and waits until it
// answers at a URL. stop ends it before.
func start(t *testing.T, ready string, name string, args ...string) (stop func()) {
	t.Helper()
	cmd := exec.Command(name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("%s: %v\n%s", name, err, out.String())
			}
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Errorf("%s doesn't end", name)
		}
	})
	t.Cleanup(stop)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if res, err := get(ready); err == nil {
			_ = res.Body.Close()
			return stop
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", name, err, out.String())
		case <-tick.C:
		}
	}
	t.Fatalf("%s doesn't answer at %s:\n%s", name, ready, out.String())
	return nil
}

// get keeps no connection.
func get(url string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Close = true
	return http.DefaultClient.Do(req)
}

// address returns one on loopback that is free now.
func address(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
