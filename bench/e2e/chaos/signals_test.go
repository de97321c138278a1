package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
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

const pods = 2 // of an upload

// plan writes the plan of a load Job whose pods upload into a folder.
func (s *step) plan(bundles string, rounds int) string {
	s.Helper()
	experiment, err := json.Marshal(map[string]any{
		"family": "queue", "variants": []string{"clientgo-fifo", "ring"}, "storm": map[string]any{"name": "recorded-gang"}, "events": 3000, "rounds": rounds,
	})
	if err != nil {
		s.Fatal(err)
	}
	text, err := fleet.Plan{Run: "chaos", Mode: fleet.ModeSelf, Pods: pods, Experiment: experiment, Upload: "dir=" + bundles}.YAML()
	if err != nil {
		s.Fatal(err)
	}
	path := s.path("plan.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// pod returns the command of a pod.
func (s *step) pod(plan string, index int) *exec.Cmd {
	cmd := s.command("pod", "--plan", plan, "--metrics-addr", "127.0.0.1:0")
	cmd.Env = append(cmd.Env, fleet.IndexVar+"="+strconv.Itoa(index))
	return cmd
}

// collect merges bundles and checks the result: each pod once, with all rounds.
func (s *step) collect(bundles string, rounds int) {
	s.Helper()
	out := s.path("merged")
	s.run(s.command("cluster", "collect", bundles, "--out", out), done)
	o := s.load(out)
	if o.Merged == nil || len(o.Merged.Missing) > 0 || len(o.Merged.Shares) != pods {
		s.Errorf("merged: %+v", o.Merged)
	}
	for _, cl := range o.Cells() {
		switch {
		case cl.Verdict.Failed():
			s.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		case cl.Verdict.Status == lab.Invalid:
			s.outcome = invalid
		case len(cl.Rounds) != rounds:
			s.Errorf("%s: %d rounds, want %d: %s", cl.BenchName(), len(cl.Rounds), rounds, cl.Verdict)
		}
	}
}

// signalUpload interrupts pods that play and upload, and starts them again, as a Job does.
func (s *step) signalUpload(signal string) {
	const rounds = 2
	bundles := s.path("bundles")
	plan := s.plan(bundles, rounds)
	for i := range pods {
		for range 1 + s.rng.IntN(2) {
			if !s.strike(s.start(s.pod(plan, i)), signal, 2*time.Second) {
				break
			}
		}
		s.run(s.pod(plan, i), done)
	}
	if signal == "term" {
		s.noneHidden(bundles)
	}
	s.collect(bundles, rounds)
}

// noneHidden checks that no unfinished file is in a folder.
func (s *step) noneHidden(dir string) {
	s.Helper()
	left, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	if err != nil || len(left) > 0 {
		s.Errorf("%v, left: %q", err, left)
	}
}

// uploaded are the bundles of a finished Job, played once for all steps.
var uploaded struct {
	sync.Mutex
	files map[string][]byte // by relative path
}

// uploaded returns them. The first step plays the Job, into its folder.
func (s *step) uploaded(bundles string, rounds int) map[string][]byte {
	s.Helper()
	uploaded.Lock()
	defer uploaded.Unlock()
	if uploaded.files == nil {
		for i := range pods {
			s.run(s.pod(s.plan(bundles, rounds), i), done)
		}
		uploaded.files = s.files(bundles)
	}
	return uploaded.files
}

// signalMerge merges uploaded results, interrupts five more merges, and merges again. The bundles stay as they
// are. A signal that comes after the end of a merge, which is short, strikes none.
func (s *step) signalMerge(signal string) {
	const rounds = 1
	bundles := s.path("bundles")
	before := s.uploaded(bundles, rounds)
	for name, data := range before {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(bundles, name)), 0o755); err != nil {
			s.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bundles, name), data, 0o600); err != nil {
			s.Fatal(err)
		}
	}
	began := time.Now()
	s.run(s.command("cluster", "collect", bundles, "--out", s.path("whole")), done)
	took := time.Since(began)
	for i := 0; i < 5 || i < 100 && s.struck == 0; i++ {
		s.spool = signal == "kill"
		out := s.path("struck" + strconv.Itoa(i))
		if s.strike(s.start(s.command("cluster", "collect", bundles, "--out", out)), signal, took) && complete(out) {
			s.load(out)
		}
	}
	for name, data := range s.files(bundles) {
		if !bytes.Equal(data, before[name]) {
			s.Errorf("%s has changed", name)
		}
	}
	s.collect(bundles, rounds)
}

// files reads the files below a folder, by their relative paths.
func (s *step) files(dir string) map[string][]byte {
	s.Helper()
	files := map[string][]byte{}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		s.Fatal(err)
	}
	for _, path := range paths {
		name, err := filepath.Rel(dir, path)
		if err == nil {
			files[name], err = os.ReadFile(path)
		}
		if err != nil {
			s.Fatal(fmt.Errorf("%s: %w", path, err))
		}
	}
	return files
}
