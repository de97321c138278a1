package live

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// TestConventions holds the metrics to Prometheus's naming rules.
func TestConventions(t *testing.T) {
	name := regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	seen := map[string]bool{}
	for _, m := range slices.Concat(Metrics(), ClientGoMetrics()) {
		if !name.MatchString(m.Name) {
			t.Errorf("%q is an invalid name", m.Name)
		}
		if seen[m.Name] {
			t.Errorf("%s is defined twice", m.Name)
		}
		seen[m.Name] = true
		if m.Help == "" {
			t.Errorf("%s has no help", m.Name)
		}
		if total := strings.HasSuffix(m.Name, "_total"); total != (m.Kind == dto.MetricType_COUNTER) {
			t.Errorf("%s: _total is the suffix of counters; it is a %s", m.Name, m.Kind)
		}
		if (len(m.Buckets) > 0) != (m.Kind == dto.MetricType_HISTOGRAM) {
			t.Errorf("%s: a %s with %d buckets", m.Name, m.Kind, len(m.Buckets))
		}
		if !slices.IsSorted(m.Buckets) || len(slices.Compact(slices.Clone(m.Buckets))) != len(m.Buckets) {
			t.Errorf("%s: the buckets do not rise: %v", m.Name, m.Buckets)
		}
		labels := m.AllLabels()
		slices.Sort(labels)
		if len(slices.Compact(labels)) != len(m.AllLabels()) {
			t.Errorf("%s has a label twice: %v", m.Name, m.AllLabels())
		}
		for _, l := range labels {
			if !name.MatchString(l) || l == "le" || l == "instance" || l == "job" {
				t.Errorf("%s: label %q", m.Name, l)
			}
		}
	}
	for _, m := range Metrics() {
		if !strings.HasPrefix(m.Name, "watchlab_") {
			t.Errorf("%s lacks the prefix", m.Name)
		}
	}
}

// TestNativeBuckets: classic bounds are bounds of native buckets, so that their counts are exact.
func TestNativeBuckets(t *testing.T) {
	for _, m := range Metrics() {
		for _, b := range m.Buckets {
			if b == 0 {
				continue
			}
			if frac, _ := math.Frexp(b); frac != 0.5 {
				t.Errorf("%s: %v is not a power of two", m.Name, b)
			}
			if b <= zeroThreshold {
				t.Errorf("%s: %v is counted as zero", m.Name, b)
			}
		}
	}
}
