package program_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"watchlab/bench/controller/program"
	"watchlab/loadgen/apiserver"
)

// serve serves one pod over TLS with a token.
func serve(t *testing.T) *program.InCluster {
	t.Helper()
	const token = "secret"
	s, err := apiserver.Open(apiserver.Options{Wrap: func(h http.Handler) http.Handler { return apiserver.RequireToken(token, h) }})
	if err != nil {
		t.Fatal(err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "a", "namespace": "default"}}}
	if err := s.Create(pod); err != nil {
		t.Fatal(err)
	}
	id, err := apiserver.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Serve(l, id.ServerConfig()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	host, port, _ := net.SplitHostPort(l.Addr().String())
	return &program.InCluster{Host: host, Port: port, CA: id.CA, Token: token, Namespace: "kube-system"}
}

func needNamespaces(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, program.ErrInCluster) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestInCluster(t *testing.T) {
	before, _ := os.Stat(program.ServiceAccount)
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	t.Setenv("KUBECONFIG", "/users/own")
	t.Setenv(roleVariable, "client")
	p, err := program.Start(t.Context(), program.Options{
		Client: "new-0", Command: []string{os.Args[0], "{client}"}, Log: log, Dir: dir, InCluster: serve(t),
	})
	needNamespaces(t, err)
	exit := p.Exit()
	want := fmt.Sprintf("user %d, new-0, 1 pods, namespace kube-system", os.Getuid())
	if got := strings.TrimSpace(logged(t, log)); got != want || exit.Status != "exit status 0" {
		t.Errorf("%s, %s, want %s", exit.Status, got, want)
	}
	if after, _ := os.Stat(program.ServiceAccount); (before == nil) != (after == nil) {
		t.Error("this process sees the service account")
	}
	for range 2 {
		if err := program.Clean(dir); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "log" {
		t.Errorf("%v, %v: the token is left", left, err)
	}
}

// TestInClusterEntries: the program sees the other entries of the folders above the service account.
func TestInClusterEntries(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	want, err := exec.Command("/bin/ls", "-A", "/run/", "/var/").Output()
	if err != nil {
		t.Skip(err)
	}
	p, err := program.Start(t.Context(), program.Options{
		Command: []string{"/bin/ls", "-A", "-I", "secrets", "/run/", "/var/"}, Log: log, Dir: dir, InCluster: &program.InCluster{},
	})
	needNamespaces(t, err)
	p.Exit()
	if got, err := os.ReadFile(log); err != nil || string(got) != strings.ReplaceAll(string(want), "secrets\n", "") {
		t.Errorf("%v, entries\n%swant\n%s", err, got, want)
	}
}

func TestInClusterErrors(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("\x00"), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := program.Start(t.Context(), program.Options{Command: shell("exit 7"), Log: log, Dir: dir, InCluster: &program.InCluster{}})
	needNamespaces(t, err)
	if exit := p.Exit(); exit.Status != "exit status 7" {
		t.Errorf("%+v", exit)
	}
	_, err = program.Start(t.Context(), program.Options{Command: []string{bad}, Log: log, Dir: dir, InCluster: &program.InCluster{}})
	if want := "cannot run the program as in a cluster; run it with a kubeconfig: " + bad + ": exec format error"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	_, err = program.Start(t.Context(), program.Options{Command: shell(""), Log: log, Dir: "/dev/null/x", InCluster: &program.InCluster{}})
	if !errors.Is(err, program.ErrInCluster) {
		t.Errorf("error %v of a folder that cannot be made", err)
	}
}

// starter starts the client with the options on standard input, as the user that it is.
func starter() error {
	var o program.Options
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return err
	}
	if err := os.Setenv(roleVariable, "client"); err != nil {
		return err
	}
	p, err := program.Start(context.Background(), o)
	if errors.Is(err, program.ErrInCluster) {
		fmt.Println("skip:", err)
		return nil
	}
	if err == nil {
		fmt.Println(p.Exit().Status)
	}
	return err
}

// TestInClusterUser: another user than root needs a user namespace, and stays that user.
func TestInClusterUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("TestInCluster tries this user")
	}
	const user = 65534
	dir, err := os.MkdirTemp("", "program")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary := filepath.Join(dir, "test")
	copyFile(t, binary, os.Args[0])
	if err := errors.Join(os.Chown(dir, user, user), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	options, err := json.Marshal(program.Options{Client: "new-0", Command: []string{binary, "{client}"}, Log: log, Dir: dir,
		InCluster: serve(t)})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Stdin = strings.NewReader(string(options))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), roleVariable+"=starter")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	if strings.HasPrefix(string(out), "skip:") {
		t.Skip(string(out))
	}
	if err != nil || string(out) != "exit status 0\n" {
		t.Fatalf("%v: %s", err, out)
	}
	if got, want := strings.TrimSpace(logged(t, log)), fmt.Sprintf("user %d, new-0, 1 pods, namespace kube-system", user); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	program, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
