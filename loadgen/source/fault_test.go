package source_test

import (
	"errors"
	"testing"
	"time"

	"watchlab/loadgen/fault"
	"watchlab/loadgen/source"
)

// An informer of a failing server ends in the storm's final state.
func TestFaults(t *testing.T) {
	st := empty()
	// Each fault counts frames, so it strikes at the same events in each run.
	specs := []fault.Spec{
		{Name: fault.Disconnect, Frames: 10, Count: 3},
		{Name: fault.HalfFrame, Frames: 13, Count: 1},
		{Name: fault.Reset, Frames: 17, Count: 1},
		{Name: fault.Drip, Frames: 7, Count: 1, Duration: fault.Duration(50 * time.Millisecond)},
	}
	maker := must(source.Options{Faults: specs, Seed: 1}.Prepare(source.APIServerName, st))(t)
	src := must(maker(t.Context()))(t)
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newSink()
	inf := inform(t, src, s)
	play(t, src, st, 2000)
	s.await(t, uint64(len(st.Events)))
	s.checkState(t, st)
	checkStore(t, st, inf.GetStore())
	if c, err := src.(*source.APIServer).Refresh(); err != nil || c.Faults[fault.Disconnect] != 3 {
		t.Errorf("injected %v (%v), want 3 disconnects", c.Faults, err)
	}
}

func TestNoFaultsFromMemory(t *testing.T) {
	opts := source.Options{Faults: []fault.Spec{{Name: fault.Gone}}}
	if _, err := opts.Prepare(source.MemoryName, empty()); !errors.Is(err, source.ErrNoFaults) {
		t.Errorf("faults of the memory source: %v", err)
	}
	if c, err := open(t, source.APIServerName, empty()).(*source.APIServer).Refresh(); err != nil || c.Faults != nil {
		t.Errorf("faults %v without faults (%v)", c.Faults, err)
	}
}
