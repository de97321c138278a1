package lifecycle

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stage is a stage of pods in YAML.
func stage(name, selector, delay, next string) string {
	return "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: Stage\nmetadata: {name: " + name + "}\nspec:\n" +
		"  resourceRef: {apiGroup: v1, kind: Pod}\n" +
		"  selector: {" + selector + "}\n  delay: {" + delay + "}\n  next:\n    " + next + "\n---\n"
}

const (
	isNew = `matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]`
	run   = `statusTemplate: "phase: Running"`
	fail  = `statusTemplate: "phase: Failed"`
)

// TestStageFields: each field that is supported has its effect on a pod.
func TestStageFields(t *testing.T) {
	for name, c := range map[string]struct {
		stages   string
		pod      metav1.ObjectMeta // besides the name
		phase    corev1.PodPhase   // in the end, Pending by default; "gone" if it is deleted
		from, to time.Duration     // when it settles; 0 is not checked
	}{
		"matchLabels": {
			stages: stage("no", `matchLabels: {app: x, tier: y}`, "", fail) + stage("yes", `matchLabels: {app: x}, `+isNew, "", run),
			pod:    metav1.ObjectMeta{Labels: map[string]string{"app": "x", "other": "z"}}, phase: "Running",
		},
		"matchAnnotations": {
			stages: stage("no", `matchAnnotations: {a: other}`, "", fail) + stage("yes", `matchAnnotations: {a: x}, `+isNew, "", run),
			pod:    metav1.ObjectMeta{Annotations: map[string]string{"a": "x"}}, phase: "Running",
		},
		"In":           {stages: inMatch("In", "[b, a]"), pod: labelled("a"), phase: "Running"},
		"In, not":      {stages: inMatch("In", "[b, c]"), pod: labelled("a")},
		"NotIn":        {stages: inMatch("NotIn", "[b, c]"), pod: labelled("a"), phase: "Running"},
		"NotIn, not":   {stages: inMatch("NotIn", "[a]"), pod: labelled("a")},
		"Exists":       {stages: inMatch("Exists", "[]"), pod: labelled("a"), phase: "Running"},
		"Exists, not":  {stages: inMatch("Exists", "[]")},
		"DoesNotExist": {stages: inMatch("DoesNotExist", "[]"), phase: "Running"},
		"DoesNotExist, not": {
			stages: inMatch("DoesNotExist", "[]"), pod: labelled("a"),
		},
		"cel": {
			stages: stage("x", `matchExpressions: [{cel: {expression: "self.status.phase in ['Pending', 'x'] && !has(self.metadata.deletionTimestamp) && size(self.spec.containers) == 2 && self.spec.containers.exists(c, c.name.startsWith('ma')) && self.metadata.labels['x'] != 'b'"}}]`, "", run),
			pod:    labelled("a"), phase: "Running",
		},
		"cel, a missing field": {stages: stage("x", `matchExpressions: [{cel: {expression: "!(self.metadata.labels.y == 'a')"}}]`, "", run), pod: labelled("a")},
		"cel, or":              {stages: stage("x", `matchExpressions: [{cel: {expression: "self.none == 1 || (self.status.phase == 'Pending' ? true : false)"}}]`, "", run), phase: "Running"},
		"durationFrom CEL": {
			stages: stage("x", isNew, `durationFrom: {cel: {expression: "'3s'"}}`, run), phase: "Running", from: 3 * time.Second, to: 3 * time.Second,
		},
		"patches": {
			stages: stage("x", isNew, "", `patches: [{subresource: status, root: status, type: json, template: '[{op: add, path: /phase, value: {{ default "Running" .none }}}]'}]`),
			phase:  "Running",
		},
		"apply": {
			stages: stage("x", isNew, "", `delete: false`) + strings.Replace(stage("y", isNew, "", `delete: false`), "next:\n    delete: false",
				`steps: [{apply: {type: merge, subresource: status, template: '{apiVersion: v1, kind: Pod, metadata: {name: a}, status: {phase: Running}}'}}]`+"\n  weight: 1", 1),
			phase: "Running",
		},
		"other kind": {stages: strings.ReplaceAll(stage("x", isNew, "", run), "kind: Pod", "kind: Node")},
		"other group": {
			stages: strings.ReplaceAll(stage("x", isNew, "", run), "apiGroup: v1", "apiGroup: example.com"),
		},
		"durationMilliseconds": {
			stages: stage("x", isNew, "durationMilliseconds: 5000", run), phase: "Running", from: 5 * time.Second, to: 5 * time.Second,
		},
		"jitterDurationMilliseconds": {
			stages: stage("x", isNew, "durationMilliseconds: 5000, jitterDurationMilliseconds: 6000", run), phase: "Running",
			from: 5001 * time.Millisecond, to: 6 * time.Second,
		},
		"jitterDurationMilliseconds below the duration": {
			stages: stage("x", isNew, "durationMilliseconds: 5000, jitterDurationMilliseconds: 1000", run), phase: "Running",
			from: time.Second, to: time.Second,
		},
		"durationFrom a time": {
			stages: stage("x", isNew, `durationMilliseconds: 9000, durationFrom: {expressionFrom: '.metadata.annotations["due"]'}`, run),
			pod:    metav1.ObjectMeta{Annotations: map[string]string{"due": "2000-01-01T00:00:07Z"}}, phase: "Running",
			from: 6 * time.Second, to: 7 * time.Second,
		},
		"durationFrom a duration": {
			stages: stage("x", isNew, `durationMilliseconds: 9000, durationFrom: {expressionFrom: '.metadata.annotations["due"]'}`, run),
			pod:    metav1.ObjectMeta{Annotations: map[string]string{"due": "3s"}}, phase: "Running", from: 3 * time.Second, to: 3 * time.Second,
		},
		"durationFrom nothing": {
			stages: stage("x", isNew, `durationMilliseconds: 9000, durationFrom: {expressionFrom: '.metadata.annotations["due"]'}`, run),
			phase:  "Running", from: 9 * time.Second, to: 9 * time.Second,
		},
		"statusTemplate": {
			stages: stage("x", isNew, "", `statusTemplate: 'phase: {{ if eq .metadata.name "a" }}Running{{ end }}'`), phase: "Running",
		},
		"finalizers.remove": {
			stages: stage("x", `matchExpressions: [{key: ".metadata.finalizers[]?", operator: In, values: [example.com/b]}]`, "",
				"finalizers: {remove: [{value: example.com/b}]}") +
				stage("y", `matchExpressions: [{key: ".metadata.finalizers | join(\",\")", operator: In, values: ["example.com/a"]}]`, "",
					"delete: true\n    "+run),
			pod: metav1.ObjectMeta{Finalizers: []string{"example.com/a", "example.com/b"}}, phase: "Running",
		},
		"steps in their order": {
			stages: strings.Replace(stage("x", isNew, "", "delete: false"), "next:\n    delete: false",
				`steps: [{patch: {root: metadata, template: 'labels: {a: b}'}}, {event: {type: Normal, reason: R, message: m}}, {finalizers: {remove: [{value: example.com/a}]}}, {patch: {root: status, subresource: status, template: 'phase: Failed'}}, {delete: true}]`, 1),
			pod: metav1.ObjectMeta{Finalizers: []string{"example.com/a"}}, phase: "gone",
		},
		"finalizers.empty": {
			stages: stage("x", "", "", "finalizers: {empty: true}\n    delete: true"),
			pod:    metav1.ObjectMeta{Finalizers: []string{"example.com/a", "example.com/b"}}, phase: "gone",
		},
		"delete":            {stages: stage("x", "", "durationMilliseconds: 1000", "delete: true"), phase: "gone", from: time.Second, to: time.Second},
		"without an effect": {stages: stage("x", isNew, "", run+"\n    event: {type: Normal}\n  immediateNextStage: true"), phase: "Running"},
		"one after another": {
			stages: stage("x", isNew, "durationMilliseconds: 1000", run) +
				stage("y", `matchExpressions: [{key: .status.phase, operator: In, values: [Running]}]`, "durationMilliseconds: 2000", fail),
			phase: "Failed", from: 3 * time.Second, to: 3 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, Options{}, nil, c.stages, func(w *world) {
				w.settle()
				c.pod.Name = "a"
				w.pod(&corev1.Pod{ObjectMeta: c.pod, Spec: corev1.PodSpec{NodeName: "n"}})
				took := w.settle()
				phase := corev1.PodPhase("gone")
				if p := w.get("a"); p != nil {
					phase = p.Status.Phase
				}
				if want := cmp.Or(c.phase, corev1.PodPending); phase != want {
					t.Errorf("%q, want %q", phase, want)
				}
				if c.to > 0 && (took < c.from || took > c.to) {
					t.Errorf("after %v, want %v to %v", took, c.from, c.to)
				}
			})
		})
	}
}

// inMatch is a stage for pods whose label x fits.
func inMatch(operator, values string) string {
	return stage("x", `matchExpressions: [{key: .metadata.labels.x, operator: `+operator+`, values: `+values+`}, `+
		`{key: .status.phase, operator: In, values: [Pending]}]`, "", run)
}

func labelled(x string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Labels: map[string]string{"x": x}}
}

// TestStageWeights: of stages that match, one is drawn by its weight.
func TestStageWeights(t *testing.T) {
	weighted := func(weight, text string) string {
		return strings.Replace(text, "  delay:", "  weight: "+weight+"\n  delay:", 1)
	}
	inWorld(t, Options{Seed: 1}, nil, weighted("3", stage("x", isNew, "", run))+weighted("1", stage("y", isNew, "", fail)), func(w *world) {
		const n = 400
		for i := range n {
			w.pod(&corev1.Pod{ObjectMeta: named(fmt.Sprint("p", i)), Spec: corev1.PodSpec{NodeName: "n"}})
		}
		w.settle()
		list, err := w.users.CoreV1().Pods("default").List(w.Context(), metav1.ListOptions{})
		running := 0
		for _, p := range must(w, list, err).Items {
			if p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running < n*65/100 || running > n*85/100 {
			t.Errorf("%d of %d pods run, want three of four", running, n)
		}
	})
}

// TestStageIsLeft: a stage that matches no longer has no effect, and one that matches again waits again.
func TestStageIsLeft(t *testing.T) {
	inWorld(t, Options{}, nil, stage("x", `matchLabels: {go: "yes"}, `+isNew, "durationMilliseconds: 5000", run), func(w *world) {
		meta := named("a")
		meta.Labels = map[string]string{"go": "yes"}
		w.pod(&corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{NodeName: "n"}})
		time.Sleep(3 * time.Second)
		w.patch("a", `{"metadata":{"labels":{"go":"no"}}}`)
		time.Sleep(time.Second)
		w.patch("a", `{"metadata":{"labels":{"go":"yes"}}}`)
		if took := w.settle(); took != 5*time.Second || w.get("a").Status.Phase != corev1.PodRunning {
			t.Errorf("%q after %v, want Running 5 s after it matches again", w.get("a").Status.Phase, took)
		}
		w.patch("a", `{"metadata":{"labels":{"go":"no"}},"status":null}`)
		w.settle()
	})
}

func TestReadStagesErrors(t *testing.T) {
	ok := stage("x", "", "", "delete: true")
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "it has no stages"},
		"no YAML":          {"a: [", ":1: "},
		"unknown field":    {strings.Replace(ok, "  next:", "  patches: []\n  next:", 1), `:8: unknown field "patches"`},
		"bad CEL":          {stage("x", "matchExpressions: [{cel: {expression: 'self.a ='}}]", "", "delete: true"), `"self.a =": " =" is no CEL`},
		"unknown in CEL":   {stage("x", "matchExpressions: [{cel: {expression: 'size(a)'}}]", "", "delete: true"), `unknown name "a"`},
		"not a stage":      {strings.Replace(ok, "kind: Stage", "kind: Pod", 1), "it has no stages"},
		"other API":        {strings.Replace(ok, "kwok.x-k8s.io", "example.com", 1), `apiVersion "example.com/v1alpha1"`},
		"no name":          {strings.Replace(ok, "name: x", "labels: {}", 1), "metadata.name is missing"},
		"no kind":          {strings.Replace(ok, ", kind: Pod", "", 1), `"x": spec.resourceRef.kind is missing`},
		"negative delay":   {stage("x", "", "durationMilliseconds: -1", "delete: true"), "a delay or the weight is negative"},
		"unknown operator": {stage("x", "matchExpressions: [{key: .a, operator: Like}]", "", "delete: true"), `operator "Like" (allowed: In`},
		"bad expression":   {stage("x", "matchExpressions: [{key: '.a[', operator: In}]", "", "delete: true"), `expression ".a[": `},
		"bad duration":     {stage("x", "", "durationFrom: {expressionFrom: '('}", "delete: true"), `expression "(": `},
		"bad template":     {stage("x", "", "", `statusTemplate: "{{ if }}"`), "template: template:1: "},
		"unknown function": {stage("x", "", "", `statusTemplate: "{{ NodeNames }}"`), `function "NodeNames" not defined`},
	} {
		path := filepath.Join(t.TempDir(), "stages.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ReadStages(path)
		if err == nil || !strings.HasPrefix(err.Error(), path+":") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want the file and %q", name, err, c.want)
		}
	}
	if _, err := ReadStages("missing.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
