package pipeline_test

import (
	"context"
	"errors"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/telemetry/live"
	"watchlab/impls"
	"watchlab/impls/workqueue"
)

// TestUpstream: only paced cells update client-go's own metrics, with each workqueue.
func TestUpstream(t *testing.T) {
	var cells []lab.Cell
	for _, v := range workqueue.Variants() {
		cells = append(cells, comparisons(t, pipeline.Config{Workqueue: v.Name, Family: impls.DeltaFIFO, Pipeline: "informer", Impls: []string{"ring"}, Modes: []string{"in-order"}, Paces: rates(0, 20_000), Events: 1000})...)
	}
	for _, cl := range cells {
		ctx, set, figures := newFigures(t)
		find := func(name string) *dto.Metric {
			if all := figures.series(name); len(all) > 0 {
				return all[0]
			}
			return nil
		}
		w := must(cl.New())(t)
		noError(t, w.Setup(ctx))
		stop := set.Clock()
		set.Look()
		stop()
		if m := find("watchlab_handler_backlog_events"); m == nil || m.GetHistogram().GetSampleCount() != 1 || m.GetHistogram().GetSampleSum() != 0 {
			t.Errorf("%s is %v", "watchlab_handler_backlog_events", m)
		}
		noError(t, runRecorded(ctx, w))
		set.Look()
		if err := w.Teardown(); err != nil {
			t.Error(err)
		}
		paced := cl.Labels[len(cl.Labels)-1].Value != "max"
		for _, test := range []struct {
			of   live.Metric
			want func(m *dto.Metric) bool
		}{
			{live.InformerQueuedItems, func(m *dto.Metric) bool { return m.GetGauge().GetValue() == 0 }},
			{live.InformerStoreResourceVersion, func(m *dto.Metric) bool { return m.GetGauge().GetValue() >= 1000 }},
			{live.InformerProcessingLatency, func(m *dto.Metric) bool { return m.GetHistogram().GetSampleCount() > 0 }},
			// The workqueue does not add a key that already waits: a slow worker leads to few adds.
			{live.WorkqueueAdds, func(m *dto.Metric) bool { return m.GetCounter().GetValue() > 0 }},
			{live.WorkqueueDepth, func(m *dto.Metric) bool { return m.GetGauge().GetValue() == 0 }},
			{live.WorkqueueQueueDuration, func(m *dto.Metric) bool { return m.GetHistogram().GetSampleCount() > 0 }},
			{live.WorkqueueWorkDuration, func(m *dto.Metric) bool {
				h := m.GetHistogram()
				return h.GetSampleCount() > 0 && h.GetSampleSum() > 0
			}},
			{live.WorkqueueUnfinishedWork, func(m *dto.Metric) bool { return m.GetGauge().GetValue() == 0 }},
			{live.WorkqueueLongestRunning, func(m *dto.Metric) bool { return m.GetGauge().GetValue() == 0 }},
			{live.WorkqueueRetries, func(m *dto.Metric) bool { return m.GetCounter().GetValue() == 0 }},
		} {
			m := find(test.of.Name)
			switch {
			case !paced && m != nil:
				t.Errorf("%s is there without a pace", test.of.Name)
			case paced && (m == nil || !test.want(m)):
				t.Errorf("%s is %v", test.of.Name, m)
			}
		}
	}
}

func runRecorded(ctx context.Context, w lab.Workload) error {
	return errors.Join(w.Run(ctx, new(cell.Recorder)), w.Check())
}
