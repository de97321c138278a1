package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"watchlab/bench/e2e/programs"
)

// disk mounts an own small file system and returns its path.
func (s *step) disk(size int) string {
	s.Helper()
	dir := s.path("disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		s.Fatal(err)
	}
	s.tool("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dk", size), "chaos", dir)
	s.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			s.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// longRun are the arguments of a run of several processes and cells, which takes some seconds.
func (s *step) longRun(out string) []string {
	args := runArgs(out, "--rounds", "3", "--seed", fmt.Sprint(1+s.rng.IntN(1000)))
	switch s.rng.IntN(3) {
	case 0:
		return append(args, "--pipeline", "queue", "--impl", "clientgo-realfifo,ring", "--delivery", "in-order", "--pace", "max,2000", "--duration", "200ms", "--events", "3000")
	case 1:
		return append(args, "--pipeline", "informer", "--source", "apiserver", "--impl", "clientgo-informer,ring", "--delivery", "in-order", "--pace", "500", "--duration", "300ms")
	}
	return append(args, "--pipeline", "kubelet", "--source", pick(s, []string{"memory", "apiserver"}), "--impl", "reference,ring", "--pace", "300", "--duration", "300ms")
}

// afterDisk checks a run that met a fault of the disk and ended: an incomplete folder is refused; a run in
// it has all rounds that were reported as finished, and is resumed after the repair.
func (s *step) afterDisk(out string, p *programs.Process, says string, repair func()) {
	s.Helper()
	if p.ProcessState.ExitCode() == done {
		// The run met nothing: it was over, or needs less.
		repair()
		s.whole(s.load(out))
		return
	}
	s.expect(p, failed, badInput)
	if !strings.Contains(p.Output.String(), says) || dump.MatchString(p.Output.String()) {
		s.Errorf("the output does not say %q:\n%s", says, p.Output)
	}
	s.struck++
	before := s.finished(out)
	repair()
	if !complete(out) {
		s.outcome = refused
		_, text := s.run(s.command("run", "--resume", out), badInput)
		s.isOneLine(text)
		return
	}
	s.kept(out, before)
	s.resume(out)
	s.kept(out, before)
}

// diskFull plays on a disk that becomes full, and goes on when it has more room.
func (s *step) diskFull() {
	disk := s.disk(4 * (1 + s.rng.IntN(160)))
	out := filepath.Join(disk, "out")
	p := s.start(s.command(s.longRun(out)...))
	s.wait(p)
	s.afterDisk(out, p, "no space left on device", func() { s.tool("mount", "-o", "remount,size=64m", disk) })
}

// shortWrite limits the size of files of a running command: a write returns after a part of its bytes.
func (s *step) shortWrite() {
	programs.Installed(s, "prlimit")
	out := s.path("out")
	p := s.start(s.command(s.longRun(out)...))
	if s.until(p, s.between(0, 3*time.Second)) {
		limit := strconv.Itoa(1 << (6 + s.rng.IntN(11)))
		// The process may have ended.
		_ = exec.Command("prlimit", "--pid", strconv.Itoa(p.Process.Pid), "--fsize="+limit).Run()
	}
	s.wait(p)
	s.afterDisk(out, p, "file too large", func() {})
}

// readOnly makes the disk of a running command read-only.
func (s *step) readOnly() {
	disk := s.disk(64 << 10)
	out := filepath.Join(disk, "out")
	p := s.start(s.command(s.longRun(out)...))
	if s.until(p, s.between(100*time.Millisecond, 3*time.Second)) {
		// It is busy while a file is being written.
		programs.Eventually(s, "the disk is read-only", func() error {
			return exec.Command("mount", "-o", "remount,ro", disk).Run()
		})
	}
	s.wait(p)
	s.afterDisk(out, p, "read-only file system", func() { s.tool("mount", "-o", "remount,rw", disk) })
}
