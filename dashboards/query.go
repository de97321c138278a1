package dashboards

import (
	"fmt"
	"strings"

	"watchlab/bench/telemetry/metric"
)

// selector is a set of label matchers, as PromQL writes them.
type selector []string

// equal matches one value, among those of a picker, All included. Both return a
// longer selector and leave the one that they are called on.
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

// over is the time that rates are taken over. Grafana makes it long enough for
// four scrapes, so that one that is missed leaves no hole. span is the time range
// that is looked at.
const (
	over = "$__rate_interval"
	span = "$__range"
)

// rate is the increase of a counter a second, or the histogram of what was
// observed a second.
func (s selector) rate(m metric.Metric) string { return s.rateNamed(m.Name, over) }

// rateNamed is the rate over a window, or the increase over the whole span:
// Grafana's linter takes a rate over anything but $__rate_interval for a mistake.
func (s selector) rateNamed(name, window string) string {
	f := "rate"
	if window == span {
		f = "increase"
	}
	return f + "(" + s.named(name) + "[" + window + "])"
}

// aggregate is an aggregation by labels; by none, to one series.
func aggregate(op, expr string, by ...string) string {
	if len(by) == 0 {
		return op + "(" + expr + ")"
	}
	return op + " by (" + strings.Join(by, ", ") + ") (" + expr + ")"
}

func sum(expr string, by ...string) string     { return aggregate("sum", expr, by...) }
func maximum(expr string, by ...string) string { return aggregate("max", expr, by...) }
func minimum(expr string, by ...string) string { return aggregate("min", expr, by...) }

// A Prometheus keeps a histogram's native form, its classic buckets, or both,
// depending on its version and settings. What asks a histogram asks for the
// native form first, as it is finer, and takes the classic one where that gives
// nothing.

// quantile estimates a quantile of what was observed in the window. Where nothing
// was, there is no sample: >= 0 removes NaN.
func (s selector) quantile(q float64, m metric.Metric, window string, by ...string) string {
	native := sum(s.rateNamed(m.Name, window), by...)
	classic := sum(s.rateNamed(m.Name+"_bucket", window), append(by[:len(by):len(by)], "le")...)
	return fmt.Sprintf("(histogram_quantile(%g, %s) or histogram_quantile(%g, %s)) >= 0", q, native, q, classic)
}

// mean is that of what was observed in the window.
func (s selector) mean(m metric.Metric, window string, by ...string) string {
	native := sum(s.rateNamed(m.Name, window), by...)
	return fmt.Sprintf("(histogram_sum(%s) / histogram_count(%s) or %s / %s) >= 0", native, native,
		sum(s.rateNamed(m.Name+"_sum", window), by...), sum(s.rateNamed(m.Name+"_count", window), by...))
}

// observations is how many values were observed a second.
func (s selector) observations(m metric.Metric, window string, by ...string) string {
	return fmt.Sprintf("histogram_count(%s) or %s", sum(s.rateNamed(m.Name, window), by...), sum(s.rateNamed(m.Name+"_count", window), by...))
}

// endToEnd is a quantile of the headline latency: from the intended time where
// there is one, as of paced cells, else from the release.
func (s selector) endToEnd(q float64, window string, by ...string) string {
	return s.equal(metric.From, metric.FromIntended).quantile(q, metric.EndToEndLatency, window, by...) +
		" or " + s.equal(metric.From, metric.FromReleased).quantile(q, metric.EndToEndLatency, window, by...)
}

// cells and rows are the two halves of a heat map: native histograms as they are,
// and classic buckets where there are no native ones, so that never both are
// drawn.
func (s selector) cells(m metric.Metric) string { return sum(s.rate(m)) }

func (s selector) rows(m metric.Metric) string {
	return sum(s.rateNamed(m.Name+"_bucket", over), "le") + " unless on () " + sum(s.rate(m))
}

// orZero stands in for counters that aren't there as they have counted nothing: zero
// while there is a run that would count, else nothing. The label of such a zero says
// none; without a label it is the same series as a sum of all.
func orZero(expr, label string) string {
	zero := "0 * group(" + ours().of(metric.Phase) + ")"
	if label == "" {
		return expr + " or on () " + zero
	}
	return fmt.Sprintf(`%s or on () label_replace(%s, %q, "none", "", "")`, expr, zero, label)
}

// labelValues are the values that a picker offers.
func labelValues(series, label string) string { return "label_values(" + series + ", " + label + ")" }

// histogramValues are those of a histogram's label, in either form.
func histogramValues(s selector, m metric.Metric, label string) string {
	either := append(selector{fmt.Sprintf("__name__=~%q", m.Name+"(_count)?")}, s...)
	return labelValues(either.named(""), label)
}

// process selects by process, for metrics that have no labels of a run; ours
// selects by run, too.
func process() selector { return selector{}.among("job", "job").among("instance", "instance") }

func ours() selector { return process().among(metric.Run, "run") }
