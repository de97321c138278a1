package live

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// vectors are metrics that Prometheus's client holds, by name.
type vectors struct {
	gauges     map[string]*prometheus.GaugeVec
	counters   map[string]*prometheus.CounterVec
	histograms map[string]*prometheus.HistogramVec
}

func newVectors(r prometheus.Registerer, metrics []Metric) vectors {
	v := vectors{map[string]*prometheus.GaugeVec{}, map[string]*prometheus.CounterVec{}, map[string]*prometheus.HistogramVec{}}
	for _, m := range metrics {
		opts, labels := prometheus.Opts{Name: m.Name, Help: m.Help}, m.AllLabels()
		switch m.Kind {
		case dto.MetricType_GAUGE:
			v.gauges[m.Name] = prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), labels)
			r.MustRegister(v.gauges[m.Name])
		case dto.MetricType_COUNTER:
			v.counters[m.Name] = prometheus.NewCounterVec(prometheus.CounterOpts(opts), labels)
			r.MustRegister(v.counters[m.Name])
		case dto.MetricType_HISTOGRAM:
			v.histograms[m.Name] = prometheus.NewHistogramVec(m.histogramOpts(), labels)
			r.MustRegister(v.histograms[m.Name])
		}
	}
	return v
}

func (v vectors) gauge(m Metric, labels ...string) prometheus.Gauge {
	return v.gauges[m.Name].WithLabelValues(labels...)
}
