package dashboards

import (
	"fmt"
	"strings"

	"watchlab/bench/telemetry/metric"
)

// selector is a list of label matchers in PromQL.
type selector []string

// equal matches one value, among the selection of a picker. Both return a longer copy.
func (s selector) equal(label, value string) selector {
	return append(s[:len(s):len(s)], fmt.Sprintf("%s=%q", label, value))
}

func (s selector) among(label, variable string) selector {
	return append(s[:len(s):len(s)], fmt.Sprintf(`%s=~"$%s"`, label, variable))
}

// of selects series of a metric.
func (s selector) of(m metric.Metric) string { return s.named(m.Name) }

func (s selector) named(name string) string {
	if len(s) == 0 {
		return name
	}
	return name + "{" + strings.Join(s, ",") + "}"
}

// over is the window of rates: at least four scrapes, so that a missed one leaves no gap.
// span is the time range of the dashboard.
const (
	over = "$__rate_interval"
	span = "$__range"
)

// rate is the increase per second of a counter or a histogram.
func (s selector) rate(m metric.Metric) string { return s.rateNamed(m.Name, over) }

// rateNamed is the rate over a window, or the increase over the whole span: Grafana's
// linter rejects a rate over other windows than $__rate_interval.
func (s selector) rateNamed(name, window string) string {
	f := "rate"
	if window == span {
		f = "increase"
	}
	return f + "(" + s.named(name) + "[" + window + "])"
}

// aggregate aggregates by labels; without labels, to one series.
func aggregate(op, expr string, by ...string) string {
	if len(by) == 0 {
		return op + "(" + expr + ")"
	}
	return op + " by (" + strings.Join(by, ", ") + ") (" + expr + ")"
}

func sum(expr string, by ...string) string     { return aggregate("sum", expr, by...) }
func maximum(expr string, by ...string) string { return aggregate("max", expr, by...) }
func minimum(expr string, by ...string) string { return aggregate("min", expr, by...) }

// Prometheus keeps a histogram's native form, its classic buckets, or both. Queries use
// the native form, which is finer, and fall back to the classic one.

// quantile estimates a quantile of the observations in the window. ">= 0" removes the
// NaN of a window without observations.
func (s selector) quantile(q float64, m metric.Metric, window string, by ...string) string {
	native := sum(s.rateNamed(m.Name, window), by...)
	classic := sum(s.rateNamed(m.Name+"_bucket", window), append(by[:len(by):len(by)], "le")...)
	return fmt.Sprintf("(histogram_quantile(%g, %s) or histogram_quantile(%g, %s)) >= 0", q, native, q, classic)
}

// mean of the observations in the window.
func (s selector) mean(m metric.Metric, window string, by ...string) string {
	native := sum(s.rateNamed(m.Name, window), by...)
	return fmt.Sprintf("(histogram_sum(%s) / histogram_count(%s) or %s / %s) >= 0", native, native,
		sum(s.rateNamed(m.Name+"_sum", window), by...), sum(s.rateNamed(m.Name+"_count", window), by...))
}

// observations per second.
func (s selector) observations(m metric.Metric, window string, by ...string) string {
	return fmt.Sprintf("histogram_count(%s) or %s", sum(s.rateNamed(m.Name, window), by...), sum(s.rateNamed(m.Name+"_count", window), by...))
}

// endToEnd is a quantile of the headline latency: from the intended time in paced cells,
// else from the release.
func (s selector) endToEnd(q float64, window string, by ...string) string {
	return s.equal(metric.From, metric.FromIntended).quantile(q, metric.EndToEndLatency, window, by...) +
		" or " + s.equal(metric.From, metric.FromReleased).quantile(q, metric.EndToEndLatency, window, by...)
}

// cells and rows are the queries of a heat map: native histograms, and classic buckets if
// there are no native ones.
func (s selector) cells(m metric.Metric) string { return sum(s.rate(m)) }

func (s selector) rows(m metric.Metric) string {
	return sum(s.rateNamed(m.Name+"_bucket", over), "le") + " unless on () " + sum(s.rate(m))
}

// orZero adds a zero for counters without a series: during a run, as a series with the
// label's value none. Without a label the zero has no labels, like a sum.
func orZero(expr, label string) string {
	zero := "0 * group(" + ours().of(metric.Phase) + ")"
	if label == "" {
		return expr + " or on () " + zero
	}
	return fmt.Sprintf(`%s or on () label_replace(%s, %q, "none", "", "")`, expr, zero, label)
}

// labelValues queries the values of a picker.
func labelValues(series, label string) string { return "label_values(" + series + ", " + label + ")" }

// histogramValues queries the values of a histogram's label, in either form.
func histogramValues(s selector, m metric.Metric, label string) string {
	either := append(selector{fmt.Sprintf("__name__=~%q", m.Name+"(_count)?")}, s...)
	return labelValues(either.named(""), label)
}

// process selects by process, for metrics without labels of a run; ours selects by run too.
func process() selector { return selector{}.among("job", "job").among("instance", "instance") }

func ours() selector { return process().among(metric.Run, "run") }
