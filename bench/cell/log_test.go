package cell_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"watchlab/bench/cell"
)

// TestLogKeepsEverything: reading a log restores all figures exactly.
func TestLogKeepsEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []cell.Interval
		for round := range rapid.IntRange(0, 2).Draw(t, "rounds") {
			for _, b := range []cell.Boundary{"intended→handled", "popped→stored"}[:rapid.IntRange(1, 2).Draw(t, "boundaries")] {
				want = append(want, cell.Interval{
					Boundary: b, Round: round + 1,
					Started:   time.UnixMilli(rapid.Int64Range(0, 2e12).Draw(t, "started")).UTC(),
					Elapsed:   time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "elapsed")) * time.Millisecond,
					Quantiles: quantiles(t, rapid.SliceOfN(anyDuration, 1, 20).Draw(t, "durations")),
				})
			}
		}
		var log bytes.Buffer
		if err := cell.WriteLog(&log, "Queue/impl=ring\nnot a line", want); err != nil {
			t.Fatal(err)
		}
		got, err := cell.ReadLog(&log)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

// log returns a log of two rounds with one boundary, and its lines.
func log(t *testing.T) (string, []string) {
	t.Helper()
	var b strings.Builder
	err := cell.WriteLog(&b, "Queue/impl=ring", []cell.Interval{
		{Boundary: "a→b", Round: 1, Started: time.UnixMilli(1795274534990), Elapsed: 298 * time.Millisecond, Quantiles: quantiles(t, []time.Duration{1, 142857142})},
		{Boundary: "a→b", Round: 3, Started: time.UnixMilli(1795274535990), Elapsed: 300 * time.Millisecond, Quantiles: quantiles(t, []time.Duration{7})},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), strings.SplitAfter(b.String(), "\n")
}

// TestOthersReadTheLog: the HdrHistogram library reads the log and ignores the
// comments.
func TestOthersReadTheLog(t *testing.T) {
	text, _ := log(t)
	r := hdrhistogram.NewHistogramLogReader(strings.NewReader(text))
	for _, want := range []struct{ count, longest int64 }{{2, 142857142}, {1, 7}} {
		h, err := r.NextIntervalHistogram()
		if err != nil || h == nil {
			t.Fatalf("%v, %v", h, err)
		}
		if h.Tag() != "a→b" || h.TotalCount() != want.count || !h.ValuesAreEquivalent(h.Max(), want.longest) {
			t.Errorf("tag %q, %d values up to %d, want %+v", h.Tag(), h.TotalCount(), h.Max(), want)
		}
	}
}

// TestOlderLog: a log without exact figures yields those of the histogram.
func TestOlderLog(t *testing.T) {
	_, lines := log(t)
	var older strings.Builder
	for _, l := range lines {
		if !strings.HasPrefix(l, "#[Exact") {
			older.WriteString(l)
		}
	}
	got, err := cell.ReadLog(strings.NewReader(strings.TrimSuffix(older.String(), "\n")))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Round != 1 || got[1].Round != 2 || got[0].Count != 2 {
		t.Fatalf("%+v", got)
	}
	if got[0].Max != 142868479 || got[0].Min != 1 || got[1].Mean != 7 {
		t.Errorf("max %d, the upper edge of the bucket is 142868479; min %d, mean %d", got[0].Max, got[0].Min, got[1].Mean)
	}
}

func TestBrokenLog(t *testing.T) {
	text, lines := log(t)
	const interval = 4 // the second line after the head of three
	histogram := lines[interval][strings.LastIndex(lines[interval], ",")+1:]
	for name, tc := range map[string]struct{ text, want string }{
		"exact figures cut": {strings.Replace(text, ", clamped 0, negative 0]", "", 1), "line 4: not a log of histograms: exact figures"},
		"another count":     {strings.Replace(text, "count 2", "count 3", 1), "line 5: not a log of histograms: the histogram holds 2 values, not 3"},
		"no histogram":      {strings.Replace(text, histogram, "HISTFjunk\n", 1), "line 5"},
		"histogram cut":     {text[:len(text)-20], "line 7"},
		"a field too few":   {"1.0,2.0," + histogram, "line 1: not a log of histograms: 3 fields"},
		"time":              {"x,2.0,3.0," + histogram, `"x" is no time`},
		"time out of range": {"1e300,2.0,3.0," + histogram, `"1e300" is no time`},
		"tag alone":         {"Tag=a\n", "a tag and nothing more"},
		"another file":      {"hello\n", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cell.ReadLog(strings.NewReader(tc.text))
			if !errors.Is(err, cell.ErrLog) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v, error %v; want one with %q", got, err, tc.want)
			}
		})
	}
	if _, err := cell.ReadLog(strings.NewReader(strings.Repeat("x", 17<<20))); err == nil {
		t.Error("a line of 17 MB was taken")
	}
}

func TestWriteLogRefuses(t *testing.T) {
	good := quantiles(t, []time.Duration{1})
	for name, tc := range map[string]struct {
		iv   cell.Interval
		want string
	}{
		"boundary":  {cell.Interval{Boundary: "a,b", Round: 2, Quantiles: good}, `round 2: a log can't hold a boundary named "a,b"`},
		"histogram": {cell.Interval{Boundary: "a→b", Round: 2}, "round 2, a→b"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := cell.WriteLog(&strings.Builder{}, "x", []cell.Interval{tc.iv}); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add("#[Exact: round 1, count 1, sum 1, min 1, max 1, clamped 0, negative 0]\nTag=a,1,2,3,HISTFAAAAA\n")
	f.Add("Tag=,1,2,3,\n#\n\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := cell.ReadLog(strings.NewReader(text)); err != nil && !errors.Is(err, cell.ErrLog) {
			t.Errorf("error %v doesn't say that it is no log", err)
		}
	})
}
