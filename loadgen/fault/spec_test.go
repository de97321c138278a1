package fault_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	yamlv3 "go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"watchlab/loadgen/fault"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]fault.Spec{
		"gone":                          {Name: fault.Gone},
		"gone : at = 5s":                {Name: fault.Gone, At: fault.Duration(5 * time.Second)},
		"disconnect:every=2s,count=10":  {Name: fault.Disconnect, Every: fault.Duration(2 * time.Second), Count: 10},
		"half-frame:frames=7,until=1m":  {Name: fault.HalfFrame, Frames: 7, Until: fault.Duration(time.Minute)},
		"stall:duration=3s":             {Name: fault.Stall, Duration: fault.Duration(3 * time.Second)},
		"crash:after=create pods,nth=2": {Name: fault.Crash, After: "create pods", Nth: 2},
		"conflict:resource=deployments.apps,verb=update,client=controller-1": {
			Name: fault.Conflict, Resource: "deployments.apps", Verb: "update", Client: "controller-1",
		},
	} {
		got, err := fault.Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestParseAll(t *testing.T) {
	got, err := fault.ParseAll("gone; reset:every=1s,count=2\n\nrelist;")
	want := []fault.Spec{{Name: fault.Gone}, {Name: fault.Reset, Every: fault.Duration(time.Second), Count: 2}, {Name: fault.Relist}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("ParseAll: %v\n%s", err, diff)
	}
	got, err = fault.ParseAll("all:every=2s,count=3")
	if diff := cmp.Diff(fault.Cycle(2*time.Second, 3), got); err != nil || diff != "" {
		t.Errorf("ParseAll(all): %v\n%s", err, diff)
	}
	if len(got) != len(fault.Names()) {
		t.Errorf("%d faults in all, want %d", len(got), len(fault.Names()))
	}
}

// anySpec draws a valid spec.
func anySpec(t *rapid.T) fault.Spec {
	s := fault.Spec{Name: rapid.SampledFrom(fault.Names()).Draw(t, "name")}
	duration := func(name string) fault.Duration {
		return fault.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, name))
	}
	s.At, s.Every, s.Until, s.Duration = duration("at"), duration("every"), duration("until"), duration("duration")
	s.Frames = rapid.IntRange(0, 10).Draw(t, "frames")
	s.Count = rapid.IntRange(0, 10).Draw(t, "count")
	s.Resource = rapid.SampledFrom([]string{"", "pods", "jobs.batch"}).Draw(t, "resource")
	if s.Before = rapid.SampledFrom([]string{"", "create pods", "write jobs.batch/status"}).Draw(t, "before"); s.Before != "" {
		s.At, s.Every, s.Until, s.Frames, s.Count = 0, 0, 0, 0, 0
		s.Nth = rapid.IntRange(0, 3).Draw(t, "nth")
	}
	for _, fix := range []func(){
		func() {},
		func() { s.Duration = 0 }, func() { s.Frames = 0 }, func() { s.Every = 0 },
		func() { s.Until = 0 }, func() { s.Resource = "" }, func() { s.Count = 0 }, func() { s.At = 0 },
	} {
		if fix(); s.Validate() == nil {
			return s
		}
	}
	t.Fatalf("not valid: %+v: %v", s, s.Validate())
	return s
}

func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySpec(t)
		if got, err := fault.Parse(s.String()); err != nil || got != s {
			t.Fatalf("text %q: %+v, %v", s, got, err)
		}
		for name, f := range map[string]struct {
			marshal   func(any) ([]byte, error)
			unmarshal func([]byte, any) error
		}{
			"JSON":         {json.Marshal, json.Unmarshal},
			"YAML as JSON": {yaml.Marshal, func(b []byte, v any) error { return yaml.UnmarshalStrict(b, v) }},
			"YAML":         {yamlv3.Marshal, yamlv3.Unmarshal},
		} {
			b, err := f.marshal(s)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var got fault.Spec
			if err := f.unmarshal(b, &got); err != nil || got != s {
				t.Fatalf("%s %s: %+v, %v, want %+v", name, b, got, err, s)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"gone", "disconnect:every=2s,count=10", "all:every=1s,count=3", "stall:at=5s,duration=3s;relist",
		"half-frame:frames=7", ":", "gone:at=", "gone:=", "all:count=9999999999", "gone:nth=0x1p-1074",
		"reset:every=2562047h47m16.854775807s,count=2147483647",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		specs, err := fault.ParseAll(text)
		if err != nil {
			if !errors.Is(err, fault.ErrSpec) || specs != nil {
				t.Fatalf("ParseAll(%q) = %v, %v", text, specs, err)
			}
			return
		}
		for _, s := range specs {
			if err := s.Validate(); err != nil {
				t.Fatalf("ParseAll(%q): %v", text, err)
			}
			if again, err := fault.Parse(s.String()); err != nil || again != s {
				t.Fatalf("%v parsed again: %v, %v", s, again, err)
			}
		}
	})
}

// TestOccurrences: what time alone triggers becomes single faults in order of time; the rest stays as it is.
func TestOccurrences(t *testing.T) {
	for name, c := range map[string]struct{ specs, upto, want string }{
		"none":                 {"", "10s", ""},
		"single":               {"gone:at=5s", "10s", "gone:at=5s"},
		"single after the end": {"gone:at=15s", "10s", "gone:at=15s"},
		"count":                {"gone:every=2s,count=3", "10s", "gone:at=2s; gone:at=4s; gone:at=6s"},
		"at and count":         {"gone:at=1s,every=2s,count=2", "10s", "gone:at=1s; gone:at=3s"},
		"up to the end":        {"gone:every=5s", "10s", "gone:at=5s; gone:at=10s"},
		"until":                {"gone:every=2s,until=6s", "10s", "gone:at=2s; gone:at=4s"},
		"end before count":     {"gone:every=4s,count=9", "10s", "gone:at=4s; gone:at=8s"},
		"duration and aim":     {"stall:every=4s,count=2,duration=1s,resource=a", "10s", "stall:at=4s,duration=1s,resource=a; stall:at=8s,duration=1s,resource=a"},
		"frames":               {"gone:frames=3,count=2", "10s", "gone:frames=3,count=2"},
		"in order of time": {
			"gone:every=4s,count=2; reset:at=6s; relist:every=2s,count=2", "10s",
			"relist:at=2s; gone:at=4s; relist:at=4s; reset:at=6s; gone:at=8s",
		},
		"nothing in time": {"gone:every=20s", "10s", ""},
	} {
		specs, err := fault.ParseAll(c.specs)
		if c.specs != "" && err != nil {
			t.Fatal(err)
		}
		upto, err := time.ParseDuration(c.upto)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range fault.Occurrences(specs, upto) {
			if err := s.Validate(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got = append(got, s.String())
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
		again := fault.Occurrences(fault.Occurrences(specs, upto), upto)
		if diff := cmp.Diff(fault.Occurrences(specs, upto), again); diff != "" {
			t.Errorf("%s: occurrences of occurrences (-once +twice):\n%s", name, diff)
		}
	}
}
