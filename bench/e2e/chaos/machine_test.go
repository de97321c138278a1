package chaos

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
)

// memoryGroup is a control group for memory, of either version of the interface.
type memoryGroup struct {
	dir, usage, limit, none string
}

// group creates a control group beside all others. It is removed after its processes.
func (s *step) group() memoryGroup {
	s.Helper()
	const root = "/sys/fs/cgroup"
	name := fmt.Sprintf("watchlab-chaos-%d-%d", os.Getpid(), s.n)
	g := memoryGroup{filepath.Join(root, name), "memory.current", "memory.max", "max"}
	controllers, _ := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")) // None in version 1.
	if !strings.Contains(string(controllers), "memory") {
		g = memoryGroup{filepath.Join(root, "memory", name), "memory.usage_in_bytes", "memory.limit_in_bytes", "-1"}
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		s.cannot("no control group: %v", err)
	}
	s.Cleanup(func() {
		programs.Eventually(s, "the control group is removed", func() error { return os.Remove(g.dir) })
	})
	return g
}

func (g memoryGroup) write(file, text string) error {
	return os.WriteFile(filepath.Join(g.dir, file), []byte(text), 0o644)
}

// memoryLimit sets a limit that a command reaches at some time of its run, and half the limit if it doesn't.
// The kernel kills the command, or its server: then the cell is invalid by name.
func (s *step) memoryLimit() {
	g := s.group()
	source := pick(s, []string{"memory", "apiserver"})
	for limit := 30 + s.rng.IntN(100); s.struck == 0 && limit > 0; limit /= 2 {
		s.limited(g, limit, source)
	}
}

// limited plays a run with a limit in MiB.
func (s *step) limited(g memoryGroup, limit int, source string) {
	s.Helper()
	out := s.path(fmt.Sprintf("out%d", limit))
	if err := g.write(g.limit, strconv.Itoa(limit<<20)); err != nil {
		s.cannot("the control group takes no limit: %v", err)
	}
	p := s.start(s.command(runArgs(out, "--pipeline", "informer", "--source", source,
		"--impl", "clientgo-informer,ring", "--delivery", "in-order", "--events", "5000", "--rounds", "3")...))
	if err := g.write("cgroup.procs", strconv.Itoa(p.Process.Pid)); err != nil {
		s.cannot("the control group takes no process: %v", err)
	}
	code := s.wait(p)
	s.expect(p, done, killed, failed)
	if err := g.write(g.limit, g.none); err != nil {
		s.Fatal(err)
	}
	switch {
	case code == done:
		s.whole(s.load(out))
	case code == killed && complete(out):
		s.struck++
		before := s.finished(out)
		// A cell may have lost its server before.
		s.run(s.command("run", "--resume", out), done, failed)
		s.kept(out, before)
		s.noneBlamed(out)
	case code == killed:
		s.struck++
		s.outcome = refused
	default:
		s.struck++
		s.noneBlamed(out)
	}
}

// noneBlamed checks that cells whose server or process was killed are invalid for an error, and not for an
// event that a variant lost.
func (s *step) noneBlamed(out string) {
	s.Helper()
	for _, cl := range s.load(out).Cells() {
		if !cl.Verdict.Failed() {
			continue
		}
		s.outcome = invalid
		if cl.Verdict.Cause != lab.CauseError {
			s.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		}
	}
}

// serverKilled kills the process of the simulated server in the middle of a run.
func (s *step) serverKilled() {
	out := s.path("out")
	args := runArgs(out, "--source", "apiserver", "--pace", pick(s, []string{"max", "300"}), "--events", "3000", "--rounds", "1")
	if s.rng.IntN(2) == 0 {
		args = append(args, "--pipeline", "informer", "--impl", "clientgo-informer,ring", "--delivery", "in-order")
	} else {
		args = append(args, "--pipeline", "kubelet", "--impl", "reference,ring")
	}
	p := s.start(s.command(args...))
	wait := s.between(700*time.Millisecond, 5*time.Second)
	for s.struck == 0 && s.until(p, wait) {
		wait = 20 * time.Millisecond // A slow machine has not started the server yet, or is between two cells.
		for id, line := range s.processes() {
			if strings.HasSuffix(line, " apiserver ") {
				s.struck++
				_ = syscall.Kill(id, syscall.SIGKILL) // It may have ended.
			}
		}
	}
	s.wait(p)
	s.expect(p, done, failed)
	s.noneBlamed(out)
}

// monotonicJump interrupts a run and resumes it where the monotonic clock is an hour off, as after a
// restart of the machine: a time namespace. The namespace of the first part is the machine's.
func (s *step) monotonicJump() {
	shift := pick(s, []string{"3600", "-3600"})
	namespace := []string{"-T", "--fork", "--kill-child", "--monotonic", shift, "--boottime", shift}
	s.tool("unshare", append(namespace, "true")...)
	out := s.path("out")
	begin := s.longRun(out)
	for !complete(out) {
		if err := os.RemoveAll(out); err != nil {
			s.Fatal(err)
		}
		p := s.start(s.command(begin...))
		if s.until(p, s.between(time.Second, 4*time.Second)) {
			p.End(syscall.SIGKILL, patience)
		}
	}
	before := s.finished(out)
	cmd := s.command("run", "--resume", out)
	jumped := s.command()
	jumped.Path, jumped.Args = programs.Installed(s, "unshare"), append([]string{"unshare"}, append(namespace, cmd.Args...)...)
	s.run(jumped, done)
	s.struck++
	s.kept(out, before)
	s.whole(s.load(out))
}

var timestamp = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]+"`)

// wallJump interrupts a run, and moves all times in its files by an hour, which is what a jump of the wall
// clock leaves: no namespace has a wall clock of its own. Then it resumes the run. A client whose clock is an
// hour off connects to the server.
func (s *step) wallJump() {
	shift := pick(s, []time.Duration{time.Hour, -time.Hour})
	out := s.path("out")
	begin := s.longRun(out)
	for !complete(out) {
		if err := os.RemoveAll(out); err != nil {
			s.Fatal(err)
		}
		p := s.start(s.command(begin...))
		if s.until(p, s.between(time.Second, 4*time.Second)) {
			p.End(syscall.SIGKILL, patience)
		}
	}
	for _, name := range []string{lab.RunFile, lab.EnvFile} {
		path := filepath.Join(out, name)
		text, err := os.ReadFile(path)
		if err != nil {
			s.Fatal(err)
		}
		text = timestamp.ReplaceAllFunc(text, func(old []byte) []byte {
			at, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(old))
			if err != nil {
				return old
			}
			s.struck = 1
			return []byte(at.Add(shift).Format(`"` + time.RFC3339Nano + `"`))
		})
		if err := os.WriteFile(path, text, 0o644); err != nil {
			s.Fatal(err)
		}
	}
	s.resume(out)

	srv := s.serve("--start", "0")
	address, err := url.Parse(srv.config.Host)
	if err != nil {
		s.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(srv.config.CAData)
	conn, err := tls.Dial("tcp", address.Host, &tls.Config{RootCAs: roots, Time: func() time.Time { return time.Now().Add(shift) }})
	if err != nil {
		s.Fatalf("a client whose clock is %v off: %v", shift, err)
	}
	_ = conn.Close()
	srv.end()
}
