package compare_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/bench/cell"
	"watchlab/bench/compare"
	"watchlab/bench/internal/golden"
	"watchlab/bench/lab"
	"watchlab/loadgen/manifest"
)

// machine generates the figures of a run.
type machine struct {
	rng    *rand.Rand
	rounds int
	// speed is a factor; noise is the standard deviation of the logarithms.
	speed, noise float64
	cpu          string
}

func newMachine(seed uint64) *machine {
	return &machine{rng: rand.New(rand.NewPCG(seed, 1)), rounds: 8, speed: 1, noise: 0.02, cpu: "Some CPU"}
}

// outcome returns a comparison of a baseline and variants with three times its speed.
func (m *machine) outcome(variants int) *lab.Outcome {
	o := &lab.Outcome{Format: lab.Format, Rounds: m.rounds, Env: lab.Env{CPU: m.cpu, GOMAXPROCS: 2, Args: []string{}}}
	c := lab.ComparisonResult{Family: "deltafifo", Title: "test", Input: "0123"}
	for i := range variants + 1 {
		cl := lab.CellResult{Name: "DeltaFIFO", Class: "order total", Verdict: lab.Verdict{Status: lab.Valid}}
		impl, speed := fmt.Sprintf("x%02d", i), 3e6
		if i == 0 {
			impl, speed, cl.Baseline = "clientgo", 1e6, true
		}
		cl.Labels = []lab.Label{{Key: "impl", Value: impl}, {Key: "rate", Value: "max"}}
		for round := range m.rounds {
			v := speed * m.speed * math.Exp(m.noise*m.rng.NormFloat64())
			cl.Rounds = append(cl.Rounds, lab.Round{Round: round + 1, Result: cell.Result{
				EventsIn: 1000, Elapsed: 1e6, EventsPerSecond: v, AllocsPerEvent: 2, BytesPerEvent: 0,
			}})
		}
		c.Cells = append(c.Cells, cl)
	}
	o.Comparisons = []lab.ComparisonResult{c}
	return o
}

// slow makes the rounds of a cell slower.
func slow(c *lab.CellResult, by float64) {
	for i := range c.Rounds {
		c.Rounds[i].Result.EventsPerSecond /= 1 + by
	}
}

// open writes the outcome into a folder and opens it with OpenRun.
func open(t *testing.T, o *lab.Outcome) *compare.Run {
	t.Helper()
	dir := t.TempDir()
	var env, run bytes.Buffer
	noError(t, errors.Join(json.NewEncoder(&env).Encode(o.Env), lab.EncodeJSON(&run, o)))
	for name, data := range map[string][]byte{lab.RunFile: run.Bytes(), lab.EnvFile: env.Bytes()} {
		noError(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
	}
	r := must(compare.OpenRun(dir))(t)
	return r
}

func rules(t *testing.T, text string) []compare.Rule {
	t.Helper()
	r := must(compare.ParseRules("gate.yaml", []byte(text)))(t)
	return r
}

const (
	throughput = "rules:\n- {metric: events/s, change: 5%, because: it is what it is for}\n"
	relative   = "rules:\n- {metric: events/s, change: 5%, per: baseline, because: it is what it is for}\n"
	allocs     = "rules:\n- {metric: allocs/op, change: 1%, because: they are counted}\n"
	bytesOp    = "rules:\n- {metric: B/op, change: 1%, because: they are counted}\n"
)

// gate compares two outcomes and returns the findings by cell.
func gate(t *testing.T, old, now *lab.Outcome, text string) (*compare.GateResult, map[string]compare.Finding) {
	t.Helper()
	v := must(compare.Gate(open(t, old), open(t, now), "gate.yaml", rules(t, text), false))(t)
	byCell := map[string]compare.Finding{}
	for _, f := range v.Findings {
		byCell[f.Cell] = f
	}
	return v, byCell
}

const third = "DeltaFIFO/impl=x03/rate=max"

func TestPlantedSlowdown(t *testing.T) {
	for name, text := range map[string]string{"as it is": throughput, "per baseline": relative} {
		t.Run(name, func(t *testing.T) {
			now := newMachine(2).outcome(30)
			slow(&now.Comparisons[0].Cells[3], 0.15)
			v, found := gate(t, newMachine(1).outcome(30), now, text)
			if f := found[third]; !v.Failed || f.Kind != compare.Regressed || *f.Change > -0.1 || *f.Change < -0.16 || f.Because == "" || *f.P > 0.001 {
				t.Errorf("failed: %v, %+v", v.Failed, f)
			}
			for cell, f := range found {
				if cell != third && f.Kind != compare.Held && f.Kind != compare.CannotTell {
					t.Errorf("%s: %s %v", cell, f.Kind, *f.Change)
				}
			}
		})
	}
}

// TestNoFalseHeld plants changes in 400 figures that are better lower and 400 that are better higher,
// with 10 % allowed. None holds with a change of that size or more, whatever the noise; equal figures
// hold if there are enough rounds.
func TestNoFalseHeld(t *testing.T) {
	const figures, noise = 100, 0.03
	noises := map[string]func(*rand.Rand) float64{
		"normal":    (*rand.Rand).NormFloat64,
		"skewed":    (*rand.Rand).ExpFloat64,
		"two modes": func(r *rand.Rand) float64 { return float64(2*r.IntN(2)-1) + 0.2*r.NormFloat64() },
		"outliers": func(r *rand.Rand) float64 {
			v := r.NormFloat64()
			if r.IntN(10) == 0 {
				v += 6
			}
			return v
		},
	}
	both := rules(t, "rules:\n- {metric: ns/op, change: 10%, because: x}\n- {metric: events/s, change: 10%, because: x}\n")
	for name, draw := range noises {
		for _, rounds := range []int{5, 10} {
			rng := rand.New(rand.NewPCG(uint64(rounds), 15))
			play := func(change float64) *compare.Run {
				var b bytes.Buffer
				for i := range figures * rounds {
					fmt.Fprintf(&b, "BenchmarkX/cell=%d 1 %v ns/op %v events/s\n", i/rounds,
						1e3*(1+change)*math.Exp(noise*draw(rng)), 1e6*(1-change)*math.Exp(-noise*draw(rng)))
				}
				path := filepath.Join(t.TempDir(), "bench.txt")
				noError(t, os.WriteFile(path, b.Bytes(), 0o644))
				r := must(compare.OpenRun(path))(t)
				return r
			}
			for _, percent := range []int{0, 5, 10, 15, 20, 30, 40} {
				v := must(compare.Gate(play(0), play(float64(percent)/100), "gate.yaml", both, false))(t)
				counts := map[compare.FindingKind]int{}
				for _, f := range v.Findings {
					counts[f.Kind]++
				}
				t.Logf("%s, %d rounds, %d %%: %v of %d", name, rounds, percent, counts, 2*figures)
				most := 0
				if percent == 10 && name == "two modes" {
					most = 4 // 5 rounds may all be of one mode
				}
				if percent >= 10 && counts[compare.Held]+counts[compare.Improved] > most {
					t.Errorf("%s, %d rounds, %d %% worse: %v", name, rounds, percent, counts)
				}
				if percent <= 10 && counts[compare.Regressed] > most {
					t.Errorf("%s, %d rounds, %d %% worse with 10 %% allowed: %v", name, rounds, percent, counts)
				}
				if percent == 0 && name == "normal" && rounds == 10 && counts[compare.Held] < 2*figures*9/10 {
					t.Errorf("of equal figures, %v", counts)
				}
			}
		}
	}
}

// TestSlowerMachine checks that figures per baseline tolerate a machine that is one third slower.
func TestSlowerMachine(t *testing.T) {
	m := newMachine(2)
	m.speed = 0.7
	now := m.outcome(10)
	if v, found := gate(t, newMachine(1).outcome(10), now, relative); v.Failed || len(found) != 10 {
		t.Errorf("per baseline, of %d cells: %+v", len(found), v.Findings[0])
	}
	if v, _ := gate(t, newMachine(1).outcome(10), now, throughput); !v.Failed {
		t.Error("the gate passes worse absolute figures")
	}
}

func TestKinds(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		change func(old, now *lab.ComparisonResult)
		want   compare.FindingKind
		fails  bool
	}{
		"missing cell": {throughput, func(_, now *lab.ComparisonResult) { now.Cells = append(now.Cells[:3:3], now.Cells[4:]...) }, compare.Missing, true},
		"broken": {throughput, func(_, now *lab.ComparisonResult) {
			now.Cells[3].Rounds, now.Cells[3].Verdict = nil, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost}
		}, compare.Broken, true},
		"machine disturbed": {throughput, func(_, now *lab.ComparisonResult) {
			now.Cells[3].Rounds, now.Cells[3].Verdict = nil, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseSteal}
		}, compare.CannotTell, false},
		"other guarantees": {throughput, func(_, now *lab.ComparisonResult) { now.Cells[3].Class = "order per-key" }, compare.Changed, true},
		"too few rounds":   {throughput, func(_, now *lab.ComparisonResult) { now.Cells[3].Rounds = now.Cells[3].Rounds[:1] }, compare.CannotTell, false},
		"faster":           {throughput, func(_, now *lab.ComparisonResult) { slow(&now.Cells[3], -0.2) }, compare.Improved, false},
		"within allowance": {throughput, func(old, now *lab.ComparisonResult) {
			plant(&old.Cells[3], []float64{100, 100.1, 99.9, 100, 100.1, 99.9, 100, 100.2})
			plant(&now.Cells[3], []float64{97, 97.1, 96.9, 97, 97.1, 96.9, 97, 97.2})
		}, compare.Held, false},
		"interval overlaps allowance": {throughput, func(old, now *lab.ComparisonResult) {
			plant(&old.Cells[3], []float64{100, 100, 101, 99, 100, 102, 98, 100})
			plant(&now.Cells[3], []float64{94, 93, 96, 90, 97, 92, 94, 88})
		}, compare.CannotTell, false},
		"one more allocation": {allocs, func(_, now *lab.ComparisonResult) {
			for i := range now.Cells[3].Rounds {
				now.Cells[3].Rounds[i].Result.AllocsPerEvent = 3
			}
		}, compare.Regressed, true},
		"below the floor": {"rules:\n- {metric: allocs/op, change: 1%, floor: 0.05, because: x}\n", func(_, now *lab.ComparisonResult) {
			for i := range now.Cells[3].Rounds {
				now.Cells[3].Rounds[i].Result.AllocsPerEvent = 2.04
			}
		}, compare.Held, false},
		"bytes from zero": {bytesOp, func(_, now *lab.ComparisonResult) {
			for i := range now.Cells[3].Rounds {
				now.Cells[3].Rounds[i].Result.BytesPerEvent = 8
			}
		}, compare.Regressed, true},
		"bytes from zero in half of the rounds": {bytesOp, func(_, now *lab.ComparisonResult) {
			for i := range now.Cells[3].Rounds[:4] {
				now.Cells[3].Rounds[i].Result.BytesPerEvent = 900
			}
		}, compare.CannotTell, false},
		"bytes from zero, per baseline": {"rules:\n- {metric: B/op, change: 5%, per: baseline, because: x}\n", func(old, now *lab.ComparisonResult) {
			for i := range now.Cells[3].Rounds {
				old.Cells[0].Rounds[i].Result.BytesPerEvent, now.Cells[0].Rounds[i].Result.BytesPerEvent = 100, 100
				old.Cells[3].Rounds[i].Result.BytesPerEvent, now.Cells[3].Rounds[i].Result.BytesPerEvent = float64(i%2*900), 900
			}
		}, compare.CannotTell, false},
		"just the allowed change": {"rules:\n- {metric: allocs/op, change: 5%, because: x}\n", func(_, now *lab.ComparisonResult) {
			for i := range now.Cells[3].Rounds {
				now.Cells[3].Rounds[i].Result.AllocsPerEvent = 2.1
			}
		}, compare.Held, false},
		"no baseline": {relative, func(_, now *lab.ComparisonResult) { now.Cells[0].Rounds = nil }, compare.CannotTell, false},
	} {
		t.Run(name, func(t *testing.T) {
			old, now := newMachine(1).outcome(5), newMachine(2).outcome(5)
			tc.change(&old.Comparisons[0], &now.Comparisons[0])
			v, found := gate(t, old, now, tc.text)
			if f := found[third]; f.Kind != tc.want || v.Failed != tc.fails {
				t.Errorf("%s, failed: %v; want %s: %+v", f.Kind, v.Failed, tc.want, f)
			}
		})
	}
}

// plant sets the throughputs of a cell's rounds.
func plant(c *lab.CellResult, values []float64) {
	for i, v := range values {
		c.Rounds[i].Result.EventsPerSecond = v * 1e4
	}
}

// TestAAHalfIsNoCell checks that the second cell of an A/A pair is neither checked nor missing.
func TestAAHalfIsNoCell(t *testing.T) {
	old := newMachine(1).outcome(5)
	again := old.Comparisons[0].Cells[0]
	again.Labels = []lab.Label{{Key: "impl", Value: "clientgo-again"}, {Key: "rate", Value: "max"}}
	again.Repeats, again.Baseline = "DeltaFIFO/impl=clientgo/rate=max", false
	old.Comparisons[0].Cells = append(old.Comparisons[0].Cells, again)
	if v, found := gate(t, old, newMachine(2).outcome(5), throughput); v.Failed || len(found) != 6 {
		t.Errorf("%d cells, failed: %v", len(found), v.Failed)
	}
}

func TestBadInput(t *testing.T) {
	old := open(t, newMachine(1).outcome(2))
	other := newMachine(2)
	other.cpu = "Another CPU"
	file := filepath.Join(t.TempDir(), "bench.txt")
	if err := os.WriteFile(file, []byte("BenchmarkDeltaFIFO/impl=x01/rate=max 1 5 ns/op 7 events/s 2 allocs/op\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	bare := must(compare.OpenRun(file))(t)
	for name, tc := range map[string]struct {
		now  *compare.Run
		text string
		want error
	}{
		"matches nothing": {old, throughput + "- {metric: allocs/op, cells: '/impl:nobody', change: 1%, because: x}\n", compare.ErrNothing},
		"no such metric":  {old, throughput + "- {metric: list-ns, change: 1%, because: x}\n", compare.ErrNothing},
		"another machine": {open(t, other.outcome(2)), throughput, compare.ErrMachine},
		"no baselines":    {bare, relative, compare.ErrBaseline},
	} {
		_, err := compare.Gate(old, tc.now, "gate.yaml", rules(t, tc.text), false)
		var at *manifest.Error
		if !errors.Is(err, tc.want) || !errors.As(err, &at) || at.Line == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Counted figures and figures per baseline are comparable between machines.
	for _, text := range []string{allocs, relative} {
		if v, err := compare.Gate(old, open(t, other.outcome(2)), "gate.yaml", rules(t, text), false); err != nil || len(v.Notes) != 2 {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestDefaultRules checks that the default rules parse and hold for a run against
// itself. For bare files, only the applicable rules hold, and a note names the others.
func TestDefaultRules(t *testing.T) {
	r := must(compare.ParseRules(compare.DefaultRulesName, compare.DefaultRules))(t)
	run := open(t, newMachine(1).outcome(3))
	if v, err := compare.Gate(run, run, compare.DefaultRulesName, r, false); err != nil || v.Failed {
		t.Errorf("%v, %+v", err, v)
	}
	file := filepath.Join(t.TempDir(), "bench.txt")
	if err := os.WriteFile(file, []byte(strings.Repeat("BenchmarkX/rate=max 1 5 events/s 5 cpu+gc-ns/op 2 allocs/op\n", 4)), 0o644); err != nil {
		t.Fatal(err)
	}
	bare := must(compare.OpenRun(file))(t)
	if v, err := compare.Gate(bare, bare, compare.DefaultRulesName, r, false); err != nil || v.Failed || len(v.Notes) != 2 || len(v.Findings) != 1 {
		t.Errorf("%v, %+v", err, v)
	}
}

// TestCannotTell: a gate without any decision does not pass, and a strict gate none without each.
func TestCannotTell(t *testing.T) {
	for _, rounds := range []int{1, 3} {
		m := newMachine(1)
		m.rounds = rounds
		run := open(t, m.outcome(2))
		v := must(compare.Gate(run, run, "gate.yaml", rules(t, throughput), false))(t)
		var b bytes.Buffer
		if err := v.Text(&b); err != nil || v.Failed || !v.CannotTell || !strings.Contains(b.String(), "gate cannot tell: of 3 figures, 3 cannot tell") {
			t.Errorf("%v, failed: %v:\n%s", err, v.Failed, b.String())
		}
	}
	old, now := newMachine(1).outcome(2), newMachine(2).outcome(2)
	for i := range old.Comparisons[0].Cells {
		for _, c := range []*lab.CellResult{&old.Comparisons[0].Cells[i], &now.Comparisons[0].Cells[i]} {
			plant(c, []float64{100, 100.1, 99.9, 100, 100.1, 99.9, 100, 100.2})
		}
	}
	check := func(strict, want bool) {
		v, err := compare.Gate(open(t, old), open(t, now), "gate.yaml", rules(t, throughput), strict)
		if err != nil || v.Failed || v.CannotTell != want {
			t.Errorf("strict: %v: %v, %+v", strict, err, v)
		}
	}
	check(true, false)
	plant(&now.Comparisons[0].Cells[1], []float64{80, 120, 90, 110, 100, 70, 130, 100})
	check(false, false)
	check(true, true)
}

func TestTextGolden(t *testing.T) {
	old, now := newMachine(1).outcome(6), newMachine(2).outcome(7)
	c := &now.Comparisons[0]
	slow(&c.Cells[3], 0.15)
	c.Cells[4].Rounds, c.Cells[4].Verdict = nil, lab.Verdict{Status: lab.Invalid, Cause: lab.CauseLost, Detail: "1 event (key ns/pod-3)"}
	c.Cells[5].Class = "order per-key"
	plant(&c.Cells[2], []float64{300, 330, 180, 299, 420, 260, 198, 300})
	c.Cells = append(c.Cells[:1:1], c.Cells[2:]...)
	v := must(compare.Gate(open(t, old), open(t, now), "gate.yaml", rules(t, throughput), false))(t)
	v.Old, v.New = "old", "new"
	var got bytes.Buffer
	noError(t, v.Text(&got))
	golden.Check(t, "gate.txt", got.String())
	var decoded compare.GateResult
	got.Reset()
	noError(t, lab.EncodeJSON(&got, v))
	if err := json.Unmarshal(got.Bytes(), &decoded); err != nil || len(decoded.Findings) != len(v.Findings) || !decoded.Failed {
		t.Errorf("%v:\n%s", err, got.String())
	}
}
