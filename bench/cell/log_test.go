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

// TestLogRoundTrip: reading a log restores the histograms of each boundary in their order.
func TestLogRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var log []cell.Interval
		want := map[cell.Boundary][]cell.Quantiles{}
		for range rapid.IntRange(0, 2).Draw(t, "rounds") {
			for _, b := range []cell.Boundary{"intended→handled", "popped→stored"}[:rapid.IntRange(1, 2).Draw(t, "boundaries")] {
				q := quantiles(t, rapid.SliceOfN(anyDuration, 1, 20).Draw(t, "durations"))
				want[b] = append(want[b], cell.Quantiles{Count: q.Count, Histogram: q.Histogram})
				log = append(log, cell.Interval{
					Boundary:  b,
					Started:   time.UnixMilli(rapid.Int64Range(0, 2e12).Draw(t, "started")).UTC(),
					Elapsed:   time.Duration(rapid.Int64Range(0, 1e6).Draw(t, "elapsed")) * time.Millisecond,
					Histogram: q.Histogram,
				})
			}
		}
		var text bytes.Buffer
		if err := cell.WriteLog(&text, "Queue/impl=ring\nnot a line", log); err != nil {
			t.Fatal(err)
		}
		got, err := cell.ReadLog(&text)
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
		{Boundary: "a→b", Started: time.UnixMilli(1795274534990), Elapsed: 298 * time.Millisecond, Histogram: quantiles(t, []time.Duration{1, 142857142}).Histogram},
		{Boundary: "a→b", Started: time.UnixMilli(1795274535990), Elapsed: 300 * time.Millisecond, Histogram: quantiles(t, []time.Duration{7}).Histogram},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String(), strings.SplitAfter(b.String(), "\n")
}

// TestUpstreamReadsLog: the HdrHistogram library reads the log and ignores the comments.
func TestUpstreamReadsLog(t *testing.T) {
	text, _ := log(t)
	h, err := hdrhistogram.NewHistogramLogReader(strings.NewReader(text)).NextIntervalHistogram()
	if err != nil || h == nil || h.Tag() != "a→b" || h.TotalCount() != 2 || !h.ValuesAreEquivalent(h.Max(), 142857142) {
		t.Errorf("%+v, %v", h, err)
	}
}

func TestBrokenLog(t *testing.T) {
	text, lines := log(t)
	const interval = 3 // the first line after the head
	histogram := lines[interval][strings.LastIndex(lines[interval], ",")+1:]
	for name, tc := range map[string]struct{ text, want string }{
		"no histogram":    {strings.Replace(text, histogram, "HISTFjunk\n", 1), "line 4"},
		"histogram cut":   {text[:len(text)-20], "line 5"},
		"a field too few": {"Tag=a,1.0,2.0," + histogram, "line 1: not a log of histograms: not tag, start"},
		"no tag":          {"1.0,2.0,3.0," + histogram, "line 1"},
		"tag alone":       {"Tag=a\n", "line 1"},
		"another file":    {"hello\n", "line 1"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := cell.ReadLog(strings.NewReader(tc.text))
			if !errors.Is(err, cell.ErrLog) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%+v, error %v; want one with %q", got, err, tc.want)
			}
		})
	}
	if _, err := cell.ReadLog(strings.NewReader(strings.Repeat("x", 17<<20))); err == nil {
		t.Error("a line of 17 MB was accepted")
	}
}

func TestWriteLogErrors(t *testing.T) {
	good := quantiles(t, []time.Duration{1})
	for want, iv := range map[string]cell.Interval{
		`x: a log can't hold a boundary named "a,b"`: {Boundary: "a,b", Histogram: good.Histogram}, "x, a→b": {Boundary: "a→b"},
	} {
		if err := cell.WriteLog(&strings.Builder{}, "x", []cell.Interval{iv}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add("#[Histogram log format version 1.3]\nTag=a,1,2,3,HISTFAAAAA\n")
	f.Add("Tag=,1,2,3,\n#\n\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		if _, err := cell.ReadLog(strings.NewReader(text)); err != nil && !errors.Is(err, cell.ErrLog) {
			t.Errorf("error %v, want ErrLog", err)
		}
	})
}
