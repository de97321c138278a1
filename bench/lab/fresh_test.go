package lab_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pprof"
)

// TestFresh: PlayInFreshProcess gets the name of each cell, and for the second cell of an A/A pair
// the name of the first. There is no warm-up, and the results get verdicts as usual.
func TestFresh(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	synctest.Test(t, func(t *testing.T) {
		build := func() []lab.Comparison {
			a, _ := newCell("a", "", steady(1000, time.Second))
			b, _ := newCell("b", "", func(int) *fake {
				return &fake{events: 7, takes: time.Second, late: -1, check: func() error { return fmt.Errorf("%w: 1 event", lab.ErrLost) }}
			})
			return comparison(a, b)
		}
		c := build()
		for i := range c[0].Cells {
			c[0].Cells[i].New = func() (lab.Workload, error) { return nil, errors.New("played in this process") }
		}
		var names []string
		o, err := ignoringHost(context.Background(), c, lab.Options{Rounds: 3, Dir: dir, PlayInFreshProcess: func(ctx context.Context, name string) (cell.Result, error) {
			names = append(names, name)
			// The transfer to another process and back.
			var pipe bytes.Buffer
			result, err := lab.PlayCell(ctx, build(), name, &cell.Recorder{Alone: true})
			if err := lab.WriteResult(&pipe, result, err); err != nil {
				return cell.Result{}, err
			}
			return lab.ReadResult(&pipe)
		}})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		a, b := "Queue/impl=a/keys=10", "Queue/impl=b/keys=10"
		if want := []string{a, a, a, a, a, a, b}; !slices.Equal(names, want) {
			t.Errorf("played %q, want %q", names, want)
		}
		cells := o.Comparisons[0].Cells
		if v := cells[1].Verdict.String(); v != "invalid: lost: 1 event" {
			t.Errorf("verdict %q", v)
		}
		for _, cl := range []lab.CellResult{cells[0], cells[2]} {
			if cl.Verdict.Status != lab.Valid || len(cl.Rounds) != 3 || len(cl.Latency) != 1 || cl.Latency[0].Count != 3 {
				t.Errorf("%s: %s, %+v", cl.BenchName(), cl.Verdict, cl.Latency)
			}
			if m := cl.Rounds[0].Result.Memory; m == nil || m.PeakHeapBytes == 0 {
				t.Errorf("%s: memory %+v", cl.BenchName(), m)
			}
		}
		if !o.Fresh {
			t.Error("the outcome does not record it")
		}
	})
}

// TestResultTransfer: results and errors survive the transfer between processes.
func TestResultTransfer(t *testing.T) {
	want := cell.Result{
		EventsIn: 3, Elapsed: time.Second, EventsPerSecond: 3, Memory: &cell.Memory{HeapBytes: 1, PeakHeapBytes: 2},
		Host: cell.Host{StealShare: 0.1}, Notes: []cell.Note{{Unit: "x", Value: 0.5}}, Lag: &cell.Lag{LateShare: 0.25},
		Latency: []cell.Latency{{Boundary: "a→b", Quantiles: cell.Quantiles{Count: 1, Max: 5, Histogram: "HIST"}}},
	}
	var pipe bytes.Buffer
	noError(t, lab.WriteResult(&pipe, want, nil))
	if got, err := lab.ReadResult(&pipe); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v:\n%+v, want\n%+v", err, got, want)
	}
	for want, sent := range map[string]error{
		"invalid: error: boom": errors.New("boom"), "invalid: lost: 1 event": fmt.Errorf("%w: 1 event", lab.ErrLost),
		"invalid: reordered+duplicated: reordered; duplicated": errors.Join(lab.ErrReordered, lab.ErrDuplicated), "invalid: diverged": lab.ErrDiverged,
	} {
		noError(t, lab.WriteResult(&pipe, cell.Result{}, sent))
		if _, got := lab.ReadResult(&pipe); got == nil || got.Error() != want {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if _, err := lab.ReadResult(strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "returned no result") {
		t.Errorf("of nothing: %v", err)
	}
}

func TestPlayUnknownCell(t *testing.T) {
	a, _ := newCell("a", "", steady(1, 1))
	if _, err := lab.PlayCell(context.Background(), comparison(a), "Queue/impl=b", new(cell.Recorder)); !errors.Is(err, lab.ErrOptions) {
		t.Errorf("error %v", err)
	}
}

// profiler records its calls.
type profiler struct {
	log         *[]string
	start, stop error
}

func (p profiler) Start(cell string) (func() error, error) {
	*p.log = append(*p.log, "start "+cell)
	return func() error {
		*p.log = append(*p.log, "stop")
		return p.stop
	}, p.start
}

func (p profiler) Do(ctx context.Context, family string, cell lab.Labels, f func(context.Context)) {
	new(pprof.Profiler).Do(ctx, family, cell, f)
}

// TestProfile: plays for profiles carry labels and do not count as a round. A broken
// invariant in one fails the cell.
func TestProfile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log []string
		note := func(ctx context.Context) error {
			if pprof.Labelled(ctx) {
				log = append(log, "labelled")
			}
			return nil
		}
		good, plays := newCell("good", "", func(int) *fake { return &fake{events: 10, takes: time.Second, late: -1, run: note} })
		bad, _ := newCell("bad", "", func(n int) *fake {
			f := &fake{events: 10, takes: time.Second, late: -1, run: note}
			if n == 3 {
				f.check = func() error { return lab.ErrLost }
			}
			return f
		})
		worse, _ := newCell("worse", "", func(int) *fake {
			return &fake{events: 1, takes: 1, late: -1, check: func() error { return lab.ErrLost }}
		})
		profiling, last := 0, lab.Progress{}
		o, err := ignoringHost(context.Background(), comparison(good, bad, worse), lab.Options{
			Rounds: 2, NoAA: true, Profile: profiler{log: &log},
			Progress: func(p lab.Progress) {
				if p.Profiling && !p.Skipped && !p.Finished {
					profiling++
				}
				last = p
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"start Queue/impl=good/keys=10", "labelled", "stop",
			"start Queue/impl=bad/keys=10", "labelled", "stop",
		}
		if !slices.Equal(log, want) || *plays != 4 || profiling != 2 {
			t.Errorf("%q in %d plays, %d reported; want %q in 4", log, *plays, profiling, want)
		}
		if last.Done != 2 || last.Total != 2 {
			t.Errorf("finally %d of %d are done", last.Done, last.Total)
		}
		cells := o.Comparisons[0].Cells
		if len(cells[0].Rounds) != 2 || cells[0].Verdict.Status != lab.Valid || cells[1].Verdict.Cause != lab.CauseLost || len(cells[1].Rounds) > 0 {
			t.Errorf("%+v", cells)
		}
	})
}

// TestShortCellsProfiledAgain: a short cell is played several times for its profile.
func TestShortCellsProfiledAgain(t *testing.T) {
	for takes, want := range map[time.Duration]int{400 * time.Millisecond: 3, time.Millisecond: 10, time.Minute: 1} {
		synctest.Test(t, func(t *testing.T) {
			var log []string
			a, plays := newCell("a", "", steady(10, takes))
			o, err := ignoringHost(context.Background(), comparison(a), lab.Options{Rounds: 1, NoAA: true, Profile: profiler{log: &log}})
			if err != nil || *plays != 2+want || len(log) != 2*want || len(o.Comparisons[0].Cells[0].Rounds) != 1 {
				t.Errorf("%v each: %d plays, %q, %v; want %d with profiles", takes, *plays, log, err, want)
			}
		})
	}
}

func TestProfileErrorEndsRun(t *testing.T) {
	boom := errors.New("boom")
	for _, p := range []profiler{{start: boom}, {stop: boom}} {
		synctest.Test(t, func(t *testing.T) {
			var log []string
			p.log = &log
			a, _ := newCell("a", "", steady(10, time.Second))
			o, err := ignoringHost(context.Background(), comparison(a), lab.Options{Rounds: 1, Profile: p})
			if !errors.Is(err, boom) || o == nil || len(o.Comparisons[0].Cells[0].Rounds) != 1 || !o.Interrupted {
				t.Errorf("error %v, %+v", err, o)
			}
		})
	}
}

// TestMachineVerdicts: disturbance by the machine makes a verdict invalid but not failed.
func TestMachineVerdicts(t *testing.T) {
	steal := func(shares ...float64) (hosts []cell.Host) {
		for _, s := range shares {
			hosts = append(hosts, cell.Host{StealShare: s})
		}
		return hosts
	}
	for name, tc := range map[string]struct {
		hosts []cell.Host
		want  string
	}{
		"nothing":               {steal(0, 0, 0, 0), "valid"},
		"much in one round":     {steal(0, 0.9, 0), "valid"},
		"much in most":          {steal(0.2, 0, 0.08), "invalid: steal: the host gave 8.0 % of the machine's CPU time to others in the median round (allowed: 5 %)"},
		"throttled":             {[]cell.Host{{Throttled: 20 * time.Millisecond}}, "invalid: throttled: the control group was held back for its CPU quota for 2.0 % of the time in the median round (allowed: 1 %)"},
		"the limiter, half":     {[]cell.Host{{GCLimited: true}, {}, {GCLimited: true}, {}}, "invalid: gc-limit: the heap was at its limit and the collector's limiter came into force in 2 of 4 rounds"},
		"host takes precedence": {[]cell.Host{{StealShare: 0.5, Throttled: time.Second, GCLimited: true}}, "invalid: steal: the host gave 50.0 % of the machine's CPU time to others in the median round (allowed: 5 %)"},
	} {
		t.Run(name, func(t *testing.T) {
			o := playedOn(t, lab.Options{NoAA: true}, tc.hosts...)
			if got := verdicts(o)["a"]; got != tc.want {
				t.Errorf("verdict %q, want %q", got, tc.want)
			}
			if c := o.Comparisons[0].Cells[0]; len(o.Failed()) > 0 || strings.HasPrefix(tc.want, "invalid") != (len(c.Rounds) == 0) {
				t.Errorf("failed %q, %d rounds", o.Failed(), len(c.Rounds))
			}
		})
	}
}

// playedOn plays a cell on hosts, one a round.
func playedOn(t *testing.T, opts lab.Options, hosts ...cell.Host) *lab.Outcome {
	t.Helper()
	a, _ := newCell("a", "", nil)
	n := 0
	opts.Rounds = len(hosts)
	opts.PlayInFreshProcess = func(context.Context, string) (cell.Result, error) {
		n++
		return cell.Result{EventsIn: 1, Elapsed: time.Second, EventsPerSecond: 1, Host: hosts[n-1]}, nil
	}
	o := must(lab.Run(context.Background(), comparison(a), opts))(t)
	return o
}

// TestIgnoreHost: the option omits steal and throttling from the verdict, and the results say so. The collector's
// limit is no effect of the host.
func TestIgnoreHost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	robbed := cell.Host{StealShare: 0.5, Throttled: time.Second}
	o := playedOn(t, lab.Options{NoAA: true, IgnoreHost: true, Dir: dir}, robbed)
	if got := verdicts(o)["a"]; got != "valid" || o.Comparisons[0].Cells[0].Rounds[0].Result.Host != robbed {
		t.Errorf("verdict %q, want valid, and the figures of the host", got)
	}
	for _, name := range []string{lab.RunFile, lab.EnvFile, lab.BenchFile} {
		data := must(os.ReadFile(filepath.Join(dir, name)))(t)
		if !regexp.MustCompile(`"ignoreHost": ?true|(?m)^host: ignored$`).Match(data) {
			t.Errorf("%s does not say that the verdict ignores the host:\n%s", name, data)
		}
	}
	o = playedOn(t, lab.Options{NoAA: true, IgnoreHost: true}, cell.Host{StealShare: 0.5, GCLimited: true})
	if got := o.Comparisons[0].Cells[0].Verdict.Cause; got != lab.CauseGCLimit {
		t.Errorf("cause %q, want %q", got, lab.CauseGCLimit)
	}
}
