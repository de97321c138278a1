// Package workload plays the requests of users: objects of manifests are created, changed and deleted at a
// rate, in an open loop. A storm, in contrast, is the stream of events that a cluster's own writers cause.
//
//  1. [Read] reads a file, or a built-in workload ([Names]). A seed draws what the file leaves open.
//  2. [Workload.Create] creates the objects that exist at first.
//  3. [Workload.Play] sends all other requests at their times. It never waits for an earlier one. [Workload.Keep] sends
//     those that have no end.
//
// It needs a dynamic client, and so works on a simulated server as on a real one.
package workload

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
)

// Manager is the field manager of all requests.
const Manager = "watchlab-workload"

// Verb is the kind of an [Action].
type Verb string

// The verbs. A change is a JSON merge patch.
const (
	Create Verb = "create"
	Change Verb = "change"
	Delete Verb = "delete"
)

// Action is a request with its time.
type Action struct {
	At     time.Duration // from the start of the storm
	Verb   Verb
	Object *unstructured.Unstructured // to create, or that is meant; not to be changed
	Patch  any                        // of a change: a merge patch or, for items of lists, operations of a JSON patch; {now} in a string is the time of the request
	// Subresource is what a change patches, such as status; empty for the object itself.
	Subresource string
	// Propagation is the propagation policy of a deletion; empty for the default of the kind.
	Propagation string
}

// Namespaces are those of the objects, sorted.
func (w *Workload) Namespaces() []string {
	all := map[string]bool{}
	for _, o := range w.initial {
		all[o.GetNamespace()] = true
	}
	for i := range w.actions {
		all[w.actions[i].Object.GetNamespace()] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}

// Workload is a plan of requests. It is immutable.
type Workload struct {
	Name    string
	initial []*unstructured.Unstructured // objects that exist before the storm
	actions []Action                     // in order of At
	kept    []kept
}

// kept is a change without an end.
type kept struct {
	change
	objects []*unstructured.Unstructured
}

// Length is the time of the last request.
func (w *Workload) Length() time.Duration {
	if n := len(w.actions); n > 0 {
		return w.actions[n-1].At
	}
	return 0
}

// group is the copies of the objects of a manifest, as [Read] describes it.
type group struct {
	Manifest string          `json:"manifest"`
	Object   json.RawMessage `json:"object"`
	Copies   *int            `json:"copies"`
	Create   *wave           `json:"create"`
	Change   []change        `json:"change"`
	Delete   *deletion       `json:"delete"`

	objects []*unstructured.Unstructured
}

// wave is requests at a rate from a time on.
type wave struct {
	At   metav1.Duration `json:"at"`
	Rate float64         `json:"rate"` // per second
}

// time is that of the nth request, from 0.
func (w *wave) time(n int) time.Duration {
	return w.At.Duration + time.Duration(min(float64(n)/w.Rate*float64(time.Second), 2*float64(maxTime)))
}

type change struct {
	wave
	For         *metav1.Duration           `json:"for"` // nil: until the end of the play
	Set         map[string]json.RawMessage `json:"set"`
	Subresource string                     `json:"subresource"`

	settings []setting // Set in order of path
}

func (c *change) lasts() time.Duration { return ptr.Deref(c.For, metav1.Duration{}).Duration }

// setting is a field with the values that it takes in turn.
type setting struct {
	path   []string
	values []any
}

type deletion struct {
	wave
	Share       *float64 `json:"share"`
	Propagation string   `json:"propagation"`
}

// build makes the plan.
func build(name string, groups []group, seed int64) *Workload {
	w := &Workload{Name: name}
	for i := range groups {
		groups[i].plan(w, rand.New(rand.NewPCG(uint64(seed), uint64(i))))
	}
	slices.SortStableFunc(w.actions, func(a, b Action) int { return cmp.Compare(a.At, b.At) })
	return w
}

func (g *group) plan(w *Workload, rng *rand.Rand) {
	var all []*unstructured.Unstructured
	for i := range *g.Copies {
		for _, o := range g.objects {
			all = append(all, g.copy(o, i))
		}
	}
	born := make([]time.Duration, len(all)) // 0 for those that exist at first
	for i, o := range all {
		if g.Create == nil {
			w.initial = append(w.initial, o)
			continue
		}
		born[i] = g.Create.time(i)
		w.actions = append(w.actions, Action{At: born[i], Verb: Create, Object: o})
	}
	dies := map[int]time.Duration{}
	if d := g.Delete; d != nil {
		for n, i := range rng.Perm(len(all))[:int(*d.Share*float64(len(all))+0.5)] {
			dies[i] = max(d.time(n), born[i])
			w.actions = append(w.actions, Action{At: dies[i], Verb: Delete, Object: all[i], Propagation: d.Propagation})
		}
	}
	for _, c := range g.Change {
		if c.For == nil {
			w.kept = append(w.kept, kept{c, all})
			continue
		}
		for n := 0; ; n++ {
			at := c.time(n)
			if at >= c.At.Duration+c.lasts() {
				break
			}
			i := rng.IntN(len(all))
			if death, mortal := dies[i]; at < born[i] || mortal && at >= death {
				continue // the object does not exist at that time
			}
			for _, patch := range c.patches(n, i, all[i].Object) {
				w.actions = append(w.actions, Action{At: at, Verb: Change, Object: all[i], Patch: patch, Subresource: c.Subresource})
			}
		}
	}
}

// copy returns a copy of an object with its number in the name and in all its strings.
func (g *group) copy(o *unstructured.Unstructured, i int) *unstructured.Unstructured {
	out := o.DeepCopy()
	out.Object = Fill(out.Object, func(s string) string { return replace(s, "i", i) }).(map[string]any)
	if *g.Copies > 1 && out.GetName() == o.GetName() {
		out.SetName(fmt.Sprintf("%s-%d", o.GetName(), i))
	}
	return out
}

// patches are the nth patches of a change, of the object i: of its fields, and of the items of its lists.
func (c *change) patches(n, i int, o map[string]any) (all []any) {
	out, operations := map[string]any{}, []any{}
	for _, s := range c.settings {
		value := Fill(s.values[n%len(s.values)], func(text string) string { return replace(replace(text, "n", n), "i", i) })
		if op, _ := inList(o, s.path); op != "" {
			pointer := "" // the path as a JSON patch has it (RFC 6901)
			for _, name := range s.path {
				pointer += "/" + escape.Replace(name)
			}
			operations = append(operations, map[string]any{"op": op, "path": pointer, "value": value})
			continue
		}
		_ = unstructured.SetNestedField(out, value, s.path...) // What is below a field with a value is none.
	}
	if len(out) > 0 {
		all = append(all, out)
	}
	if len(operations) > 0 {
		all = append(all, operations)
	}
	return all
}

// inList returns the operation of a JSON patch that sets what a path leads to, if that is in a list of an object, and
// else nothing. The error is that of an item that is not there.
func inList(at any, path []string) (op string, err error) {
	for k, name := range path {
		switch v := at.(type) {
		case map[string]any:
			if at = v[name]; op != "" {
				op = "add" // or replace
			}
		case []any:
			n, err := strconv.Atoi(name)
			if err != nil || n < 0 || n >= len(v) {
				return "", fmt.Errorf("%s has no item %q: it is a list of %d", strings.Join(path[:k], "."), name, len(v))
			}
			op, at = "replace", v[n]
		default:
			return op, nil
		}
	}
	return op, nil
}

var escape = strings.NewReplacer("~", "~0", "/", "~1")
