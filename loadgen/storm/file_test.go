package storm_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"watchlab/loadgen/fault"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/storm"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestFileErrors: an error is one line with the file, the line and the valid values.
func TestFileErrors(t *testing.T) {
	const golden = "testdata/errors.txt"
	old, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	comment, rest, ok := strings.Cut(string(old), "\n=>")
	if !ok {
		t.Fatal("no section")
	}
	var now strings.Builder
	now.WriteString(comment)
	sections := strings.Split("\n=>"+rest, "\n---\n")
	for i, section := range sections {
		in, _, ok := strings.Cut(section, "=>")
		if !ok {
			t.Fatalf("section %d has no =>", i+1)
		}
		// The first section is the empty file, whose => follows the comment.
		_, err := storm.Parse("x.yaml", []byte(strings.TrimPrefix(in, "\n")), 1)
		if err == nil {
			t.Fatalf("section %d is accepted:\n%s", i+1, in)
		}
		said := err.Error()
		var at *storm.FileError
		if !errors.As(err, &at) || at.File != "x.yaml" || strings.Contains(said, "\n") {
			t.Errorf("section %d: the error is not one line of the file: %q", i+1, said)
		}
		now.WriteString(in + "=> " + said + "\n")
		if i < len(sections)-1 {
			now.WriteString("---\n")
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(now.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.TrimSpace(string(old)), strings.TrimSpace(now.String())); diff != "" && !*update {
		t.Error(diff)
	}
}

const blackFriday = `
seed: 7
profiles:
- profile: steady
  nodes: 100
  churnPerSecond: 3
- profile: nodeloss
  start: 20s
  duration: 1m
  pace: trace:2x
  seed: 8
  nodes: 50
  lost: 0.5
- profile: relist
  scale: 0.01
  podBytes: [3000]
  skew: zipf:1.1
faults:
- name: disconnect
  every: 2s
  count: 3
`

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "black-friday.yaml")
	if err := os.WriteFile(path, []byte(blackFriday), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := storm.ReadFile(path, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "black-friday" || len(c.Parts) != 3 || len(c.Faults) != 1 {
		t.Fatalf("%+v", c)
	}
	steady, loss, relist := c.Parts[0].Profile, c.Parts[1].Profile, c.Parts[2].Profile
	// Missing sizes follow the nodes; given values stay.
	if steady.Pods != 3000 || steady.ChurnPerSecond != 3 || steady.UpdatesPerSecond != 2 || c.Parts[0].Seed != 7 {
		t.Errorf("%+v", c.Parts[0])
	}
	p := c.Parts[1]
	if loss.Lost != 0.5 || loss.Pods != 5500 || p.Seed != 8 || p.Start != 20*time.Second || p.Duration != time.Minute || p.Pace.String() != "trace:2x" {
		t.Errorf("%+v", p)
	}
	if relist.Pods != 1500 || relist.UpdatesPerSecond != 10 || relist.Skew != storm.Zipf(1.1) || !cmp.Equal(relist.PodBytes, []int{3000}) {
		t.Errorf("%+v", relist)
	}
	if f := c.Faults[0]; f.Name != fault.Disconnect || f.Every != fault.Duration(2*time.Second) {
		t.Errorf("%+v", f)
	}

	if _, err := storm.ReadFile(path+"x", 1); !errors.Is(err, os.ErrNotExist) || strings.Count(err.Error(), path) != 1 {
		t.Errorf("missing file: %v", err)
	}
}

// TestYAML: a written composition parses to the same composition.
func TestYAML(t *testing.T) {
	read, err := storm.Parse("x.yaml", []byte(blackFriday), 1)
	if err != nil {
		t.Fatal(err)
	}
	all := []storm.Composition{read}
	for _, name := range storm.Names() {
		all = append(all, storm.Compose(small(t, name), 5))
	}
	for _, c := range all {
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		got, err := storm.Parse("x.yaml", text, 99)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		again, err := got.YAML()
		if err != nil || !bytes.Equal(text, again) {
			t.Errorf("%v: %s", err, cmp.Diff(string(text), string(again)))
		}
		if diff := cmp.Diff(c, got, cmp.AllowUnexported(storm.Skew{}), cmpopts.IgnoreUnexported(storm.Profile{}), cmp.Comparer(func(a, b pace.Pace) bool { return a.String() == b.String() })); diff != "" {
			t.Errorf("%s\n%s", diff, text)
		}
	}
}

// FuzzParse: a file is a composition that survives writing and reading, or an error of one line.
func FuzzParse(f *testing.F) {
	f.Add([]byte(blackFriday))
	for _, name := range storm.Names() {
		text, err := storm.Compose(profile(f, name), 1).YAML()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	broken, err := os.ReadFile("testdata/errors.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, section := range strings.Split(string(broken), "\n---\n") {
		in, _, _ := strings.Cut(section, "=>")
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		c, err := storm.Parse("fuzz.yaml", data, 1)
		if err != nil {
			var at *storm.FileError
			if !errors.As(err, &at) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("the file was read but is not valid: %v", err)
		}
		text, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := storm.Parse("fuzz.yaml", text, 2)
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		other, err := again.YAML()
		if err != nil || !bytes.Equal(text, other) {
			t.Fatalf("%v: %s", err, cmp.Diff(string(text), string(other)))
		}
	})
}
