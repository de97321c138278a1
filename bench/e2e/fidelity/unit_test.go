package fidelity

import (
	"errors"
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

// TestCheck checks that a difference needs a reason, and a reason a difference.
func TestCheck(t *testing.T) {
	differs := []Difference{{"GET a", "x", "1", "2"}}
	for _, tc := range []struct {
		why   string
		found []Difference
		want  error
	}{
		{"", nil, nil},
		{"so it is", differs, nil},
		{"", differs, ErrUnexplained},
		{"so it was", nil, ErrAgreed},
	} {
		r := Result{Question: Question{Area: "List", Title: "all", Why: tc.why}, Differences: tc.found}
		if err := r.Check(); !errors.Is(err, tc.want) {
			t.Errorf("%q with %d differences: %v, want %v", tc.why, len(tc.found), err, tc.want)
		}
	}
}

func TestPage(t *testing.T) {
	long := strings.Repeat("the same beginning, ", 5)
	results := []*Result{
		{Question: Question{Area: "List", Title: "all"}, Answers: 2},
		{Question: Question{Area: "List", Title: "none", Why: "it is so"}, Answers: 1, Differences: []Difference{
			{"GET a|b", "x", `"1"`, Nothing},
			{"GET a", "y", long + "one", long + "other"},
		}},
		{Question: Question{Area: "Watch", Title: "from now"}, Answers: 3},
	}
	const want = `| area | questions | answers | equal answers |
|---|---|---|---|
| List | 2 | 3 | 1 |
| Watch | 1 | 3 | 1 |
| **all** | **3** | **6** | **2** |

### What differs

**List: none.** It is so.

| call | where | theirs | ours |
|---|---|---|---|
| ` + "`GET a\\|b` | `x` | `\"1\"`" + ` | — |
| ` + "`GET a` | `y` | `…he same beginning, one` | `…he same beginning, other`" + ` |

### Questions

| area | question | answers | |
|---|---|---|---|
| List | all | 2 | same |
|  | none | 1 | **differs** |
| Watch | from now | 3 | same |
`
	if d := cmp.Diff(want, Page(results, "theirs", "ours")); d != "" {
		t.Error(d)
	}
}

// TestQuestions checks that all questions are distinct and complete.
func TestQuestions(t *testing.T) {
	seen := map[string]bool{}
	for _, q := range Questions() {
		name := q.Area + ": " + q.Title
		if q.Area == "" || q.Title == "" || q.Run == nil || seen[name] || strings.ContainsAny(q.Title+q.Why, "|\n") || strings.HasSuffix(q.Why, ".") {
			t.Errorf("question %q", name)
		}
		seen[name] = true
	}
}
