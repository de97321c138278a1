package chaos

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/lab"
)

// Exit codes of docs/runs.md. killed is that of a process that a signal ended.
const (
	done        = 0
	failed      = 1
	badInput    = 2
	interrupted = 130
	killed      = -1
)

// command returns a command of bin/watchlab, or of the program that env names.
func (s *step) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "TMPDIR="+s.tmp)
	return cmd
}

// ownCommand returns a command of this program, which has broken variants.
func (s *step) ownCommand(args ...string) *exec.Cmd {
	s.Helper()
	cmd := s.command(args...)
	self, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	cmd.Path, cmd.Args[0] = self, self
	cmd.Env = append(cmd.Env, asCommand+"=1")
	return cmd
}

// start starts a program. It ends with the step.
func (s *step) start(cmd *exec.Cmd) *programs.Process {
	s.Helper()
	p, err := programs.Run(cmd, 1<<20)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { p.End(syscall.SIGKILL, programs.Patience) })
	return p
}

// patience is the time limit for the end of a program. client-go waits for up to a minute between two
// attempts to connect, and a pipeline with faults is stalled after three minutes.
const patience = 8 * time.Minute

// wait waits for the end of a program and returns its exit code.
func (s *step) wait(p *programs.Process) int {
	s.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case <-p.Done:
	case <-limit.C:
		p.End(syscall.SIGQUIT, 10*time.Second)
		s.Fatalf("%v has not ended after %v\n%s", p.Args[1:], patience, p.Output)
	}
	return p.ProcessState.ExitCode()
}

// run runs a program to its end. Its exit code must be one of codes.
func (s *step) run(cmd *exec.Cmd, codes ...int) (code int, output string) {
	s.Helper()
	p := s.start(cmd)
	code = s.wait(p)
	s.expect(p, codes...)
	return code, p.Output.String()
}

// expect checks the exit code of a program that has ended.
func (s *step) expect(p *programs.Process, codes ...int) {
	s.Helper()
	if code := p.ProcessState.ExitCode(); !slices.Contains(codes, code) {
		s.Fatalf("watchlab %s: %v, want exit code %v\n%s", strings.Join(p.Args[1:], " "), p.ProcessState, codes, p.Output)
	}
}

// runArgs are the arguments of a run of a small storm into a folder. The lag budget is no concern of faults:
// a late release makes a cell invalid by name, and this one would have no figures to check.
func runArgs(out string, args ...string) []string {
	return slices.Concat([]string{"run", "--storm", "nodeloss", "--nodes", "1", "--lag-budget", "1m", "--ignore-host", "--out", out}, args)
}

// played has the start of each finished round by cell and number.
type played map[string]time.Time

// load reads a results folder, which belongs to the step from now on.
func (s *step) load(dir string) *lab.Outcome {
	s.Helper()
	if !slices.Contains(s.folders, dir) {
		s.folders = append(s.folders, dir)
	}
	o, err := lab.Load(dir)
	if err != nil {
		s.Fatalf("the results are not readable: %v", err)
	}
	return o
}

// finished returns the finished rounds of a results folder; none if the folder is incomplete. A folder
// with a run must be readable at any time.
func (s *step) finished(dir string) played {
	s.Helper()
	if !complete(dir) {
		return nil
	}
	return s.roundsOf(s.load(dir))
}

// complete reports whether a results folder has a run. run.json is its last file.
func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, lab.RunFile))
	return err == nil
}

// roundsOf returns the finished rounds. No round may be there twice.
func (s *step) roundsOf(o *lab.Outcome) played {
	s.Helper()
	rounds := played{}
	for _, cl := range o.Cells() {
		for _, r := range slices.Concat(cl.Rounds, cl.Withheld) {
			id := fmt.Sprintf("round %d of %s", r.Round, cl.BenchName())
			if _, twice := rounds[id]; twice {
				s.Errorf("%s is there twice", id)
			}
			rounds[id] = r.Started
		}
	}
	return rounds
}

// kept checks that the rounds of a results folder contain earlier ones, as they were: none was lost, and
// none was played again.
func (s *step) kept(dir string, before played) {
	s.Helper()
	now := s.finished(dir)
	for id, started := range before {
		if at, ok := now[id]; !ok {
			s.Errorf("%s was finished, and is lost", id)
		} else if !at.Equal(started) {
			s.Errorf("%s was finished, and was played again", id)
		}
	}
}

// resume resumes the run of a folder to its end and checks that it plays no round again. Its cells have
// all rounds, or are invalid for a cause outside of the variants.
func (s *step) resume(dir string) {
	s.Helper()
	before := s.finished(dir)
	s.run(s.command("run", "--resume", dir), done)
	s.kept(dir, before)
	s.whole(s.load(dir))
}

// whole checks that a run has ended with all rounds of its cells.
func (s *step) whole(o *lab.Outcome) {
	s.Helper()
	if o.Ended == nil || o.Interrupted || o.Paused {
		s.Errorf("ended %v, interrupted %v, paused %v", o.Ended, o.Interrupted, o.Paused)
	}
	for c, cl := range o.Cells() {
		switch {
		case cl.Verdict.Failed():
			s.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		case cl.Verdict.Status == lab.Invalid:
			s.outcome = invalid
		case len(cl.Rounds) != c.Rounds:
			s.Errorf("%s: %d rounds of %d, %s", cl.BenchName(), len(cl.Rounds), c.Rounds, cl.Verdict)
		}
	}
}

// dump finds the head of a goroutine in a dump.
var dump = regexp.MustCompile(`goroutine \d+ \[`)

// checkFolder checks a results folder at the end of a step.
func (s *step) checkFolder(dir string) {
	s.Helper()
	if !complete(dir) {
		return
	}
	for _, cl := range s.load(dir).Cells() {
		valid := cl.Verdict.Status == lab.Valid || cl.Verdict.Status == lab.Noisy
		if valid != (len(cl.Rounds) > 0) {
			s.Errorf("%s: %s with %d rounds", cl.BenchName(), cl.Verdict, len(cl.Rounds))
		}
		for _, r := range cl.Rounds {
			if r.Result.EventsIn != cl.Rounds[0].Result.EventsIn {
				s.Errorf("%s: %d events in round %d, %d in round %d", cl.BenchName(), r.Result.EventsIn, r.Round, cl.Rounds[0].Result.EventsIn, cl.Rounds[0].Round)
			}
		}
	}
	s.run(s.command("report", dir), done)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") {
			s.Errorf("%s is left", path)
		}
		data, err := os.ReadFile(path)
		if dump.Match(data) {
			s.Errorf("%s has a dump of goroutines", path)
		}
		return err
	})
	if err != nil {
		s.Error(err)
	}
}

// until waits for a random time or the end of a program, whichever is first. It reports whether the
// program still runs.
func (s *step) until(p *programs.Process, after time.Duration) bool {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-p.Done:
		return false
	case <-timer.C:
		return true
	}
}

// tool runs a program of the system; the step is skipped if the machine cannot.
func (s *step) tool(name string, args ...string) {
	s.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		s.cannot("%s: %v: %s", name, err, strings.TrimSpace(string(out)))
	}
}

// errorOf returns the error line of a program's output.
func errorOf(output string) string {
	for line := range strings.Lines(output) {
		if text, ok := strings.CutPrefix(line, "watchlab: "); ok {
			return strings.TrimSpace(text)
		}
	}
	return ""
}

// isOneLine checks that a program said in one line why it refused.
func (s *step) isOneLine(output string, wants ...string) {
	s.Helper()
	if strings.Count(output, "\n") != 1 || errorOf(output) == "" {
		s.Errorf("not one line: %q", output)
	}
	for _, want := range wants {
		if !strings.Contains(output, want) {
			s.Errorf("%q does not say %q", output, want)
		}
	}
}
