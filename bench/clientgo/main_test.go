package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/clientgo/round"
	"watchlab/loadgen/pace"
)

func TestParseBaseline(t *testing.T) {
	for name, want := range map[string]string{
		"clientgo@0.31/deltafifo":     "",
		"clientgo@0.33/deltafifo":     "InOrderInformers=false",
		"clientgo@0.33/realfifo":      "InOrderInformers=true",
		"clientgo@0.35/realfifo-list": "WatchListClient=false InOrderInformers=true InOrderInformersBatchProcess=false",
		"clientgo@0.35/deltafifo":     "WatchListClient=true InOrderInformers=false InOrderInformersBatchProcess=false",
		"clientgo@0.36/realfifo":      "WatchListClient=true InOrderInformersBatchProcess=false AtomicFIFO=false UnlockWhileProcessingFIFO=false",
		"clientgo@0.37/realfifo-unlocked": "WatchListClient=true InOrderInformersBatchProcess=true AtomicFIFO=true " +
			"UnlockWhileProcessingFIFO=true",
		"clientgo@ours/ring": "",
	} {
		b, err := parseBaseline(name)
		got := strings.ReplaceAll(strings.Join(b.env(), " "), "KUBE_FEATURE_", "")
		if err != nil || got != want || b.String() != name {
			t.Errorf("%s: %s, gates %q, %v (want gates %q)", name, b, got, err, want)
		}
	}
	for name, want := range map[string]string{
		"realfifo":                        "want clientgo@MINOR/QUEUE",
		"clientgo@0.33":                   "want clientgo@MINOR/QUEUE",
		"clientgo@0.33/":                  "want clientgo@MINOR/QUEUE",
		"clientgo@0.30/deltafifo":         "minors are 0.31 to 0.37",
		"clientgo@33/deltafifo":           "minors are 0.31 to 0.37",
		"clientgo@0.33.1/deltafifo":       "minors are 0.31 to 0.37",
		"clientgo@0.33/fifo":              "queues are deltafifo, realfifo,",
		"clientgo@0.32/realfifo":          "v0.32 has no gate InOrderInformers",
		"clientgo@0.35/realfifo-unlocked": "v0.35 has no gate AtomicFIFO",
		"clientgo@0.36/deltafifo":         "v0.36 has gate InOrderInformers locked on",
	} {
		if _, err := parseBaseline(name); !errors.Is(err, errBaseline) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v (want an error with %q)", name, err, want)
		}
	}
}

// TestDefaults requires that each default baseline exists, and that every minor has one.
func TestDefaults(t *testing.T) {
	p, err := newPlan(strings.Split(defaults, ","), []string{"rollout", list}, 5000)
	if err != nil {
		t.Fatal(err)
	}
	var minors []string
	for _, b := range p.baselines {
		minors = append(minors, b.minor)
	}
	if got, want := strings.Join(slices.Compact(minors), " "), "0.31 0.32 0.33 0.34 0.35 0.36 0.37 ours"; got != want {
		t.Errorf("minors %s (want %s)", got, want)
	}
	if got, want := len(p.plays), 3*len(p.baselines); got != want {
		t.Errorf("%d cells (want %d: two of a storm and one of a list for each baseline)", got, want)
	}
	if _, err := newPlan([]string{"clientgo@ours/ring"}, []string{"drizzle"}, 0); err == nil {
		t.Error("no error for an unknown storm")
	}
}

// TestPrograms builds the oldest and the newest client-go and plays a short storm, a paced one
// and a list through both. Each play checks what arrived.
func TestPrograms(t *testing.T) {
	for _, name := range []string{"clientgo@0.31/deltafifo", "clientgo@0.37/realfifo-list", "clientgo@0.37/realfifo-unlocked"} {
		b, err := parseBaseline(name)
		if err != nil {
			t.Fatal(err)
		}
		program, err := output(t.Context(), "../../scripts/program.sh", b.program())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []round.Request{
			{Storm: "rollout", Pods: 100, Events: 3000},
			{Storm: "nodeloss", Pods: 100, Events: 300, Pace: pace.Rate(3000).Pace()},
			{Storm: "steady", Pods: 500},
		} {
			res, err := play{b, r}.playIn(t.Context(), program)
			if err != nil {
				t.Errorf("%s, %+v: %v", name, r, err)
				continue
			}
			want := uint64(r.Events)
			if res.EventsIn < want || res.EventsIn == 0 || res.AllocsPerEvent <= 0 || res.Memory == nil {
				t.Errorf("%s, %+v: %+v", name, r, res)
			}
			if l, ok := res.At(round.Handled); ok != r.Pace.Paced() || ok && l.Count != want {
				t.Errorf("%s, %+v: latencies of %d events (want %d)", name, r, l.Count, want)
			}
		}
		bad := play{b, round.Request{Storm: "drizzle"}}
		if _, err := bad.playIn(t.Context(), program); err == nil || !strings.Contains(err.Error(), "drizzle") {
			t.Errorf("%s, an unknown storm: %v", name, err)
		}
	}
}
