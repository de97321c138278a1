package cell_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"watchlab/bench/cell"
)

// quantiles returns the quantiles of durations.
func quantiles(t interface{ Fatal(...any) }, durations []time.Duration) cell.Quantiles {
	got, err := cell.QuantilesOf(durations)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// anyDuration draws durations of all sizes, including negative and clamped ones.
var anyDuration = rapid.OneOf(
	rapid.Map(rapid.Int64Range(0, int64(time.Millisecond)), func(v int64) time.Duration { return time.Duration(v) }),
	rapid.Map(rapid.Int64Range(0, int64(2*time.Hour)), func(v int64) time.Duration { return time.Duration(v) }),
	rapid.SampledFrom([]time.Duration{math.MinInt64, -time.Second, -1, 0, 1, 2047, 2048, time.Hour - 1, time.Hour, time.Hour + 1, math.MaxInt64}),
)

// TestMergeIsExact: merged parts equal one recorder with all durations, in every figure
// and every bucket.
func TestMergeIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(anyDuration, 1, 200).Draw(t, "durations")
		var parts []cell.Quantiles
		for rest := all; len(rest) > 0; {
			n := len(rest)
			if len(parts) < 3 {
				n = rapid.IntRange(1, n).Draw(t, "part")
			}
			parts = append(parts, quantiles(t, rest[:n]))
			rest = rest[n:]
		}
		got, err := cell.MergeHistograms(parts...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(quantiles(t, all), got); diff != "" {
			t.Fatalf("%d parts differ from the whole (-whole +parts):\n%s", len(parts), diff)
		}
	})
}

func TestMergeErrors(t *testing.T) {
	good := quantiles(t, []time.Duration{1, 2, 3})
	coarse := hdrhistogram.New(1, int64(time.Hour), 1)
	if err := coarse.RecordValue(5); err != nil {
		t.Fatal(err)
	}
	encoded := must(coarse.EncodeV2())(t)
	wrong := good
	wrong.Count = 4
	for name, tc := range map[string]struct {
		part cell.Quantiles
		want string
	}{
		"no histogram":     {cell.Quantiles{Histogram: "junk"}, "histogram 2 of 2"},
		"another geometry": {cell.Quantiles{Count: 1, Histogram: string(encoded)}, "with 1 digits, not of 1 to 3600000000000 with 3"},
		"wrong count":      {wrong, "holds 3 values, not 4"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := cell.MergeHistograms(good, tc.part); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one with %q", err, tc.want)
			}
		})
	}
	none, err := cell.MergeHistograms()
	if err != nil || none.Count != 0 || none.Max != 0 || none.Min != 0 {
		t.Errorf("merge of no parts: %+v, %v", none, err)
	}
}
