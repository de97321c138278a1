package fidelity

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestNormal checks that values that differ between runs get placeholders in order of appearance.
func TestNormal(t *testing.T) {
	n := newNames()
	n.now = func() time.Time { return time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC) }
	const first, second = "11111111-2222-3333-4444-555555555555", "aaaaaaaa-2222-3333-4444-555555555555"
	got := n.normal(map[string]any{
		"a": map[string]any{"metadata": map[string]any{
			"resourceVersion": "812", "uid": first, "creationTimestamp": "2026-11-21T11:59:58Z", "labels": map[string]any{"since": "2001-01-01T00:00:00Z"},
		}},
		"b": map[string]any{"metadata": map[string]any{"resourceVersion": "815", "uid": second}},
		"c": map[string]any{"metadata": map[string]any{"resourceVersion": "812", "uid": first}},
		"d": map[string]any{"metadata": map[string]any{"generateName": "made-", "name": "made-bc24x"}},
		"e": map[string]any{"items": []any{}, "metadata": map[string]any{"resourceVersion": "900", "continue": "abc"}},
		"f": `uid ` + second + ` of made-bc24x: too old resource version: 3 (17), "resourceVersion":"812", on 127.0.0.1:4567 in fidelity-12`,
		"g": []any{"3s", "3 s"},
		"h": map[string]any{"metadata": map[string]any{"generateName": "made-", "name": "made-aeiou"}},
	})
	want := map[string]any{
		"a": map[string]any{"metadata": map[string]any{
			"resourceVersion": "<version 1>", "uid": "<uid 1>", "creationTimestamp": "<now>", "labels": map[string]any{"since": "2001-01-01T00:00:00Z"},
		}},
		"b": map[string]any{"metadata": map[string]any{"resourceVersion": "<version 2>", "uid": "<uid 2>"}},
		"c": map[string]any{"metadata": map[string]any{"resourceVersion": "<version 1>", "uid": "<uid 1>"}},
		"d": map[string]any{"metadata": map[string]any{"generateName": "made-", "name": "<generated 1>"}},
		"e": map[string]any{"items": []any{}, "metadata": map[string]any{"resourceVersion": "<version of the list>", "continue": "<token>"}},
		"f": `uid <uid 2> of <generated 1>: too old resource version: <n>, "resourceVersion":"<n>", on 127.0.0.1:<port> in <namespace>`,
		"g": []any{"<age>", "3 s"},

		"h": map[string]any{"metadata": map[string]any{"generateName": "made-", "name": "made-aeiou"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestCompare(t *testing.T) {
	answer := func(call string, pairs ...any) Answer {
		said := map[string]any{}
		for i := 0; i < len(pairs); i += 2 {
			said[pairs[i].(string)] = pairs[i+1]
		}
		return Answer{call, said}
	}
	one := map[string]any{"name": "a", "x": "1"}
	for name, tc := range map[string]struct {
		theirs, ours []Answer
		want         []Difference
	}{
		"same":      {[]Answer{answer("GET a", "code", 200)}, []Answer{answer("GET a", "code", 200)}, nil},
		"value":     {[]Answer{answer("GET a", "x", "1")}, []Answer{answer("GET a", "x", "2")}, []Difference{{"GET a", "x", `"1"`, `"2"`}}},
		"type":      {[]Answer{answer("GET a", "x", "1")}, []Answer{answer("GET a", "x", []any{"1"})}, []Difference{{"GET a", "x", `"1"`, `["1"]`}}},
		"null":      {[]Answer{answer("GET a", "x", nil)}, []Answer{answer("GET a")}, []Difference{{"GET a", "x", "null", Nothing}}},
		"more":      {[]Answer{answer("GET a")}, []Answer{answer("GET a", "x", "1")}, []Difference{{"GET a", "x", Nothing, `"1"`}}},
		"less":      {[]Answer{answer("GET a")}, nil, []Difference{{"GET a", "", "{}", Nothing}}},
		"too much":  {nil, []Answer{answer("GET a")}, []Difference{{"GET a", "", Nothing, "{}"}}},
		"other":     {[]Answer{answer("GET a")}, []Answer{answer("GET b")}, []Difference{{"GET a", "call", "GET a", "GET b"}}},
		"in a list": {[]Answer{answer("GET a", "l", []any{"1", one})}, []Answer{answer("GET a", "l", []any{"1", map[string]any{"name": "a", "x": "2"}})}, []Difference{{"GET a", "l[1].x", `"1"`, `"2"`}}},
		"named": {
			[]Answer{answer("GET a", "l", []any{one, map[string]any{"name": "b"}})}, []Answer{answer("GET a", "l", []any{one})},
			[]Difference{{"GET a", "l.b", `{"name":"b"}`, Nothing}},
		},
		"another code, and what follows": {
			[]Answer{answer("GET a", "code", 200, "body", map[string]any{"kind": "Pod", "x": "1"})},
			[]Answer{answer("GET a", "code", 404, "body", map[string]any{"kind": "Status"})},
			[]Difference{{"GET a", "answer", "200 Pod", "404 Status"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, compare(tc.theirs, tc.ours)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestQuestions checks that all questions are distinct and complete.
func TestQuestions(t *testing.T) {
	questions, err := Questions()
	if err != nil || len(questions) < 200 {
		t.Fatalf("%d questions, %v", len(questions), err)
	}
	seen := map[string]bool{}
	for _, q := range questions {
		name := q.Area + ": " + q.Title
		if q.Area == "" || q.Title == "" || len(q.Steps) == 0 || seen[name] || strings.Contains(q.Title+q.Why, "|") || strings.HasSuffix(q.Why, ".") {
			t.Errorf("question %q", name)
		}
		seen[name] = true
	}
}
