package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// FuzzStages: a file has stages that can be matched and rendered for a pod, or an error of one line.
func FuzzStages(f *testing.F) {
	names, err := builtin.ReadDir("stages")
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range names {
		data, err := builtin.ReadFile("stages/" + n.Name())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(stage("a", isNew, "durationMilliseconds: 9223372036854775807", fail)))
	f.Add([]byte(stage("a", "matchLabels: &a {x: *a}", "durationFrom: {expressionFrom: .metadata}", "statusTemplate: '{{ Quote .x | printf \"%100d\" }}'")))
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: "Pending"}}
	pod.Name, pod.Labels = "x", map[string]string{"a": "b"}
	cluster := New(Options{})
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		if strings.Contains(string(data), "range") {
			t.Skip("a template may count for years")
		}
		stages, err := parseStages("f", data)
		if err != nil {
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q", err)
			}
			return
		}
		fields, err := content(&object{object: pod, meta: pod}, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range stages {
			s.matches(&object{object: pod, meta: pod}, fields)
			s.delay.wait(fields)
			for _, st := range s.with(cluster.functions()).steps {
				if st.patch != nil {
					_, _ = cluster.render(&object{object: pod, meta: pod}, st.patch)
				}
			}
		}
	})
}

// TestEndless: an expression without an end is cut off, by its time or its values.
func TestEndless(t *testing.T) {
	for expression, most := range map[string]int{"repeat(null)": 0, "repeat(1)": 1000, "def f: f; f": 0} {
		code, err := compile(expression)
		if err != nil {
			t.Fatal(err)
		}
		if got := results(code, map[string]any{}); len(got) != most {
			t.Errorf("%s: %d values, want %d", expression, len(got), most)
		}
	}
}
