// Package chaos kills, interrupts and starves the built command. After each step nothing that was finished is
// lost, the exit code is as documented, an error is one line, and no process or temporary file is left.
package chaos

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"watchlab/bench/e2e/programs"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/loadgen/apiserver"
)

var (
	length = flag.Duration("chaos", 10*time.Second, "how long to begin rounds of all steps")
	seed   = flag.Int64("seed", 0, "seed of all steps; 0 draws one")
	only   = flag.String("step", "", "step to play alone, as in kill-run.3")
)

// kind is a fault at one place.
type kind struct {
	name   string
	play   func(*step)
	struck atomic.Int64 // steps that the fault hit
	cannot atomic.Bool  // the machine cannot
}

func kinds() []*kind {
	all := []*kind{{name: "kill-server", play: (*step).killServer}, {name: "disk-full", play: (*step).diskFull}, {name: "memory", play: (*step).memoryLimit}}
	for name, signal := range map[string]syscall.Signal{"term": syscall.SIGTERM, "kill": syscall.SIGKILL} {
		all = append(all, &kind{name: name + "-run", play: func(s *step) { s.signalRun(signal) }},
			&kind{name: name + "-collect", play: func(s *step) { s.signalCollect(signal) }})
	}
	return all
}

// TestChaos plays a round of all kinds until the time is over. Each fault must strike: one that never strikes
// proves nothing.
func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = time.Now().UnixNano() % 1_000_000
	}
	all, program, began := kinds(), programs.Watchlab(t), time.Now()
	play := func(t *testing.T, k *kind, n int) {
		t.Run(fmt.Sprintf("%s.%d", k.name, n), func(t *testing.T) {
			t.Parallel()
			s := newStep(t, k, n, program)
			k.play(s)
			s.check()
		})
	}
	if name, at, ok := strings.Cut(*only, "."); ok {
		i := slices.IndexFunc(all, func(k *kind) bool { return k.name == name })
		n, err := strconv.Atoi(at)
		if i < 0 || err != nil {
			t.Fatalf("there is no step %s", *only)
		}
		play(t, all[i], n)
		return
	}
	for n := 0; n == 0 || time.Since(began) < *length; n++ {
		t.Run("round", func(t *testing.T) {
			for _, k := range all {
				play(t, k, n)
			}
		})
	}
	for _, k := range all {
		t.Logf("%-30s struck %d times", k.name, k.struck.Load())
		if k.struck.Load() == 0 && !k.cannot.Load() {
			t.Errorf("%s never struck", k.name)
		}
	}
}

// step is a play of a kind.
type step struct {
	*testing.T
	kind    *kind
	rng     *rand.Rand
	program string // bin/watchlab
	dir     string // for files of the step
	tmp     string // temporary folder of its programs
}

func newStep(t *testing.T, k *kind, n int, program string) *step {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(k.name))
	s := &step{T: t, kind: k, rng: rand.New(rand.NewPCG(uint64(*seed), h.Sum64()+uint64(n))), program: program, dir: t.TempDir()}
	s.tmp = s.path("tmp")
	if err := os.Mkdir(s.tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to play this step alone: make chaos SEED=%d STEP=%s.%d", *seed, k.name, n)
		}
	})
	return s
}

// cannot skips the step: the machine cannot do what it needs.
func (s *step) cannot(format string, args ...any) {
	s.Helper()
	s.kind.cannot.Store(true)
	s.Skipf("#### SKIPPED: %s: %s ####", s.kind.name, fmt.Sprintf(format, args...))
}

func (s *step) path(name string) string { return filepath.Join(s.dir, name) }

// check checks that no process and no temporary file is left.
func (s *step) check() {
	s.Helper()
	programs.Eventually(s, "no process is left", func() error {
		if left := s.processes(""); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
	entries, err := os.ReadDir(s.tmp)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range entries {
		s.Errorf("the temporary folder has %s", e.Name())
	}
}

// processes returns the step's processes whose command line ends with a verb.
func (s *step) processes(verb string) (ids []int) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ") // None elsewhere than on Linux.
	for _, file := range environments {
		env, _ := os.ReadFile(file) // A process that has ended has no files.
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if id, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil &&
			strings.Contains(string(env), "TMPDIR="+s.tmp+"\x00") && strings.HasSuffix(string(line), verb) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Exit codes of docs/runs.md. killed is that of a process that a signal ended.
const (
	done        = 0
	failed      = 1
	badInput    = 2
	interrupted = 130
	killed      = -1
)

func (s *step) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), "TMPDIR="+s.tmp)
	return cmd
}

func (s *step) start(cmd *exec.Cmd) *programs.Process {
	s.Helper()
	p, err := programs.Run(cmd)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { p.End(syscall.SIGKILL, programs.Patience) })
	return p
}

// runs waits for a time and reports whether the program still runs.
func runs(p *programs.Process, after time.Duration) bool {
	select {
	case <-p.Done:
		return false
	case <-time.After(after):
		return true
	}
}

// dump is the head of a goroutine in a dump.
var dump = regexp.MustCompile(`goroutine \d+ \[`)

// end waits for the end of a program. client-go waits for up to a minute between two attempts to connect, and a
// pipeline with faults is stalled after three minutes.
func (s *step) end(p *programs.Process, codes ...int) (code int) {
	s.Helper()
	if runs(p, 8*time.Minute) {
		p.End(syscall.SIGQUIT, 10*time.Second)
		s.Fatalf("%v has not ended\n%s", p.Args[1:], p.Output)
	}
	code = p.ProcessState.ExitCode()
	if !slices.Contains(codes, code) || dump.MatchString(p.Output.String()) {
		s.Fatalf("watchlab %s: %v, want exit code %v and no dump of goroutines\n%s", strings.Join(p.Args[1:], " "), p.ProcessState, codes, p.Output)
	}
	return code
}

func (s *step) run(cmd *exec.Cmd, codes ...int) (output string) {
	s.Helper()
	p := s.start(cmd)
	s.end(p, codes...)
	return p.Output.String()
}

// complete reports whether a results folder has a run. run.json is its last file.
func complete(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, lab.RunFile))
	return err == nil
}

func (s *step) load(dir string) *lab.Outcome {
	s.Helper()
	o, err := lab.Load(dir)
	if err != nil {
		s.Fatalf("the results are not readable: %v", err)
	}
	return o
}

// finished returns the start of each finished round of a results folder. No round may be there twice.
func (s *step) finished(dir string) map[string]time.Time {
	s.Helper()
	rounds := map[string]time.Time{}
	if !complete(dir) {
		return rounds
	}
	for _, cl := range s.load(dir).Cells() {
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

// kept checks that the rounds of a folder contain earlier ones: none was lost, none was played again.
func (s *step) kept(dir string, before map[string]time.Time) {
	s.Helper()
	now := s.finished(dir)
	for id, started := range before {
		if at, ok := now[id]; !ok || !at.Equal(started) {
			s.Errorf("%s was finished, and is lost or was played again", id)
		}
	}
}

// resume resumes a run to its end and checks that it plays no round again.
func (s *step) resume(dir string) {
	s.Helper()
	before := s.finished(dir)
	s.run(s.command("run", "--resume", dir), done)
	s.kept(dir, before)
	s.whole(dir)
}

// whole checks a run that has ended: its cells have all rounds, or are invalid for a cause outside of the variants.
func (s *step) whole(dir string) {
	s.Helper()
	o := s.load(dir)
	if o.Ended == nil || o.Interrupted || o.Paused {
		s.Errorf("ended %v, interrupted %v, paused %v", o.Ended, o.Interrupted, o.Paused)
	}
	for c, cl := range o.Cells() {
		if cl.Verdict.Failed() || cl.Verdict.Status != lab.Invalid && len(cl.Rounds) != c.Rounds {
			s.Errorf("%s: %d rounds of %d, %s", cl.BenchName(), len(cl.Rounds), c.Rounds, cl.Verdict)
		}
	}
	s.run(s.command("report", dir), done)
}

// runArgs are the arguments of a run of a small storm. Faults may release events late.
func (s *step) runArgs(out string, args ...string) []string {
	return slices.Concat([]string{"run", "--storm", "nodeloss", "--nodes", "1", "--lag-budget", "1m", "--ignore-host",
		"--seed", strconv.Itoa(1 + s.rng.IntN(1000)), "--out", out}, args)
}

// longRun are the arguments of a run of several processes and cells, which takes some seconds.
func (s *step) longRun(out string) []string {
	return s.runArgs(out, slices.Concat([]string{"--rounds", "3", "--duration", "300ms"}, [][]string{
		{"--pipeline", "queue", "--impl", "clientgo-realfifo,ring", "--delivery", "in-order", "--pace", "max,2000", "--events", "3000"},
		{"--pipeline", "informer", "--source", "apiserver", "--impl", "clientgo-informer,ring", "--delivery", "in-order", "--pace", "500"},
		{"--pipeline", "kubelet", "--impl", "reference,ring", "--pace", "300"},
	}[s.rng.IntN(3)])...)
}

// strike sends a signal after a random time and reports whether it ended the program. SIGTERM ends it with 130, or,
// before a process handles signals, as SIGKILL does.
func (s *step) strike(p *programs.Process, signal syscall.Signal, within time.Duration) bool {
	s.Helper()
	if runs(p, time.Duration(s.rng.Int64N(int64(within)))) {
		_ = p.Process.Signal(signal) // The program may have ended.
	}
	codes := []int{done, killed}
	if signal == syscall.SIGTERM {
		codes = append(codes, interrupted)
	}
	if s.end(p, codes...) == done {
		return false
	}
	s.kind.struck.Add(1)
	return true
}

// signalRun interrupts a run, and its resumption, at random times, and resumes it to the end.
func (s *step) signalRun(signal syscall.Signal) {
	out := s.path("out")
	begin := s.longRun(out)
	for range 1 + s.rng.IntN(3) {
		args := begin
		if complete(out) {
			args = []string{"run", "--resume", out}
		} else if err := os.RemoveAll(out); err != nil { // The folder may be there without a run.
			s.Fatal(err)
		}
		before := s.finished(out)
		ended := !s.strike(s.start(s.command(args...)), signal, 4*time.Second)
		s.kept(out, before)
		if ended {
			s.whole(out)
			return
		}
	}
	if complete(out) {
		s.resume(out)
	}
}

const pods, podRounds = 2, 2 // of a load Job

// signalCollect interrupts merges of what pods uploaded, and merges at last: each pod once, with all rounds.
func (s *step) signalCollect(signal syscall.Signal) {
	server, err := apiserver.Open(apiserver.Options{})
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	url, err := server.Start()
	if err == nil {
		err = apiserver.WriteKubeconfig(s.path("kubeconfig"), apiserver.Kubeconfig{Server: url}, false)
	}
	if err == nil {
		err = os.WriteFile(s.path("plan.yaml"), fmt.Appendf(nil, `{run: chaos, pods: %d, experiment: {family: queue, variants: [clientgo-fifo, ring],
storm: {name: recorded-gang}, events: 3000, rounds: %d}}`, pods, podRounds), 0o600)
	}
	if err != nil {
		s.Fatal(err)
	}
	verb := func(name string, args ...string) *exec.Cmd {
		return s.command(append([]string{"cluster", name, "--kubeconfig", s.path("kubeconfig"), "--context", "watchlab", "--name", "chaos"}, args...)...)
	}
	s.run(verb("run", "--pods", strconv.Itoa(pods), "--wait=false", "--", "--family", "queue", "--storm", "recorded-gang"), done)
	for i := range pods {
		cmd := s.command("pod", "--plan", s.path("plan.yaml"), "--kubeconfig", s.path("kubeconfig"), "--metrics-addr", "127.0.0.1:0")
		cmd.Env = append(cmd.Env, fleet.IndexVar+"="+strconv.Itoa(i), fleet.NamespaceVar+"=watchlab")
		s.run(cmd, done)
	}
	began := time.Now()
	s.run(verb("collect", "--out", s.path("first")), done)
	took := time.Since(began)
	for i, struck := 0, 0; i < 100 && struck < 5; i++ {
		out := s.path("struck" + strconv.Itoa(i))
		if s.strike(s.start(verb("collect", "--out", out)), signal, took) {
			struck++
			s.finished(out)
		}
	}
	s.run(verb("collect", "--out", s.path("merged")), done)
	o := s.load(s.path("merged"))
	if o.Merged == nil || len(o.Merged.Missing) > 0 || len(o.Merged.Shares) != pods {
		s.Errorf("merged: %+v", o.Merged)
	}
	for _, cl := range o.Cells() {
		if cl.Verdict.Failed() || cl.Verdict.Status != lab.Invalid && len(cl.Rounds) != podRounds {
			s.Errorf("%s: %d rounds, want %d: %s", cl.BenchName(), len(cl.Rounds), podRounds, cl.Verdict)
		}
	}
}

// killServer kills the process of the simulated server in the middle of a run.
func (s *step) killServer() {
	out := s.path("out")
	p := s.start(s.command(s.runArgs(out, "--source", "apiserver", "--pipeline", "informer", "--impl", "clientgo-informer,ring",
		"--delivery", "in-order", "--pace", "300", "--events", "3000", "--rounds", "1")...))
	wait := 700*time.Millisecond + time.Duration(s.rng.Int64N(int64(4*time.Second)))
	for hit := false; !hit && runs(p, wait); {
		wait = 20 * time.Millisecond // A slow machine has not started the server yet, or is between two cells.
		for _, id := range s.processes("\x00apiserver\x00") {
			_ = syscall.Kill(id, syscall.SIGKILL) // It may have ended.
			hit = true
			s.kind.struck.Add(1)
		}
	}
	s.end(p, done, failed)
	s.noneBlamed(out)
}

// noneBlamed checks that no variant is blamed for a killed server or process: cells are invalid for an error alone.
func (s *step) noneBlamed(out string) {
	s.Helper()
	for _, cl := range s.load(out).Cells() {
		if cl.Verdict.Failed() && cl.Verdict.Cause != lab.CauseError {
			s.Errorf("%s: %s", cl.BenchName(), cl.Verdict)
		}
	}
}

// diskFull plays on ever smaller disks until one becomes full, and goes on when it has more room. The error names the
// cause. A folder without a run is refused in one line; a run has all rounds that were finished.
func (s *step) diskFull() {
	for pages, hit := 1+s.rng.IntN(160), false; !hit && pages > 0; pages /= 2 {
		hit = s.fillDisk(s.path("disk"+strconv.Itoa(pages)), 4*pages)
	}
}

// fillDisk plays on a disk of so many kB and reports whether that became full.
func (s *step) fillDisk(disk string, size int) bool {
	if err := os.Mkdir(disk, 0o755); err != nil {
		s.Fatal(err)
	}
	mount := func(options string) {
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "chaos", disk).CombinedOutput(); err != nil {
			s.cannot("mount: %v: %s", err, out)
		}
	}
	mount(fmt.Sprintf("size=%dk", size))
	s.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", disk).CombinedOutput(); err != nil {
			s.Errorf("umount: %v: %s", err, out)
		}
	})
	out := filepath.Join(disk, "out")
	p := s.start(s.command(s.longRun(out)...))
	code := s.end(p, done, failed, badInput)
	mount("remount,size=64m")
	switch {
	case code == done: // It needs less.
		s.whole(out)
		return false
	case !strings.Contains(p.Output.String(), "no space left on device"):
		s.Errorf("the cause is not named:\n%s", p.Output)
	}
	s.kind.struck.Add(1)
	if complete(out) {
		s.resume(out)
	} else if text := s.run(s.command("run", "--resume", out), badInput); strings.Count(text, "\n") != 1 || !strings.HasPrefix(text, "watchlab: ") {
		s.Errorf("not one line: %q", text)
	}
	return true
}

// memoryLimit halves the memory limit of a control group until the kernel kills the command or its server.
func (s *step) memoryLimit() {
	const root = "/sys/fs/cgroup"
	group, limitFile, none := filepath.Join(root, "watchlab-chaos-"+strconv.Itoa(os.Getpid())), "memory.max", "max"
	if controllers, _ := os.ReadFile(filepath.Join(root, "cgroup.subtree_control")); !strings.Contains(string(controllers), "memory") { // Version 1.
		group, limitFile, none = filepath.Join(root, "memory", filepath.Base(group)), "memory.limit_in_bytes", "-1"
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		s.cannot("no control group: %v", err)
	}
	s.Cleanup(func() {
		programs.Eventually(s, "the control group is removed", func() error { return os.Remove(group) })
	})
	set := func(file, value string) {
		if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0o644); err != nil {
			s.cannot("the control group: %v", err)
		}
	}
	for limit, hit := 30+s.rng.IntN(100), false; !hit && limit > 0; limit /= 2 {
		out := s.path("out" + strconv.Itoa(limit))
		set(limitFile, strconv.Itoa(limit<<20))
		p := s.start(s.command(s.runArgs(out, "--pipeline", "informer", "--source", []string{"memory", "apiserver"}[s.rng.IntN(2)],
			"--impl", "clientgo-informer,ring", "--delivery", "in-order", "--events", "5000", "--rounds", "3")...))
		set("cgroup.procs", strconv.Itoa(p.Process.Pid))
		code := s.end(p, done, failed, killed)
		set(limitFile, none)
		if hit = code != done; !hit {
			s.whole(out)
			continue
		}
		s.kind.struck.Add(1)
		if complete(out) {
			before := s.finished(out)
			s.run(s.command("run", "--resume", out), done, failed) // A cell may have lost its server before.
			s.kept(out, before)
			s.noneBlamed(out)
		}
	}
}
