package main

import (
	"fmt"
	"strings"
	"text/template"
)

// fragments are named parts of queries. A text can refer to others.
type fragments map[string]string

// expand replaces <<name>> in a text by the fragment of that name, and calls of the functions
// below by PromQL. Fragments are arguments of functions without their brackets, such as
// <<quantile 0.99 rate "watchlab_batch_size" picked variant>>:
//
//   - rate has the rate or increase and its window, with %s for the series;
//   - labels are matchers in PromQL;
//   - by are the labels to keep. Without them the result is one series.
func (f fragments) expand(name, text string) (string, error) {
	functions := template.FuncMap{
		"quantile": quantile, "endToEnd": endToEnd, "mean": mean, "buckets": buckets,
		"figure": figure, "ratio": ratio,
	}
	for name, text := range f {
		functions[name] = func() (string, error) { return f.expand(name, text) }
	}
	t, err := template.New(name).Delims("<<", ">>").Funcs(functions).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, nil)
	return b.String(), err
}

// sum of the rate of a metric.
func sum(rate, metric, labels string, by ...string) string {
	if labels != "" {
		metric += "{" + labels + "}"
	}
	rated := "(" + fmt.Sprintf(rate, metric) + ")"
	if len(by) == 0 {
		return "sum" + rated
	}
	return "sum by (" + strings.Join(by, ", ") + ") " + rated
}

// Prometheus keeps a histogram's native form, its classic buckets, or both. Queries use
// the native form, which is finer, and fall back to the classic one.

// quantile estimates a quantile of the observations. ">= 0" removes the NaN of a window without
// observations. Zero is a bucket up to 1e-10, in which Prometheus interpolates; round undoes that.
func quantile(q float64, rate, metric, labels string, by ...string) string {
	classic := sum(rate, metric+"_bucket", labels, append(by, "le")...)
	return fmt.Sprintf("round(histogram_quantile(%[1]g, %[2]s) or histogram_quantile(%[1]g, %[3]s), 1e-9) >= 0",
		q, sum(rate, metric, labels, by...), classic)
}

// endToEnd is a quantile of the headline latency: from the intended time. Unpaced cells have none:
// from the release, a latency says how far the generator ran ahead.
func endToEnd(q float64, rate, labels string, by ...string) string {
	labels = strings.TrimPrefix(labels+`,from="intended"`, ",")
	return quantile(q, rate, "watchlab_end_to_end_latency_seconds", labels, by...)
}

// mean of the observations.
func mean(rate, metric, labels string, by ...string) string {
	return fmt.Sprintf("(histogram_sum(%s) / histogram_count(%[1]s) or %s / %s) >= 0", sum(rate, metric, labels, by...),
		sum(rate, metric+"_sum", labels, by...), sum(rate, metric+"_count", labels, by...))
}

// figure is the last figure of finished cells in the time range, without those that are invalid now. A run
// that is scraped and pushed has each twice.
func figure(metric, labels, comparison, cell, by string) string {
	return fmt.Sprintf(`avg by (%s) (last_over_time(%s{%s}[$__range]) unless on (job, instance, run, %s) (last_over_time(watchlab_verdict{%s,status="invalid"}[$__range]) == 1))`,
		by, metric, labels, cell, comparison)
}

// ratio is a figure of each row over that of the baseline with the labels alike. Upstream's informer
// lacks the labels of stages that it has built in, store and workqueue: it is the baseline of all.
func ratio(metric, labels, comparison, cell, row, alike, upstream string) string {
	over := func(by, more string) string {
		base := figure(metric, labels+`,variant="$baseline"`+more, comparison, cell, by)
		return fmt.Sprintf(`%s / on (%s) group_left () (%s > 0)`, figure(metric, labels, comparison, cell, row), by, base)
	}
	return over(alike, "") + " or " + over(upstream, `,store="",workqueue=""`)
}

// buckets are the classic buckets for a heat map, if there are no native ones.
func buckets(rate, metric, labels string) string {
	return sum(rate, metric+"_bucket", labels, "le") + " unless on () " + sum(rate, metric, labels)
}
