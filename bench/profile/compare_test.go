package profile_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"watchlab/bench/internal/golden"
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

func TestCompareText(t *testing.T) {
	for name, tc := range map[string]struct {
		before, after float64
		o             profile.Options
		n             int
		single        bool
	}{
		"per-event": {before: 1000, after: 2000},
		"shares":    {before: 1000},
		"stages":    {before: 1000, after: 2000, o: profile.Options{By: profile.LabelStage}},
		"one-stage": {before: 1000, after: 2000, o: profile.Options{Stage: "pop"}},
		"two-rows":  {before: 1000, after: 2000, n: 2},
		"top":       {after: 2000, single: true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := pair(t, tc.before, tc.after)
			if tc.single {
				before = nil
			}
			table, err := profile.Compare(before, after, tc.o)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			if err := table.Text(&got, tc.n); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, name+".txt", got.String())
		})
	}
}

// TestCompareFigures compares the row of one function with values computed by hand.
func TestCompareFigures(t *testing.T) {
	before, after := pair(t, 1000, 2000)
	table, err := profile.Compare(before, after, profile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]profile.Row{}
	for _, r := range table.Rows {
		rows[r.Name] = r
	}
	pop := rows["example.com/q/queue.(*Queue[example.com/q.T]).Pop"]
	if table.Unit != "ns/event" || pop.Flat.Before != 4e6 || pop.Flat.After != 1e6 || pop.Cum.Before != 5e6 || pop.Cum.After != 1e6 || pop.Flat.Chance {
		t.Errorf("%s, %+v", table.Unit, pop)
	}
	// 100 samples become 220 with twice the events: 1 ms becomes 1.1 ms. The standard
	// error of the difference is √(100+220/4)·10 ms/1000 = 0.124 ms.
	store := rows["main.store"]
	if math.Abs(store.Flat.Change()-0.1e6) > 1 || store.Cum.After != 1.1e6 || !store.Flat.Chance {
		t.Errorf("%+v", store)
	}
	if table.Before.Samples != 600 || table.After.Samples != 460 || table.Rows[0].Name != pop.Name {
		t.Errorf("%+v, %+v, first %s", table.Before, table.After, table.Rows[0].Name)
	}
	if table.SortByCum(); table.Rows[0].Name != pop.Name && table.Rows[0].Name != "main.main" {
		t.Errorf("first by cum %s", table.Rows[0].Name)
	}
}

// TestInstantFiguresNotPerEvent checks that the live heap is not divided by the number of events.
func TestInstantFiguresNotPerEvent(t *testing.T) {
	for kind, unit := range map[string][2]string{"inuse_space": {"bytes", "B"}, "inuse_objects": {"count", "inuse_objects"}, "goroutine": {"count", "goroutine"}} {
		before := newMaker(kind, unit[0], 1).add("", 100, "f").source(t, "a", 10)
		after := newMaker(kind, unit[0], 1).add("", 150, "f").source(t, "b", 1000)
		table, err := profile.Compare(before, after, profile.Options{})
		if err != nil || table.Unit != unit[1] || table.Rows[0].Flat.Change() != 50 {
			t.Errorf("%s: %+v, %v", kind, table, err)
		}
	}
}

// TestCountedNotSampled checks that counted values have no sampling error.
func TestCountedNotSampled(t *testing.T) {
	before := newMaker("delay", "nanoseconds", 1).add("", 100, "f").source(t, "a", 10)
	after := newMaker("delay", "nanoseconds", 1).add("", 101, "f").source(t, "b", 10)
	table, err := profile.Compare(before, after, profile.Options{})
	if err != nil || table.Rows[0].Flat.Chance || table.After.Samples != 0 {
		t.Errorf("%+v, %v", table, err)
	}
}

func TestCompareErrors(t *testing.T) {
	cpu := func() *maker { return newMaker("cpu", "nanoseconds", 10*ms).add("", 10*ms, "f") }
	for name, tc := range map[string]struct {
		after *profile.Source
		o     profile.Options
		want  error
		says  string
	}{
		"kind":  {newMaker("alloc_space", "bytes", 512).add("", 5, "f").source(t, "b", 0), profile.Options{}, profile.ErrKinds, "a has cpu in nanoseconds, b has alloc_space in bytes"},
		"value": {cpu().source(t, "b", 0), profile.Options{Value: "x"}, profile.ErrValue, `"x" (have samples, cpu)`},
		"label": {cpu().source(t, "b", 0), profile.Options{By: "stage"}, profile.ErrLabel, `"stage"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := profile.Compare(cpu().source(t, "a", 0), tc.after, tc.o); !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want %v with %q", err, tc.want, tc.says)
			}
		})
	}
}

// TestOneSideEmpty checks that one of two profiles may be empty, but not both.
func TestOneSideEmpty(t *testing.T) {
	none := func(name string) *profile.Source {
		return newMaker("cpu", "nanoseconds", 10*ms).source(t, name, 100)
	}
	some := newMaker("cpu", "nanoseconds", 10*ms).add("pop", 1000*ms, "f").source(t, "some", 100)
	for _, events := range []float64{100, 0} {
		some.Events = events
		table, err := profile.Compare(some, none("none"), profile.Options{By: profile.LabelStage})
		if err != nil || len(table.Rows) != 1 || table.Rows[0].Flat.After != 0 || table.Rows[0].Flat.Before <= 0 || table.Rows[0].Flat.Chance {
			t.Errorf("%+v, %v", table, err)
		}
	}
	if _, err := profile.Compare(none("a"), none("b"), profile.Options{}); !errors.Is(err, profile.ErrEmpty) || !strings.Contains(err.Error(), "a and b") {
		t.Errorf("of two: %v", err)
	}
	if _, err := profile.Compare(nil, none("a"), profile.Options{}); !errors.Is(err, profile.ErrEmpty) {
		t.Errorf("of one: %v", err)
	}
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
	if table, err := profile.Compare(nil, before, profile.Options{}); err != nil || table.After.Value != 6e6 {
		t.Errorf("the source after writing: %+v, %v", table, err)
	}
}
