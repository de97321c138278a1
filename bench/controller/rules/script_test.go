package rules

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/controller/record"
	"watchlab/bench/internal/golden"
	"watchlab/loadgen/storm"
)

// A script has three sections: rules (a file, or the names of built-in ones), play and want. A line of play is
// one of
//
//	phase NAME FROM TO
//	end TIME
//	TIME CLIENT TYPE RESOURCE KEY [due=TIME] [FIELD=VALUE …]    a change
//	TIME CLIENT VERB RESOURCE[/SUBRESOURCE] KEY CODE             an access of 10ms
//
// A change keeps the fields of the object's last one. The field owner is KIND:NAME:UID, and a name with a capital is a
// condition. The section want has a line for each reaction, and for each violation.
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T, _, text string) string {
		input, _, ok := strings.Cut(text, "-- want --\n")
		head, play, okPlay := strings.Cut(input, "-- play --\n")
		_, source, okRules := strings.Cut(head, "-- rules --\n")
		if !ok || !okPlay || !okRules {
			t.Fatal("a section is missing")
		}
		var r *Rules
		var err error
		if strings.Contains(source, ":") {
			r, err = Parse("script", []byte(source))
		} else {
			r, err = Load(strings.TrimSpace(source))
		}
		if err != nil {
			t.Fatal(err)
		}
		p := playOf(t, play)
		return input + "-- want --\n" + outcome(r, p)
	})
}

func outcome(r *Rules, p *record.Play) string {
	var b strings.Builder
	rule := ""
	reactions, violations := r.Judge(p)
	for _, re := range reactions {
		if re.Rule != rule {
			rule = re.Rule
			fmt.Fprintf(&b, "%s\n", rule)
		}
		fmt.Fprintf(&b, "  %v %s %s", re.Event.At, re.Event.Type, re.Event.ID())
		if re.Phase != "" {
			fmt.Fprintf(&b, " (%s)", re.Phase)
		}
		if a := re.Answer; a == nil {
			b.WriteString(": no answer\n")
		} else {
			resource := a.Resource.GroupResource().String()
			if a.Subresource != "" {
				resource += "/" + a.Subresource
			}
			fmt.Fprintf(&b, ": %s %s %s after %v\n", a.Verb, resource, a.Key, re.Latency)
		}
	}
	for _, v := range violations {
		fmt.Fprintf(&b, "violation: %s: %s: %s", v.Rule, v.Object, v.Text)
		if v.Last != nil {
			fmt.Fprintf(&b, "; last change: %v %s %s", v.Last.At, v.Last.Type, v.Last.ID())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// playOf reads the play of a script.
func playOf(t testing.TB, script string) *record.Play {
	t.Helper()
	p := &record.Play{}
	states := map[string]*unstructured.Unstructured{}
	for line := range strings.Lines(script) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		duration := func(s string) time.Duration {
			d, err := time.ParseDuration(s)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			return d
		}
		switch {
		case words[0] == "phase":
			p.Phases = append(p.Phases, storm.Phase{Name: words[1], From: duration(words[2]), To: duration(words[3])})
			continue
		case words[0] == "end":
			p.End = duration(words[1])
			continue
		}
		at, client := duration(words[0]), words[1]
		resource, sub, _ := strings.Cut(words[3], "/")
		name, group, _ := strings.Cut(resource, ".")
		gvr := schema.GroupVersionResource{Group: group, Version: "v1", Resource: name}
		key := words[4]
		if !slices.Contains(eventTypes, watch.EventType(words[2])) {
			code, err := strconv.Atoi(words[5])
			if err != nil {
				t.Fatal(err)
			}
			p.Accesses = append(p.Accesses, record.Access{
				At: at, Took: 10 * time.Millisecond, Client: client, Verb: words[2], Resource: gvr, Subresource: sub, Key: key, Code: code,
			})
			continue
		}
		c := record.Change{At: at, Intended: at, By: client, Type: watch.EventType(words[2]), Resource: gvr, Key: key, Version: uint64(len(p.Changes) + 1)}
		before := states[resource+key]
		next := &unstructured.Unstructured{Object: map[string]any{}}
		if before != nil && c.Type != watch.Added {
			next = before.DeepCopy()
			c.Before = typed(t, resource, before)
		}
		namespace, objectName, _ := cache.SplitMetaNamespaceKey(key)
		next.SetNamespace(namespace)
		next.SetName(objectName)
		next.SetResourceVersion(strconv.FormatUint(c.Version, 10))
		for _, field := range words[5:] {
			name, value, ok := strings.Cut(field, "=")
			switch {
			case !ok:
				t.Fatalf("%s: %s", line, field)
			case name == "due":
				c.Intended = duration(value)
			default:
				set(t, next, name, value)
			}
		}
		states[resource+key] = next
		c.Object = typed(t, resource, next)
		p.Changes = append(p.Changes, c)
	}
	return p
}

func set(t testing.TB, o *unstructured.Unstructured, name, value string) {
	t.Helper()
	path := strings.Split(name, ".")
	var v any = value
	var decoded any
	if json.Unmarshal([]byte(value), &decoded) == nil {
		v = decoded
		if n, ok := decoded.(float64); ok {
			v = int64(n)
		}
	}
	var err error
	switch {
	case name == "uid":
		o.SetUID(types.UID(value))
	case name == "owner":
		var refs []metav1.OwnerReference
		for i, text := range strings.Split(value, ",") {
			parts := strings.Split(text, ":")
			first := i == 0
			refs = append(refs, metav1.OwnerReference{APIVersion: "apps/v1", Kind: parts[0], Name: parts[1], UID: types.UID(parts[2]), Controller: &first})
		}
		o.SetOwnerReferences(refs)
	case path[0] == "labels":
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[strings.Join(path[1:], ".")] = value
		o.SetLabels(labels)
	case name[0] >= 'A' && name[0] <= 'Z':
		status, beat, _ := strings.Cut(value, "@")
		condition := map[string]any{"type": name, "status": status}
		if beat != "" {
			condition["lastHeartbeatTime"] = beat
		}
		err = unstructured.SetNestedSlice(o.Object, []any{condition}, "status", "conditions")
	default:
		err = unstructured.SetNestedField(o.Object, v, path...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// typed returns a built-in object in its Go type, as the server has it.
func typed(t testing.TB, resource string, o *unstructured.Unstructured) runtime.Object {
	t.Helper()
	into, ok := map[string]runtime.Object{
		"pods": &v1.Pod{}, "nodes": &v1.Node{}, "deployments.apps": &appsv1.Deployment{}, "replicasets.apps": &appsv1.ReplicaSet{},
	}[resource]
	if !ok {
		return o.DeepCopy()
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		t.Fatal(err)
	}
	return into
}
