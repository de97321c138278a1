package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// TestContainerdImport imports an archive into a real containerd with
// `ctr image import`. `kind load image-archive` runs the same command in a node.
func TestContainerdImport(t *testing.T) {
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		t.Skip("#### SKIPPED: no containerd here, the archive is NOT imported into one ####")
	}
	ctr, err := exec.LookPath("ctr")
	if err != nil {
		t.Skip("#### SKIPPED: no ctr here, the archive is NOT imported into a containerd ####")
	}
	if os.Geteuid() != 0 {
		t.Skip("#### SKIPPED: not root, which containerd needs to be; the archive is NOT imported into one ####")
	}
	archive := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	dir := t.TempDir()
	socket := filepath.Join(dir, "c.sock")
	config := filepath.Join(dir, "config.toml")
	// Disable the CRI and NRI plugins: the test runs no containers, and has no CNI.
	text := "version = 3\nroot = '" + dir + "/root'\nstate = '" + dir + "/state'\ndisabled_plugins = ['io.containerd.cri.v1.runtime', 'io.containerd.grpc.v1.cri', 'io.containerd.cri.v1.images', 'io.containerd.nri.v1.nri']\n[grpc]\naddress = '" + socket + "'\n[ttrpc]\naddress = '" + dir + "/t.sock'\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	daemon := exec.CommandContext(ctx, containerd, "--config", config)
	said, err := daemon.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	daemon.Cancel = func() error { return daemon.Process.Signal(syscall.SIGTERM) }
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	// Read containerd's log until it ends, and watch for the line that means ready.
	var log bytes.Buffer
	ready, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		lines, booted := bufio.NewScanner(said), false
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			if !booted && strings.Contains(lines.Text(), "successfully booted") {
				booted = true
				close(ready)
			}
		}
	}()
	stop := sync.OnceFunc(func() {
		_ = daemon.Process.Signal(syscall.SIGTERM)
		<-ended
		_ = daemon.Wait()
	})
	defer stop()
	fail := func(format string, args ...any) {
		t.Helper()
		stop()
		t.Logf("containerd said:\n%s", &log)
		t.Fatalf(format, args...)
	}
	call := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, ctr, append([]string{"--address", socket, "--connect-timeout", "30s"}, args...)...).CombinedOutput()
		return string(out), err
	}
	select {
	case <-ready:
	case <-ended:
		fail("containerd ended")
	}
	if out, err := call("images", "import", "--all-platforms", "--no-unpack", archive); err != nil {
		fail("ctr images import: %v\n%s", err, out)
	}
	out, err := call("images", "list", "name==docker.io/library/watchlab:test")
	if err != nil {
		fail("ctr images list: %v\n%s", err, out)
	}
	tag, err := name.NewTag("watchlab:test")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, imageName(tag)) || !regexp.MustCompile(`linux/amd64,\s*linux/arm64`).MatchString(out) || !regexp.MustCompile(`sha256:[0-9a-f]{64}`).MatchString(out) {
		fail("containerd lists:\n%s", out)
	}
	if out, err := call("images", "check", "name==docker.io/library/watchlab:test"); err != nil || !strings.Contains(out, "complete") {
		fail("not all of it is there: %v\n%s", err, out)
	}
}
