package experiment_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/bench/experiment"
	"watchlab/loadgen/manifest"
)

// FuzzParse: a Spec is refused with its file and one line, or reads the same when it is written.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"*.yaml", "experiments/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	for _, s := range []string{
		"search: {knee: {slo: 'p99=1ms,max=2ms', from: 1, to: 1e300}}", "search: {scale: {over: 'producers=1,2,4'}}",
		"family: queue\nsearch: {scale: {over: 'skew=uniform,zipf:1.1'}}", "parts: [{family: queue}, {family: merge, paces: [max, '500']}]",
		"storm: {name: nodeloss, nodes: 1000000, scale: .inf}", "share: 0/4\nlagBudget: 1ms\nfaults: ['gone:at=1s', 'all:every=1s']", "a: &a [*a]",
		"budget: -1s", "rounds: 9223372036854775808", "name: x\nname: y\n", "parts: [{parts: [{}]}]", "knobs: {batchSize: -1}", "profiles: [all, cpu]",
		"claims: [{says: x, unit: B/op, variant: {impl: ring}, relation: at most, bound: .inf}]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		s, err := experiment.Parse("f.yaml", data)
		if err == nil {
			if again, err := experiment.Parse("again", s.JSON()); err != nil || string(again.JSON()) != string(s.JSON()) {
				t.Fatalf("%s reads as %s, %v", s.JSON(), again.JSON(), err)
			}
			s.HasParts()
			err = s.Validate()
		}
		if err == nil {
			return
		}
		err = manifest.Locate("f.yaml", data, err)
		var at *manifest.Error
		if !errors.As(err, &at) || at.Line < 0 || at.Line > strings.Count(string(data), "\n")+1 {
			t.Fatalf("line %d: %v", at.Line, err)
		}
	})
}

// TestHostile: a file that asks for much is refused before it takes time or memory.
func TestHostile(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	numbers := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",%d", i+1)
		}
		return b.String()[1:]
	}
	for name, tc := range map[string]struct{ file, want string }{
		"aliases of a text":  {"name: &a " + text + "\nparts: [" + strings.Repeat("{title: *a},", 50_000) + "]", "aliases expand it by more than 16 MiB"},
		"aliases of aliases": {"a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n", "excessive aliasing"},
		"paces":              {"paces: [" + numbers(1001) + "]", "1001 values (allowed: 1000)"},
		"values":             {"search: {scale: {over: 'producers=" + numbers(100_000) + "'}}", "100000 values (allowed: 1000)"},
		"nested":             {"parts: " + strings.Repeat("[", 20_000), "exceeded max depth"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := experiment.Parse("f", []byte(tc.file))
			if err == nil {
				err = s.Validate()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%.200v; want %q", err, tc.want)
			}
		})
	}
}
