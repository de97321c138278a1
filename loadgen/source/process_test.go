package source_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// asParent is the environment variable that makes TestParent the parent of a server's process.
const asParent = "WATCHLAB_TEST_PARENT"

func maker(t *testing.T) source.Maker {
	t.Helper()
	m := must(source.Options{}.Prepare(source.APIServerName, empty()))(t)
	return m
}

func use(ctx context.Context, t *testing.T, m source.Maker) *source.APIServer {
	t.Helper()
	src := must(m(ctx))(t)
	return src.(*source.APIServer)
}

// A process serves all plays of a storm in a run, and ends with it.
func TestProcess(t *testing.T) {
	m := maker(t)
	first, endFirst := context.WithCancel(t.Context())
	second, endSecond := context.WithCancel(t.Context())
	defer endFirst()
	defer endSecond()
	a, b, c := use(first, t, m), use(second, t, m), use(second, t, m)
	pid := b.Process().Pid
	if pid == os.Getpid() || a.Process().Pid == pid || c.Process().Pid != pid || b.URL() == c.URL() {
		t.Fatalf("servers %s of process %d, %s of %d, %s of %d; this is %d", a.URL(), pid, b.URL(), b.Process().Pid, c.URL(), c.Process().Pid, os.Getpid())
	}
	endFirst()
	s := newSink()
	inform(t, b, s)
	play(t, b, empty(), pace.Unpaced)
	s.await(t, uint64(len(empty().Events)))
	if got, err := b.Refresh(); err != nil || got.Snapshots != 1 || got.WireBytes == 0 {
		t.Errorf("counters %+v, %v", got, err)
	}
	if got, err := c.Refresh(); err != nil || got.WireBytes != 0 {
		t.Errorf("counters of an unused server %+v, %v", got, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	endSecond()
	source.Wait() // The end of a context reaches its process some time later.
	if err := errors.Join(a.Close(), c.Close()); err != nil {
		t.Errorf("Close after the end of the run: %v", err)
	}
	// A later run has a process of its own.
	if d := use(t.Context(), t, m); d.Process().Pid == pid {
		t.Error("a process that ended serves a later run")
	}
}

// Release times are those of this process's clock.
func TestReleaseTimes(t *testing.T) {
	st := empty()
	src := open(t, source.APIServerName, st)
	p := pacer(t, 20_000)
	var at []time.Time
	if err := src.Play(t.Context(), p, uint64(len(st.Events)), func(_ uint64, when time.Time) { at = append(at, when) }); err != nil {
		t.Fatal(err)
	}
	end := time.Now()
	const fault = time.Millisecond // of the two readings of the machine's clock
	for i, when := range at {
		if due := p.Started().Add(p.Intended(i)); when.Before(due.Add(-fault)) || when.After(end.Add(fault)) {
			t.Errorf("event %d, due at %v, was released at %v, and Play ended at %v", i, due, when, end)
		}
	}
	if len(at) != len(st.Events) {
		t.Errorf("%d releases, want %d", len(at), len(st.Events))
	}
}

// A lost process ends the play with the reason.
func TestLostProcess(t *testing.T) {
	src := use(t.Context(), t, maker(t))
	played := make(chan error, 1)
	go func() { played <- src.Play(t.Context(), pacer(t, 1), 1000, nil) }()
	noError(t, src.Process().Kill())
	if err := <-played; err == nil || !strings.Contains(err.Error(), "process has ended") || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Play: %v", err)
	}
	if err := src.Close(); err == nil {
		t.Error("Close: no error")
	}
}

// The process ends when its parent is killed.
func TestKilledParent(t *testing.T) {
	self := must(os.Executable())(t)
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestParent$")
	cmd.Env = append(os.Environ(), asParent+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	var address string
	if err == nil {
		_, err = fmt.Fscanf(out, "http://%s", &address)
	}
	if err != nil {
		t.Fatal(err)
	}
	conn := must(net.Dial("tcp", address))(t)
	defer func() { _ = conn.Close() }()
	noError(t, errors.Join(cmd.Process.Kill(), conn.SetReadDeadline(time.Now().Add(patience))))
	_ = cmd.Wait() // killed
	// The end of the process closes the connection.
	if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the process lives on")
	}
}

// TestParent is the parent of TestKilledParent.
func TestParent(t *testing.T) {
	if os.Getenv(asParent) == "" {
		t.Skip("it runs in a process of TestKilledParent")
	}
	src := use(t.Context(), t, maker(t))
	fmt.Println(src.URL())
	go func() { _ = src.Play(t.Context(), pacer(t, 0.01), 1000, nil) }() // Calls in progress do not keep the process.
	select {}
}
