package profile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"watchlab/bench/profile"
)

// maker builds synthetic profiles.
type maker struct {
	p         *pprof.Profile
	functions map[string]*pprof.Location
}

func newMaker(kind, unit string, period int64) *maker {
	return &maker{
		p: &pprof.Profile{
			SampleType: []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: kind, Unit: unit}},
			PeriodType: &pprof.ValueType{Type: kind, Unit: unit}, Period: period,
		},
		functions: map[string]*pprof.Location{},
	}
}

// add adds a stack, outermost function first, with a stage ("" for none).
func (m *maker) add(stage string, value int64, stack ...string) *maker {
	s := &pprof.Sample{Value: []int64{1, value}}
	if stage != "" {
		s.Label = map[string][]string{profile.LabelStage: {stage}}
	}
	for _, name := range stack {
		loc, ok := m.functions[name]
		if !ok {
			f := &pprof.Function{ID: uint64(len(m.p.Function) + 1), Name: name}
			m.p.Function = append(m.p.Function, f)
			loc = &pprof.Location{ID: f.ID, Line: []pprof.Line{{Function: f}}}
			m.p.Location = append(m.p.Location, loc)
			m.functions[name] = loc
		}
		s.Location = append([]*pprof.Location{loc}, s.Location...)
	}
	m.p.Sample = append(m.p.Sample, s)
	return m
}

// source writes the profile to a file and reads it.
func (m *maker) source(t *testing.T, name string, events float64) *profile.Source {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".pb.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(m.p.Write(file), file.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := profile.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	s.Name, s.Events = name, events
	return s
}

const ms = 1_000_000

// pair is a queue before and after a change. Per event, Pop needs a quarter of the time, encode is
// gone, and the collector does new work. The second profile has twice the events.
func pair(t *testing.T, eventsBefore, eventsAfter float64) (before, after *profile.Source) {
	before = newMaker("cpu", "nanoseconds", 10*ms).
		add("pop", 4000*ms, "main.main", "example.com/q/queue.(*Queue[example.com/q.T]).Pop").
		add("pop", 1000*ms, "main.main", "example.com/q/queue.(*Queue[example.com/q.T]).Pop", "main.encode").
		add("store", 1000*ms, "main.main", "main.store").
		source(t, "old", eventsBefore)
	after = newMaker("cpu", "nanoseconds", 10*ms).
		add("pop", 2000*ms, "main.main", "example.com/q/queue.(*Queue[example.com/q.T]).Pop").
		add("store", 2100*ms, "main.main", "main.store").
		add("", 400*ms, "runtime.gc").
		add("store", 100*ms, "main.main", "main.store", "main.store").
		source(t, "new", eventsAfter)
	return before, after
}

func TestReadErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.pb.gz")
	if _, err := profile.Read(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := profile.Read(path); !errors.Is(err, profile.ErrFormat) || !strings.Contains(err.Error(), path) {
		t.Errorf("another file: %v", err)
	}
}

// TestWritePerEvent compares runs of different lengths by the raw values of the files,
// like pprof -diff_base.
func TestWritePerEvent(t *testing.T) {
	before, after := pair(t, 1000, 2000)
	unknown, _ := pair(t, 0, 0)
	values := func(s *profile.Source) map[string]int64 {
		path := filepath.Join(t.TempDir(), "per-event.pb.gz")
		if err := s.WritePerEvent(path); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := pprof.Parse(file)
		if err := errors.Join(err, file.Close(), p.CheckValid()); err != nil {
			t.Fatal(err)
		}
		out := map[string]int64{}
		for _, sample := range p.Sample {
			out[sample.Location[0].Line[0].Function.Name] += sample.Value[1]
		}
		return out
	}
	const pop = "example.com/q/queue.(*Queue[example.com/q.T]).Pop"
	if got := values(before); got[pop] != 4_000_000*ms || got["main.encode"] != 1_000_000*ms {
		t.Errorf("before: %v", got)
	}
	if got := values(after); got[pop] != 1_000_000*ms || got["runtime.gc"] != 200_000*ms {
		t.Errorf("after: %v", got)
	}
	if got := values(unknown); got[pop] != 4000*ms {
		t.Errorf("without events: %v", got)
	}
	heap := newMaker("inuse_space", "bytes", 1).add("", 100, "f").source(t, "heap", 10)
	if got := values(heap); got["f"] != 100 {
		t.Errorf("of a moment: %v", got)
	}
	// WritePerEvent has not changed the source.
	before.Events = 0
	if got := values(before); got[pop] != 4000*ms {
		t.Errorf("the source after writing: %v", got)
	}
}
