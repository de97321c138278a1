package main

import (
	"slices"
	"strings"
	"testing"

	"watchlab/bench/clientgo/round"
)

func TestPlan(t *testing.T) {
	p, err := newPlan("")
	if err != nil || len(p.plays) != 4*len(baselines) {
		t.Fatalf("%v: %d plays (want four for each baseline)", err, len(p.plays))
	}
	b := p.plays["Informer/impl=clientgo@0.33:realfifo/storm=rollout/rate=max"].baseline
	if got := b.env(); b.program() != "clientgo@0.33" || !slices.Equal(got, []string{"KUBE_FEATURE_InOrderInformers=true"}) {
		t.Errorf("%s: %v", b.program(), got)
	}
	if _, err := newPlan("clientgo@0.33/realfifo,clientgo@0.33/fifo"); err == nil {
		t.Error("no error for an unknown baseline")
	}
}

// TestPrograms builds the oldest and the newest client-go and plays a short storm
// and a list through both. Each play checks what arrived.
func TestPrograms(t *testing.T) {
	for _, b := range []baseline{baselines[0], baselines[len(baselines)-1]} {
		program, err := output(t.Context(), "../../scripts/program.sh", b.program())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []round.Request{{Storm: "rollout", Pods: 100, Events: 3000}, {Storm: "steady", Pods: 500}} {
			res, err := play{b, r}.playIn(t.Context(), program)
			if err != nil {
				t.Errorf("%s, %+v: %v", b.name, r, err)
				continue
			}
			if want := uint64(r.Events); res.EventsIn < want || res.EventsIn == 0 || res.AllocsPerEvent <= 0 || res.Memory == nil {
				t.Errorf("%s, %+v: %+v", b.name, r, res)
			}
		}
		bad := play{b, round.Request{Storm: "drizzle"}}
		if _, err := bad.playIn(t.Context(), program); err == nil || !strings.Contains(err.Error(), "drizzle") {
			t.Errorf("%s, an unknown storm: %v", b.name, err)
		}
	}
}
