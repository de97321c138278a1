package rules

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"watchlab/loadgen/manifest"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "my.yaml")
	if err := os.WriteFile(file, []byte("rules:\n- {after: pods, expect: write to it}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Load("nodes, " + file)
	if err != nil || len(r.rules) != 3 || len(r.finals) != 2 {
		t.Errorf("%v: %+v", err, r)
	}
	for _, name := range append(Names(), "") {
		if _, err := Load(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	if r, err := Load(""); err != nil || len(r.rules) != 1 || len(r.rules[0].expect) != 4 {
		t.Errorf("%v: %+v", err, r)
	}
	_, err = Load("deployment")
	var at *manifest.Error
	if !errors.As(err, &at) || err.Error() != "deployment: no such file or directory (built-in rules: deployments, nodes, replicasets)" {
		t.Error(err)
	}
	if _, err := Load(dir); !errors.As(err, &at) {
		t.Error(err)
	}
}

// Each error is one line with the file, the line, and what is allowed.
func TestErrors(t *testing.T) {
	for _, test := range []struct{ file, want string }{
		{"", ": neither rules nor never nor final"},
		{"# nothing\n", ": neither rules nor never nor final"},
		{"a: [", ":1: did not find expected node content"},
		{"rules: []\n---\nrules: []\n", ":2: more than one document"},
		{"rules: []\n", ": neither rules nor never nor final"},
		{"rule: []\n", `:1: unknown field "rule"`},
		{"[]\n", ":1: array is not fields with values"},
		{"rules: 7\n", ":1: rules: number is not a list"},
		{"rules:\n- after: pods\n", ":2: rules.0.expect: is missing"},
		{"rules:\n- expect: write to it\n", ":2: rules.0.after: is missing"},
		{"rules:\n- after: pods\n  after: pods\n  expect: write to it\n", `:3: key "after" already set in map`},
		{"rules:\n- after: Pods\n  expect: write to it\n", `:2: rules.0.after: resource "Pods" (allowed: a plural name such as pods, or deployments.apps, or *)`},
		{"rules:\n- after: pods CHANGED\n  expect: write to it\n", `:2: rules.0.after: event "CHANGED" (allowed: ADDED, MODIFIED, DELETED, or several as in ADDED|MODIFIED)`},
		{"rules:\n- after: pods =x\n  expect: write to it\n", `:2: rules.0.after: field "=x" (allowed: FIELD=VALUE or FIELD!=VALUE, as in phase=Failed)`},
		{"rules:\n- after: pods phase=a b\n  expect: write to it\n", `:2: rules.0.after: field "b" (allowed: FIELD=VALUE or FIELD!=VALUE, as in phase=Failed)`},
		{"rules:\n- after: ' '\n  expect: write to it\n", ":2: rules.0.after: empty (allowed: RESOURCE [TYPE[|TYPE]] [FIELD=VALUE …])"},
		{"rules:\n- after: pods\n  expect: read it\n", `:3: rules.0.expect: "read it" (allowed: VERB to [SUBRESOURCE of] TARGET; VERB is write, create, update, patch, apply, delete)`},
		{"rules:\n- after: pods\n  expect: write to its parent\n", `:3: rules.0.expect: target "its parent" (allowed: [SUBRESOURCE of] TARGET; TARGET is one of: ` + targets + `)`},
		{"rules:\n- after: pods\n  expect: write to status of\n", `:3: rules.0.expect: target "status of" (allowed: [SUBRESOURCE of] TARGET; TARGET is one of: ` + targets + `)`},
		{"rules:\n- after: pods\n  expect: write to Pods it owns\n", `:3: rules.0.expect: resource "Pods" (allowed: a plural name such as pods, or deployments.apps, or *)`},
		{"rules:\n- after: pods\n  expect: []\n", ":3: rules.0.expect: is missing"},
		{"rules:\n- after: [pods]\n  expect: write to it\n", ":2: rules.after: array is not a single value"},
		{"rules:\n- {after: pods, expect: write to it, within: soon}\n", `:2: rules.0.within: "soon" (allowed: a duration such as 10s)`},
		{"rules:\n- {after: pods, expect: write to it, within: -1s}\n", `:2: rules.0.within: "-1s" (allowed: a duration such as 10s)`},
		{"rules:\n- {after: pods, expect: write to it, by: me}\n", `:2: rules.0.by: "me" (allowed: storm, workload, lifecycle, controller)`},
		{"rules:\n- {after: pods, expect: write to it}\n- {after: pods, expect: write to it}\n", `:3: rules.1.name: "pods: write to it" twice; give one of them another name`},
		{"rules:\n- after: pods\n  expect: write to it\n  when: .a ==\n", ":4: rules.0.when: .a ==: unexpected EOF"},
		{"rules:\n- after: pods\n  expect: write to it\n  when: $after\n", ":4: rules.0.when: $after: variable not defined: $after"},
		{"rules:\n- {after: pods, expect: write to it, name: \"a\\tb\"}\n", ":2: rules.0.name: \"a\\tb\": it must be printable"},
		{"rules:\n- after: pods\n  expect: write to it\n  when: " + strings.Repeat("1+", 3000) + "1\n", ":4: rules.0.when: more than 4096 bytes"},
		{"final:\n- has: .a\n", ":2: final.0.each: is missing"},
		{"final:\n- each: pods\n", ":2: final.0.has: is missing, and so is owns"},
		{"final:\n- each: pods\n  has: $before\n", ":3: final.0.has: $before: variable not defined: $before"},
		{"final:\n- each: pods\n  has: .a\n  written: sure\n", `:4: final.0.written: "sure" (allowed: status)`},
		{"final:\n- each: pods\n  owns: {resource: pods}\n", ":3: final.0.owns.count: is missing"},
		{strings.Repeat("#", maxFile+1), ": more than 1048576 bytes"},
	} {
		_, err := Parse("my.yaml", []byte(test.file))
		if err == nil || err.Error() != "my.yaml"+test.want {
			t.Errorf("%.60q: %v\nwant %s", test.file, err, test.want)
		}
	}
}

// The parser returns rules or an error of one line, and what it returns can judge a play.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("builtin/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("rules:\n- after: pods MODIFIED|ADDED phase!=Failed|Succeeded labels.a=\n  expect: [delete it, write to status of its owner]\n  within: 10s\n"))
	f.Add([]byte("rules:\n- after: '* replicas=1'\n  expect: write to leases of the same name\n  when: .spec.a[0] == $before.spec\n"))
	f.Add([]byte("final:\n- {each: pods, has: '.a | keys', owns: {resource: '*', count: 1}}\n"))
	p := playOf(f, "0s storm ADDED pods a/p uid=u status.phase=Failed\n1s storm MODIFIED pods a/p status.phase=Running owner=Pod:p:u\n2s c delete pods a/p 200\n")
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		if strings.Contains(string(data), "repeat") || strings.Contains(string(data), "range") {
			t.Skip("it may take as long as an expression is allowed to")
		}
		r, err := Parse("file", data)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("several lines: %q", err)
			}
			return
		}
		r.Judge(p)
	})
}
