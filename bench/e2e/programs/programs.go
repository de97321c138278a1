// Package programs finds and runs the real programs of the e2e tests.
//
//   - [Pinned] returns a program that scripts/tools pins.
//   - [Watchlab] returns the watchlab command.
//   - [Installed] returns a program in $PATH.
//   - [Start] runs a program during a test, [Run] at any time.
package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"watchlab/bench/controller/program"
)

// Patience is the time limit for one step of a real program, such as its start.
const Patience = 5 * time.Minute

// Root returns the root of the source tree. Tests and go run start below it.
var Root = sync.OnceValues(func() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "program.sh")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("programs: the working directory is outside the source tree")
		}
	}
	return "", err
})

// Pinned returns the path of a program that scripts/tools pins. It builds a missing program
// into bin/programs, which takes minutes.
func Pinned(t testing.TB, name string) string {
	t.Helper()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts", "program.sh"), name)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("programs: %s: %v\n%s", name, err, &errs)
	}
	return strings.TrimSpace(string(out))
}

// Version returns the release of a program, from a path that [Pinned] returned.
func Version(path string) string {
	return strings.TrimPrefix(filepath.Base(filepath.Dir(path)), filepath.Base(path)+"-")
}

// Installed returns the path of the first of the named programs in $PATH. It skips the
// test if there is none.
func Installed(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("#### SKIPPED: this machine has no %s ####", strings.Join(names, " nor "))
	return ""
}

// Chromium returns the path of a browser: $CHROMIUM, or one in $PATH. It skips the test
// if there is none. scripts/chromium.sh installs one.
func Chromium(t testing.TB) string {
	t.Helper()
	if own := os.Getenv("CHROMIUM"); own != "" {
		return Installed(t, own)
	}
	return Installed(t, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
}

var watchlab = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("WATCHLAB"); path != "" {
		return path, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", "programs", "watchlab")
	unfinished := fmt.Sprintf("%s.%d", path, os.Getpid())
	cmd := exec.Command("go", "build", "-o", unfinished, "./cmd/watchlab")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("programs: watchlab: %w\n%s", err, out)
	}
	// Rename the new binary: another test may be running the old one.
	return path, os.Rename(unfinished, path)
})

// Watchlab returns the path of the command: $WATCHLAB, or a fresh build of the source tree.
func Watchlab(t testing.TB) string {
	t.Helper()
	path, err := watchlab()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Process is a running program.
type Process struct {
	*exec.Cmd
	Output *Buffer // stdout and stderr
	// Done is closed when the program has ended. ProcessState then has the exit code.
	Done <-chan struct{}

	codes []int // the allowed exit codes of Stop
	stop  sync.Once
}

// Run starts a program. The kernel kills it when this process ends.
func Run(cmd *exec.Cmd) (*Process, error) {
	done := make(chan struct{})
	p := &Process{Cmd: cmd, Output: &Buffer{}, Done: done}
	cmd.Stdout, cmd.Stderr = p.Output, p.Output
	cmd.SysProcAttr = program.OwnGroup()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(done)
		_ = cmd.Wait() // ProcessState has the exit code.
	}()
	return p, nil
}

// End sends a signal and waits for the end of the program; after the limit it kills the program.
func (p *Process) End(signal os.Signal, limit time.Duration) {
	_ = p.Process.Signal(signal) // The program may have ended.
	select {
	case <-p.Done:
	case <-time.After(limit):
		_ = p.Process.Kill()
		<-p.Done
	}
}

// Start starts a program and stops it when the test ends. The exit code after an
// interrupt must be one of codes; without codes it must be 0.
func Start(t testing.TB, cmd *exec.Cmd, codes ...int) *Process {
	t.Helper()
	if len(codes) == 0 {
		codes = []int{0}
	}
	p, err := Run(cmd)
	if err != nil {
		t.Fatal(err)
	}
	p.codes = codes
	t.Cleanup(func() { p.Stop(t) })
	return p
}

// Stop interrupts the program and checks its exit code. Further calls do nothing.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.stop.Do(func() {
		p.End(os.Interrupt, Patience)
		if !slices.Contains(p.codes, p.ProcessState.ExitCode()) {
			t.Errorf("%s: %v, want exit code %v\n%s", p, p.ProcessState, p.codes, p.Output)
		} else if t.Failed() {
			t.Logf("%s printed:\n%s", p.Path, p.Output)
		}
	})
}

// Ready calls check until it returns nil. It fails the test if the program ends first,
// or after [Patience].
func (p *Process) Ready(t testing.TB, check func() error) {
	t.Helper()
	Eventually(t, p.Path+" is ready", func() error {
		select {
		case <-p.Done:
			t.Fatalf("%s: %v\n%s", p, p.ProcessState, p.Output)
		default:
		}
		return check()
	})
}

// Eventually calls check every 50 ms until it returns nil. After [Patience] it fails the test with
// check's last error. It polls because other processes send no signal when they are ready.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	var failed error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		failed = check()
		return failed == nil, nil
	})
	switch {
	case t.Context().Err() != nil && err != nil:
		t.Fatalf("%s: %v", what, err)
	case err != nil:
		t.Fatalf("%s: not within %v: %v", what, Patience, failed)
	}
}

// Address returns a free address on the loopback.
func Address(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// Buffer collects the output of a running program. It is safe for concurrent use.
type Buffer struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

// Write implements [io.Writer]. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.b = append(b.b, p...)
	return len(p), nil
}

// String returns the output so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.b)
}
