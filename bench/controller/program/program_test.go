package program_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchlab/bench/controller/program"
)

// roleVariable makes the test binary another program.
const roleVariable = "PROGRAM_TEST_ROLE"

func TestMain(m *testing.M) {
	program.RunChild()
	role := os.Getenv(roleVariable)
	var err error
	switch role {
	case "":
		goleak.VerifyTestMain(m)
	case "client":
		err = client()
	case "starter":
		err = starter()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// client is a controller that finds its server as in a cluster.
func client() error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	list, err := set.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err
	}
	namespace, err := os.ReadFile(program.ServiceAccount + "/namespace")
	fmt.Printf("user %d, %s, %d pods, namespace %s\n", os.Getuid(), os.Args[1], len(list.Items), namespace)
	return err
}

func start(t *testing.T, o program.Options) *program.Program {
	t.Helper()
	if o.Log == "" {
		o.Log = filepath.Join(t.TempDir(), "log")
	}
	p, err := program.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		p.Exit()
	})
	return p
}

func shell(script string) []string { return []string{"/bin/sh", "-c", script} }

// lines is a pipe that programs write to as {dir}/pipe.
type lines struct {
	dir string
	t   *testing.T
	in  *os.File // pipe
	out *os.File // second pipe
}

func newLines(t *testing.T) *lines {
	t.Helper()
	l := &lines{dir: t.TempDir(), t: t}
	if err := unix.Mkfifo(filepath.Join(l.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range []*os.File{l.in, l.out} {
			if f != nil {
				_ = f.Close()
			}
		}
	})
	return l
}

// next waits for a line.
func (l *lines) next() string {
	l.t.Helper()
	var err error
	if l.in == nil {
		l.in, err = os.Open(filepath.Join(l.dir, "pipe"))
	}
	if err == nil {
		err = l.in.SetReadDeadline(time.Now().Add(time.Minute))
	}
	var line []byte
	for c := []byte{0}; err == nil && c[0] != '\n'; {
		if _, err = l.in.Read(c); err == nil {
			line = append(line, c[0])
		}
	}
	if err != nil {
		l.t.Fatalf("waiting for a line of the program: %v", err)
	}
	return strings.TrimSpace(string(line))
}

// end waits until nobody can write to the pipe: all processes with it have ended.
func (l *lines) end() {
	l.t.Helper()
	err := l.in.SetReadDeadline(time.Now().Add(time.Minute))
	if err == nil {
		_, err = io.Copy(io.Discard, l.in)
	}
	if err != nil {
		l.t.Fatal("a process lives on: ", err)
	}
}

// second is a pipe that a program reads from; see send.
func (l *lines) second() string {
	l.t.Helper()
	path := filepath.Join(l.dir, "second")
	err := unix.Mkfifo(path, 0o600)
	if err == nil {
		// With both ends it opens at once. A signal that interrupts the open of one end shows the program
		// a writer that has left.
		l.out, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return path
}

// send writes a line to the second pipe.
func (l *lines) send() {
	l.t.Helper()
	if _, err := l.out.WriteString("go\n"); err != nil {
		l.t.Fatal(err)
	}
}

// logged returns the log of a program that has ended.
func logged(t *testing.T, log string) string {
	t.Helper()
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestExit(t *testing.T) {
	for _, tc := range []struct {
		name, script, status string
		end                  func(p *program.Program)
		planned              bool
	}{
		{name: "success", script: "exit 0", status: "exit status 0"},
		{name: "failure", script: "exit 3", status: "exit status 3"},
		{name: "crash", script: "kill -ABRT $$", status: "signal: aborted"},
		{name: "kill", script: "echo >$0; sleep 60", status: "signal: killed", end: (*program.Program).Kill, planned: true},
		{name: "stop", script: "trap 'exit 4' TERM; echo >$0; sleep 60 & wait", status: "exit status 4",
			end: func(p *program.Program) { p.Stop(time.Minute) }, planned: true},
		{name: "deaf", script: "trap '' TERM; echo >$0; while :; do sleep 1; done", status: "signal: killed",
			end: func(p *program.Program) { p.Stop(time.Millisecond) }, planned: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLines(t)
			p := start(t, program.Options{Command: append(shell(tc.script), "{dir}/pipe"), Dir: l.dir})
			if tc.end != nil {
				l.next()
				tc.end(p)
			}
			exit := p.Exit()
			// A core dump is the machine's choice.
			exit.Status, _, _ = strings.Cut(exit.Status, " (")
			if exit.Status != tc.status || exit.Planned != tc.planned || exit.At.IsZero() {
				t.Errorf("%+v, want %s, planned %v", exit, tc.status, tc.planned)
			}
			p.Kill() // Does nothing: another process may have the id.
			if exit := p.Exit(); exit.Planned != tc.planned {
				t.Error("a kill after the end planned it")
			}
		})
	}
}

// TestChildren: children end with the program, also with one that crashes.
func TestChildren(t *testing.T) {
	for name, end := range map[string]func(*program.Program){
		"kill":  (*program.Program).Kill,
		"stop":  func(p *program.Program) { p.Stop(time.Minute) },
		"crash": func(p *program.Program) { _ = syscall.Kill(p.Pid(), syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLines(t)
			p := start(t, program.Options{Dir: l.dir,
				Command: append(shell("(trap '' TERM; echo; while :; do sleep 1; done) >$0 & wait"), "{dir}/pipe")})
			l.next()
			end(p)
			p.Exit()
			l.end()
		})
	}
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := program.Start(ctx, program.Options{Command: shell("sleep 60"), Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if exit := p.Exit(); exit.Status != "signal: killed" || !exit.Planned {
		t.Errorf("%+v", exit)
	}
}

func TestStartErrors(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "controller")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(folder, "bad")
	if err := os.WriteFile(bad, []byte("\x00"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		options program.Options
		want    string
	}{
		{"empty", program.Options{}, "cannot start the program: the command is empty"},
		{"name", program.Options{Command: []string{"no-such-controller"}},
			"cannot start the program no-such-controller: executable file not found in $PATH"},
		{"path", program.Options{Command: []string{"./no/such"}},
			"cannot start the program ./no/such: stat ./no/such: no such file or directory"},
		{"permission", program.Options{Command: []string{file}}, "cannot start the program " + file + ": permission denied"},
		{"format", program.Options{Command: []string{bad}},
			"cannot start the program " + bad + ": fork/exec " + bad + ": exec format error"},
		{"placeholder", program.Options{Command: []string{"sh", "--kubeconfig={kubeconfig}"}},
			`cannot start the program sh: argument "--kubeconfig={kubeconfig}": no {kubeconfig} in this run`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.options.Log = filepath.Join(t.TempDir(), "log")
			_, err := program.Start(t.Context(), tc.options)
			if err == nil || err.Error() != tc.want || !errors.Is(err, program.ErrCommand) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
	if _, err := program.Start(t.Context(), program.Options{Command: shell(""), Log: filepath.Join(folder, "no", "log")}); err == nil {
		t.Error("no error of a log without a folder")
	}
}

func TestPlaceholders(t *testing.T) {
	t.Setenv("KUBECONFIG", "/users/own")
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	log := filepath.Join(t.TempDir(), "log")
	p := start(t, program.Options{
		Client: "new-0", Kubeconfig: "/play/kubeconfig", Dir: "/play/new-0", Log: log,
		Command: append(shell(`echo "$KUBECONFIG $KUBERNETES_SERVICE_HOST $0 $1 $2 $3"`),
			"{dir}/certs", "--kubeconfig={kubeconfig}", "--metrics={metrics}", "--id={client}"),
	})
	p.Exit()
	metrics := strings.TrimSuffix(strings.TrimPrefix(p.MetricsURL(), "//"), "/metrics")
	if host, port, err := net.SplitHostPort(metrics); err != nil || host != "127.0.0.1" || port == "0" {
		t.Errorf("metrics at %s", p.MetricsURL())
	}
	want := "/play/kubeconfig  /play/new-0/certs --kubeconfig=/play/kubeconfig --metrics=" + metrics + " --id=new-0"
	if got := strings.TrimSpace(logged(t, log)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if url := start(t, program.Options{Command: shell("")}).MetricsURL(); url != "" {
		t.Errorf("metrics at %s, want none", url)
	}
}

// TestLog: output and errors go to the log, also those after a restart.
func TestLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for _, script := range []string{"echo out; echo err >&2", "echo more"} {
		start(t, program.Options{Command: shell(script), Log: log}).Exit()
	}
	if got := logged(t, log); got != "out\nerr\nmore\n" {
		t.Errorf("log %q", got)
	}
}
