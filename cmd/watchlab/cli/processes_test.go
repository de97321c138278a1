package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/bench/lab"
)

// TestProcesses: processes replace each other, so the first one's id and exit code are those of the run. Flags of
// the output are passed on. A signal in a later process interrupts the run, and --resume plays the rest.
func TestProcesses(t *testing.T) {
	self := must(os.Executable())(t)
	dir := filepath.Join(t.TempDir(), "out")
	start := func(args ...string) (*exec.Cmd, *strings.Builder) {
		cmd, out := exec.Command(self, args...), new(strings.Builder)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), asCommand+"=1"), out, os.Stderr
		noError(t, cmd.Start())
		return cmd, out
	}
	load := func() *lab.Outcome {
		o, err := lab.Load(dir)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return o
	}
	cmd, _ := start(with(small, "--impl", "cond,"+lossy, "--rounds", "12", "--processes", "6", "--out", dir)...)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for o := load(); o == nil || o.Env.Processes < 2; o = load() {
		<-tick.C
	}
	noError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	// The signal may meet a process that does not handle it yet, or not any more.
	if code := cmd.ProcessState.ExitCode(); code != exitInterrupted && code != -1 && code != exitInvalid {
		t.Errorf("exit code %d after a signal", code)
	}
	if o := load(); o.Ended != nil && !o.Interrupted || o.Env.Processes > 5 {
		t.Fatalf("ended %v, interrupted %v, %d processes", o.Ended, o.Interrupted, o.Env.Processes)
	}
	cmd, out := start("run", "--resume", dir, "-o", "json")
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInvalid || !strings.HasPrefix(out.String(), "{\n") {
		t.Errorf("%v, stdout %.100q: the loss is in the first process, the exit code of the last", err, out)
	}
	o := load()
	if o.Paused || o.Interrupted || o.Processes != 6 || o.Env.Processes < 6 {
		t.Errorf("paused %v, interrupted %v, %d processes of %d", o.Paused, o.Interrupted, o.Env.Processes, o.Processes)
	}
	for _, c := range o.Comparisons[0].Cells {
		if n := len(c.Replicates()); c.Verdict.Status != lab.Invalid && (len(c.Rounds) != 12 || n < 6 || n > 7) {
			t.Errorf("%s: %d rounds, %d replicates", c.BenchName(), len(c.Rounds), n)
		}
	}
}

// TestProcessesOfAFolder: with a results folder, each round has its process.
func TestProcessesOfAFolder(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		want int // processes
	}{
		"a round each":   {[]string{"--rounds", "3"}, 3},
		"given":          {[]string{"--rounds", "3", "--processes", "2"}, 2},
		"one":            {[]string{"--rounds", "2", "--processes", "1"}, 1},
		"with a profile": {[]string{"--rounds", "2", "--profile", "allocs"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			code, _, errs := call(t, with(small, append(tc.args, "--impl", "cond", "--out", dir)...)...)
			if code != exitOK {
				t.Fatalf("exit code %d, stderr %q", code, errs)
			}
			o, err := lab.Load(dir)
			if err != nil || o.Env.Processes != tc.want || o.OneProcess() != (tc.want == 1) {
				t.Errorf("%v, %d processes, want %d", err, o.Env.Processes, tc.want)
			}
		})
	}
}
