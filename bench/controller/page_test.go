package controller_test

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/bench/controller"
	"watchlab/bench/controller/record"
	"watchlab/bench/controller/verdict"
	"watchlab/bench/telemetry/live"
	"watchlab/loadgen/fault"
)

// TestPage: the page has rates from the second look on, and the verdicts of the plays so far.
func TestPage(t *testing.T) {
	p := &controller.Page{}
	if s := p.Now(); s.State != controller.Starting || s.Control || len(s.Figures) > 0 {
		t.Errorf("before the first play: %+v", s)
	}
	looks := 0
	p.Playing(func() controller.Observation {
		looks++
		at, latency := time.Duration(looks)*time.Second, 3*time.Millisecond
		o := controller.Observation{
			Progress: controller.Progress{Name: "first", State: controller.Playing}, At: at, Length: time.Minute, Speed: 2, Requests: 10 * looks * looks,
			Injections: []fault.Injection{{Fault: fault.Relist, Occurrence: 1, Watch: 1}, {Fault: fault.Relist, Occurrence: 1, Watch: 2}},
			Lags:       []record.Lag{{Client: "controller-0", Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Events: 7}},
			Samples:    []record.Sample{{At: at, Client: "controller-0", CPU: at / 4, RSS: 100}, {At: at, Client: "controller-1", CPU: at / 4, RSS: 50}},
		}
		if looks > 1 {
			o.Latency = &latency
		}
		return o
	})
	value := func(s live.StormStatus, name string) *float64 {
		t.Helper()
		i := slices.IndexFunc(s.Figures, func(f live.StormFigure) bool { return f.Name == name })
		if i < 0 {
			t.Fatalf("no figure %s", name)
		}
		return s.Figures[i].Value
	}
	first := p.Now()
	if value(first, "Requests a second") != nil || value(first, "CPU") != nil || value(first, "Slowest reconcile latency") != nil || *value(first, "Memory") != 150 {
		t.Errorf("the first look has rates: %+v", first)
	}
	if again := p.Now(); looks != 1 || again.At != first.At {
		t.Errorf("%d looks by two viewers", looks)
	}
	p.Judged(&controller.Play{Name: "zeroth", Verdicts: []verdict.Verdict{{Name: verdict.HotLoop}, {Name: verdict.Leak, Failed: true, Text: "RSS grew"}}})
	s := p.Now()
	for name, want := range map[string]float64{"Requests a second": 30, "CPU": 0.5, "Slowest reconcile latency": 0.003, "Watch lag": 7} {
		if got := value(s, name); got == nil || *got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if len(s.Plays) != 1 || !s.Plays[0].Failed || s.Plays[0].Verdict != "leak: RSS grew" || len(s.Faults) != 1 || len(s.Watches) != 1 || s.Name != "first" || s.Speed != 2 {
		t.Errorf("%+v", s)
	}
}
