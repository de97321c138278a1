package chaos

import (
	"os"
	"strings"
	"syscall"
	"time"

	"watchlab/bench/e2e/programs"
)

var signals = map[string]syscall.Signal{"term": syscall.SIGTERM, "kill": syscall.SIGKILL}

// strike sends a signal after a random time, waits for the end, and reports whether the signal ended the
// program. SIGTERM ends it with 130. Before the command handles signals it ends it as SIGKILL does: in the
// first moments of a process, of which a run has several.
func (s *step) strike(p *programs.Process, signal string, within time.Duration) bool {
	s.Helper()
	at := s.between(0, within)
	if s.until(p, at) {
		_ = p.Process.Signal(signals[signal]) // The program may have ended.
	}
	code := s.wait(p)
	early := at < time.Second || p.Args[1] == "run"
	switch {
	case code == done:
		return false
	case signal == "term" && code == killed && !early:
		s.Errorf("watchlab %s: %v after %v, want exit code %d\n%s", strings.Join(p.Args[1:], " "), p.ProcessState, at, interrupted, p.Output)
	case signal == "term" && code != killed:
		s.expect(p, interrupted)
	case signal == "kill":
		s.expect(p, killed)
	}
	if dump.MatchString(p.Output.String()) {
		s.Errorf("a dump of goroutines:\n%s", p.Output)
	}
	s.struck++
	return true
}

// signalRun interrupts a run, and its resumption, at random times, and resumes it to the end.
func (s *step) signalRun(signal string) {
	out := s.path("out")
	begin := s.longRun(out)
	args := begin
	for range 1 + s.rng.IntN(3) {
		before := s.finished(out)
		struck := s.strike(s.start(s.command(args...)), signal, 4*time.Second)
		s.kept(out, before)
		switch {
		case !struck:
			s.whole(s.load(out))
			return
		case complete(out):
			args = []string{"run", "--resume", out}
		default:
			// Nothing was finished. The folder may be there without a run.
			if err := os.RemoveAll(out); err != nil {
				s.Fatal(err)
			}
		}
	}
	if !complete(out) {
		s.run(s.command(begin...), done)
		s.whole(s.load(out))
		return
	}
	s.resume(out)
}
