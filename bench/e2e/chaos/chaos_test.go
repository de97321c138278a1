// Package chaos plays watchlab through faults: those of the simulated server, of disks, signals,
// memory, clocks, handlers and connections.
//
//  1. A kind is one fault at one place, such as kill-run. The server's faults come from the registry
//     of package fault, so a new one joins by itself.
//  2. A step is the nth play of a kind. All its random numbers come from the seed, the kind and n, so a
//     step can be played alone: -seed 7 -step kill-run.3.
//  3. TestChaos plays each kind once, and then again until -chaos is over.
//  4. After each step the invariants must hold: see [step.check].
//  5. The table has a row for each fault: how often it was tried, how often it struck, and the outcome.
package chaos

import (
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"watchlab/bench/e2e/programs"
	"watchlab/cmd/watchlab/cli"
	"watchlab/loadgen/fault"
)

var (
	length  = flag.Duration("chaos", 10*time.Second, "how long to begin steps, after each kind was played once")
	seed    = flag.Int64("seed", 0, "seed of all steps; 0 draws one")
	only    = flag.String("step", "", "step to play alone, as in kill-run.3")
	workers = flag.Int("workers", 8, "steps that are played at the same time: most of them wait")
	table   = flag.String("table", "", "file to write the table to")
)

// thorough is the length from which a step plays all stacks in place of one.
const thorough = 5 * time.Minute

// asCommand is the environment variable that makes this program the command, with broken variants.
const asCommand = "WATCHLAB_CHAOS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		registerBroken()
		os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	klog.SetLogger(klog.New(nil)) // client-go logs each fault.
	goleak.VerifyTestMain(m)
}

// kind is a fault at one place.
type kind struct {
	name string
	row  string // of the table
	play func(*step)
}

// kinds returns all kinds in the order of the table.
func kinds() []kind {
	var all []kind
	for _, name := range fault.Names() {
		for _, pipeline := range []string{"informer", "kubelet"} {
			all = append(all, kind{fmt.Sprintf("%s-%s", name, pipeline), string(name), func(s *step) { s.serverFault(name, pipeline) }})
		}
	}
	all = append(all, kind{"refused", "a fault without a server", (*step).faultWithoutServer})
	for _, f := range brokenQueues {
		all = append(all, kind{"broken-" + f.name, "a queue that " + f.does, func(s *step) { s.brokenQueue(f) }})
	}
	all = append(all,
		kind{"slow-handler", "slow handler", (*step).slowHandler},
		kind{"panic", "handler that panics", (*step).panicking},
		kind{"disk-full", "disk full", (*step).diskFull},
		kind{"short-write", "short write (RLIMIT_FSIZE)", (*step).shortWrite},
		kind{"read-only", "folder read-only in mid-run", (*step).readOnly},
	)
	for _, signal := range []string{"term", "kill"} {
		row := map[string]string{"term": "SIGTERM", "kill": "kill -9"}[signal]
		all = append(all,
			kind{signal + "-run", row + " of run and --resume", func(s *step) { s.signalRun(signal) }},
		)
	}
	return append(all,
		kind{"kill-server", "kill -9 of the simulated server", (*step).serverKilled},
		kind{"memory", "memory limit of a cgroup", (*step).memoryLimit},
		kind{"monotonic", "monotonic clock ±1 h (time namespace)", (*step).monotonicJump},
		kind{"wall", "wall clock ±1 h (injected)", (*step).wallJump},
		kind{"watchers", "5,000 watchers", (*step).watchers},
		kind{"connections", "connection storm", (*step).connectionStorm},
		kind{"proxy-cut", "proxy that cuts", func(s *step) { s.proxied(cut) }},
		kind{"proxy-delay", "proxy that delays", func(s *step) { s.proxied(delay) }},
		kind{"proxy-reorder", "proxy that reorders bytes below TLS", func(s *step) { s.proxied(reorder) }},
	)
}

// TestChaos plays steps until the time is over, and writes the table.
func TestChaos(t *testing.T) {
	if *seed == 0 {
		*seed = time.Now().UnixNano() % 1_000_000
	}
	t.Logf("seed %d", *seed)
	all := kinds()
	rows := newRows(all)
	program := programs.Watchlab(t)
	began := time.Now()
	var playing sync.WaitGroup
	free := make(chan struct{}, *workers)
	for n := 0; n == 0 || time.Since(began) < *length && *only == ""; n++ {
		for _, k := range all {
			name := fmt.Sprintf("%s.%d", k.name, n)
			if *only != "" {
				kind, at, _ := strings.Cut(*only, ".")
				if kind != k.name {
					continue
				}
				name = *only
				n, _ = strconv.Atoi(at)
			}
			if n > 0 && time.Since(began) >= *length && *only == "" {
				break
			}
			free <- struct{}{}
			playing.Go(func() {
				defer func() { <-free }()
				t.Run(name, func(t *testing.T) {
					s := newStep(t, k, n, program)
					defer rows.add(s)
					k.play(s)
					s.check()
				})
			})
		}
	}
	playing.Wait()
	text := fmt.Sprintf("seed %d, %v, %d steps\n\n%s", *seed, time.Since(began).Round(time.Second), rows.steps(), rows)
	t.Log("\n" + text)
	if *table != "" {
		if err := os.WriteFile(*table, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if *only == "" {
		rows.allStruck(t)
	} else if rows.steps() == 0 {
		t.Errorf("there is no step %s", *only)
	}
}

// outcome is how a step ended.
type outcome int

const (
	survived outcome = iota // all figures are there, and valid
	invalid                 // the cells that met the fault are invalid by name, or have no figures
	refused                 // an error said why, and nothing was lost
	skipped                 // the machine cannot
)

// row is a row of the table.
type row struct {
	tried, struck int
	outcomes      [skipped + 1]int
	reason        string // of a skip
}

// rows are the table.
type rows struct {
	order []string

	mu sync.Mutex
	by map[string]*row // guarded by mu
}

func newRows(all []kind) *rows {
	r := &rows{by: map[string]*row{}}
	for _, k := range all {
		if r.by[k.row] == nil {
			r.by[k.row] = &row{}
			r.order = append(r.order, k.row)
		}
	}
	return r
}

func (r *rows) add(s *step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	row := r.by[s.kind.row]
	row.tried++
	row.struck += s.struck
	if s.Skipped() {
		s.outcome, row.reason = skipped, s.reason
	}
	row.outcomes[s.outcome]++
}

func (r *rows) steps() (n int) {
	for _, row := range r.by {
		n += row.tried
	}
	return n
}

// String returns the table as Markdown.
func (r *rows) String() string {
	var b strings.Builder
	b.WriteString("| fault | tried | struck | survived | invalid by name | refused | skipped |\n|---|---|---|---|---|---|---|\n")
	for _, name := range r.order {
		row := r.by[name]
		o := row.outcomes
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %s |\n", name, row.tried, row.struck, o[survived], o[invalid], o[refused],
			strings.TrimSpace(fmt.Sprintf("%d %s", o[skipped], row.reason)))
	}
	return b.String()
}

// allStruck checks that each fault struck: one that never strikes proves nothing.
func (r *rows) allStruck(t *testing.T) {
	t.Helper()
	for _, name := range r.order {
		if row := r.by[name]; row.struck == 0 && row.outcomes[skipped] == 0 {
			t.Errorf("%s never struck, in %d steps", name, row.tried)
		}
	}
}

// step is a play of a kind.
type step struct {
	*testing.T
	kind    kind
	n       int
	all     bool // plays all stacks
	rng     *rand.Rand
	program string // bin/watchlab
	dir     string // for files of the step
	tmp     string // temporary folder of its programs
	folders []string
	spool   bool // a killed program may have left its temporary folder
	struck  int
	outcome outcome
	reason  string // of a skip
}

func newStep(t *testing.T, k kind, n int, program string) *step {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(k.name))
	dir := t.TempDir()
	s := &step{
		T: t, kind: k, n: n, all: *length >= thorough && n == 0, rng: rand.New(rand.NewPCG(uint64(*seed), h.Sum64()+uint64(n))),
		program: program, dir: dir, tmp: filepath.Join(dir, "tmp"),
	}
	if err := os.Mkdir(s.tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to play this step alone: make chaos CHAOS=%v SEED=%d STEP=%s.%d", *length, *seed, k.name, n)
		}
	})
	return s
}

// cannot skips the step: the machine cannot do what it needs.
func (s *step) cannot(format string, args ...any) {
	s.Helper()
	s.reason = fmt.Sprintf(format, args...)
	s.Skipf("#### SKIPPED: %s: %s ####", s.kind.row, s.reason)
}

// between draws a time.
func (s *step) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.rng.Int64N(int64(most-least)))
}

// pick draws an element.
func pick[E any](s *step, of []E) E { return of[s.rng.IntN(len(of))] }

// path returns a path of the step.
func (s *step) path(name string) string { return filepath.Join(s.dir, name) }

// check checks what holds after each step:
//
//   - No process is left. Each has the step's folder in its environment.
//   - The folder for temporary files is empty. A killed collect leaves the one that it works in.
//   - The results folders are readable, no round is there twice, and the report has no dump of goroutines.
func (s *step) check() {
	s.Helper()
	programs.Eventually(s, "no process is left", func() error {
		if left := s.processes(); len(left) > 0 {
			return fmt.Errorf("%d processes: %q", len(left), slices.Collect(maps.Values(left)))
		}
		return nil
	})
	entries, err := os.ReadDir(s.tmp)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range entries {
		if !s.spool || !strings.HasPrefix(e.Name(), "watchlab-collect-") {
			s.Errorf("the temporary folder has %s", e.Name())
		}
	}
	for _, dir := range s.folders {
		s.checkFolder(dir)
	}
}

// processes returns the command lines of the step's processes by their ids.
func (s *step) processes() map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc") // None elsewhere than on Linux.
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that has ended by now has no files.
		env, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if strings.Contains(string(env), "TMPDIR="+s.tmp+"\x00") {
			line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			found[id] = strings.ReplaceAll(string(line), "\x00", " ")
		}
	}
	return found
}
