// Package programs finds and runs the real programs of the e2e tests.
//
//   - [Path] and [Pinned] return a program that scripts/tools pins.
//   - [Watchlab] returns the watchlab command.
//   - [Installed] returns a program in $PATH.
//   - [Start] runs a program during a test.
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
)

// Patience is the time limit for one step of a real program, such as its start.
const Patience = 2 * time.Minute

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

// Path returns the path of a program that scripts/tools pins. It builds a missing program
// into bin/programs, which takes minutes.
func Path(ctx context.Context, name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "scripts", "program.sh"), name)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("programs: %s: %w\n%s", name, err, &errs)
	}
	return strings.TrimSpace(out.String()), nil
}

// Version returns the release of a program, from a path that [Path] returned.
func Version(path string) string {
	return strings.TrimPrefix(filepath.Base(filepath.Dir(path)), filepath.Base(path)+"-")
}

// Pinned is [Path] for a test. It fails the test on an error.
func Pinned(t testing.TB, name string) string {
	t.Helper()
	path, err := Path(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return path
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

// Watchlab returns the path of the command: $WATCHLAB, or a fresh build of the source
// tree.
func Watchlab(t testing.TB) string {
	t.Helper()
	path, err := watchlab()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Process is a program that runs during a test.
type Process struct {
	*exec.Cmd
	// Output holds stdout and stderr.
	Output *Buffer
	// codes are the allowed exit codes.
	codes []int
	// ended is closed when the program has ended.
	ended chan struct{}
	stop  sync.Once
}

// Start starts a program and stops it when the test ends. The exit code after an
// interrupt must be one of codes; without codes it must be 0.
func Start(t testing.TB, cmd *exec.Cmd, codes ...int) *Process {
	t.Helper()
	if len(codes) == 0 {
		codes = []int{0}
	}
	p := &Process{Cmd: cmd, Output: new(Buffer), codes: codes, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.Output, p.Output
	cmd.SysProcAttr = EndsWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // Stop and Ready read the exit code.
	}()
	t.Cleanup(func() { p.Stop(t) })
	return p
}

// Stop interrupts the program and checks its exit code. Further calls do nothing.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.stop.Do(func() {
		_ = p.Process.Signal(os.Interrupt) // The program may have ended.
		select {
		case <-p.ended:
		case <-time.After(Patience):
			_ = p.Process.Kill()
			<-p.ended
		}
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
		case <-p.ended:
			t.Fatalf("%s: %v\n%s", p, p.ProcessState, p.Output)
		default:
		}
		return check()
	})
}

// Eventually calls check every 50 ms until it returns nil. After [Patience] it fails the
// test with check's last error. It polls because other processes send no signal when
// they are ready.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(Patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, Patience, err)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
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
	b  bytes.Buffer
}

// Write implements [io.Writer]. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns the output so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
