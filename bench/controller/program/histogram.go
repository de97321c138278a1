package program

import "strings"

// Histogram holds the observations of a Prometheus histogram between two scrapes.
type Histogram struct {
	Count, Sum float64
}

// Between returns the observations of a histogram between two scrapes, summed over the series with these
// labels, as in Between(a, b, "workqueue_queue_duration_seconds", map[string]string{"name": "widget"}).
// A nil first scrape is the start of the program.
func Between(first, last map[string]float64, name string, labels map[string]string) Histogram {
	var h Histogram
	for key, value := range last {
		rest, ok := strings.CutPrefix(key, name)
		if !ok || !has(rest, labels) {
			continue
		}
		grown := value - first[key]
		suffix, _, _ := strings.Cut(rest, "{")
		switch suffix {
		case "_sum":
			h.Sum += grown
		case "_count":
			h.Count += grown
		}
	}
	return h
}

// has reports whether a series, without its name, has all labels.
func has(series string, labels map[string]string) bool {
	for name, value := range labels {
		if labelOf(series, name) != escapes.Replace(value) {
			return false
		}
	}
	return true
}

// labelOf returns the escaped value of a label. A quote in a value is escaped, so that none can be taken
// for a label.
func labelOf(series, name string) string {
	for _, before := range []string{"{", ","} {
		_, rest, ok := strings.Cut(series, before+name+`="`)
		for i := 0; ok && i < len(rest); i++ {
			switch rest[i] {
			case '\\':
				i++
			case '"':
				return rest[:i]
			}
		}
	}
	return ""
}

// Mean returns the mean, and NaN without observations.
func (h Histogram) Mean() float64 { return h.Sum / h.Count }
