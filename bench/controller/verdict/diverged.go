package verdict

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/workload"
)

// Outcome is what a play came to, without what differs from play to play: names that are made up, UIDs, versions,
// times, addresses and messages, and what the stand-in for the cluster writes.
type Outcome struct {
	settled bool
	objects map[record.ID]map[string]any // that exist at the end
	groups  map[record.ID]group
	last    map[record.ID]time.Duration // of the last change
	deleted map[record.ID][]*record.Access
	crowds  map[group]crowd
	writes  int
}

// group is what objects have in common whose names are made up.
type group struct {
	resource         schema.GroupResource
	namespace, owner string
}

func (g group) String() string {
	text := g.resource.String()
	if g.owner != "" {
		text += " of " + g.owner
	}
	return text
}

// OutcomeOf returns the outcome of a play. The cost is linear in its changes.
func OutcomeOf(p *record.Play) *Outcome {
	o := &Outcome{
		settled: p.Quiet != nil && !crashed(p).Failed, objects: map[record.ID]map[string]any{}, groups: map[record.ID]group{}, last: map[record.ID]time.Duration{},
		deleted: map[record.ID][]*record.Access{}, crowds: crowds(p),
	}
	last := map[record.ID]*record.Change{}
	simulated := map[schema.GroupResource]bool{} // the stand-in writes their status
	for i := range p.Changes {
		c := &p.Changes[i]
		// What nobody in the play has changed, the server has, or others in the cluster.
		if c.Background() || c.By == "" && c.Type != watch.Deleted {
			continue
		}
		last[c.ID()] = c
		if c.By == record.ByLifecycle && c.Type == watch.Modified {
			simulated[c.Resource.GroupResource()] = true
		}
	}
	for k, c := range last {
		o.last[k] = c.At
		if c.Type == watch.Deleted {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.Object)
		if err != nil {
			continue
		}
		u := &unstructured.Unstructured{Object: content} // It may be the server's own: it is only read.
		o.groups[k], o.objects[k] = groupOf(k.Resource, u), lasting(u)
		if simulated[k.Resource] {
			delete(o.objects[k], "status")
			unstructured.RemoveNestedField(o.objects[k], "spec", "nodeName")
		}
	}
	for i := range p.Accesses {
		a := &p.Accesses[i]
		if a.Writes() && !a.Background() && a.Code < 300 {
			o.writes++
		}
		if a.Verb == "delete" && a.Writes() && !a.Background() && a.Code < 300 && a.Subresource == "" {
			k := a.ID()
			o.deleted[k] = append(o.deleted[k], a)
		}
	}
	return o
}

func groupOf(resource schema.GroupResource, u metav1.Object) group {
	g := group{resource, u.GetNamespace(), u.GetGenerateName()}
	if ref := metav1.GetControllerOfNoCopy(u); ref != nil {
		g.owner = ref.Kind + " " + ref.Name
	} else if refs := u.GetOwnerReferences(); len(refs) > 0 {
		g.owner = refs[0].Kind + " " + refs[0].Name
	}
	return g
}

// lasting returns a copy without what differs from play to play.
func lasting(u *unstructured.Unstructured) map[string]any {
	out, _ := plain(u.Object, u.GetGeneration()).(map[string]any)
	meta, _ := out["metadata"].(map[string]any)
	for _, name := range []string{"creationTimestamp", "generation", "managedFields", "selfLink"} {
		delete(meta, name)
	}
	return out
}

var (
	// dropped are fields that the server or chance sets.
	dropped = []string{"uid", "resourceVersion", "nodePort", "healthCheckNodePort", "message"}
	chance  = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[-+]\d\d:\d\d)`)
)

func plain(v any, generation int64) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, field := range v {
			switch n, isNumber := field.(int64); {
			case slices.Contains(dropped, name):
			case name == "observedGeneration" && isNumber:
				out[name] = map[bool]string{true: "current", false: "old"}[n == generation]
			default:
				out[name] = plain(field, generation)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i], generation)
		}
		// Conditions, owners and finalizers have no order.
		slices.SortStableFunc(out, func(a, b any) int { return cmp.Compare(order(a), order(b)) })
		return out
	case string:
		if net.ParseIP(v) != nil {
			return "address"
		}
		return chance.ReplaceAllString(v, "any")
	}
	return v
}

// order is the key by which the items of a list are sorted; empty where the order means something.
func order(v any) string {
	m, _ := v.(map[string]any)
	if t, ok := m["type"].(string); ok {
		return t
	}
	name, _ := m["name"].(string)
	kind, _ := m["kind"].(string)
	return kind + name
}

// Diverge judges the outcome of a play by that of one without faults: objects that are missing, too many or other, and
// deletions of what is there in the end, or of a resource that is never deleted without faults. Objects with the same resource, namespace and owner stand
// for each other if the names differ.
func Diverge(free, o *Outcome) Verdict {
	v := Verdict{Name: Diverged}
	if !free.settled || !o.settled {
		v.Text = "not compared: a play did not come to an end"
		return v
	}
	differ := 0
	fail := func(at time.Duration, format string, args ...any) {
		v.Failed = true
		differ++
		v.show(at, fmt.Sprintf(format, args...))
	}
	missing, extra := map[group][]record.ID{}, map[group][]record.ID{}
	for _, k := range sorted(free.objects) {
		have, ok := o.objects[k]
		if !ok {
			missing[free.groups[k]] = append(missing[free.groups[k]], k)
		} else if text := difference("", free.objects[k], have); text != "" {
			fail(o.last[k], "%s: %s", k, text)
		}
	}
	for _, k := range sorted(o.objects) {
		if free.objects[k] == nil {
			extra[o.groups[k]] = append(extra[o.groups[k]], k)
		}
	}
	for _, g := range slices.SortedFunc(maps.Keys(missing), group.compare) {
		// As many of the same content stand for each other.
		if want, have := missing[g], extra[g]; len(have) == 0 {
			fail(o.last[want[0]], "missing: %s", names(want))
		} else if len(want) != len(have) {
			fail(o.last[have[0]], "%s: %d, without faults %d: %s", g, len(have), len(want), names(have))
		} else if text := difference("", nameless(free, want), nameless(o, have)); text != "" {
			fail(o.last[have[0]], "%s: %s", g, text)
		}
	}
	for _, g := range slices.SortedFunc(maps.Keys(extra), group.compare) {
		if have := extra[g]; len(missing[g]) == 0 {
			fail(o.last[have[0]], "too many: %s", names(have))
		}
	}
	usual := map[schema.GroupResource]bool{} // deleted without faults
	for k := range free.deleted {
		usual[k.Resource] = true
	}
	for _, k := range sorted(o.deleted) {
		// Of an object that is there in the end the deletion was a mistake, unless it is one without faults, too.
		all := o.deleted[k]
		if !usual[k.Resource] || o.objects[k] != nil && free.objects[k] != nil && len(all) > len(free.deleted[k]) {
			fail(all[0].At, "%s deleted %s, and not without faults", all[0].Client, k)
		}
	}
	v.Text = fmt.Sprintf("differences from the play without faults: %d", differ)
	return v
}

func (g group) compare(other group) int {
	return cmp.Compare(g.String()+"/"+g.namespace, other.String()+"/"+other.namespace)
}

func sorted[T any](of map[record.ID]T) []record.ID {
	return slices.SortedFunc(maps.Keys(of), func(a, b record.ID) int { return cmp.Compare(a.String(), b.String()) })
}

func names(items []record.ID) string {
	text := items[0].String()
	for _, i := range items[1:min(len(items), 3)] {
		text += ", " + i.Key
	}
	if len(items) > 3 {
		text += fmt.Sprintf(" and %d more", len(items)-3)
	}
	return text
}

// nameless returns the contents of objects in an order of their own, without their names.
func nameless(o *Outcome, items []record.ID) (out []any) {
	for _, k := range items {
		own := k.Key[strings.LastIndex(k.Key, "/")+1:]
		out = append(out, workload.Fill(o.objects[k], func(text string) string { return strings.ReplaceAll(text, own, "any") }))
	}
	slices.SortFunc(out, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out
}

// difference returns the first fields that differ, as in .status.ready: 3, without faults 2.
func difference(path string, want, have any) string {
	w, isMap := want.(map[string]any)
	h, both := have.(map[string]any)
	if isMap && both {
		var texts []string
		all := maps.Clone(w)
		maps.Copy(all, h)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if text := difference(path+"."+name, w[name], h[name]); text != "" && len(texts) < 3 {
				texts = append(texts, text)
			}
		}
		return strings.Join(texts, "; ")
	}
	wl, isList := want.([]any)
	hl, both := have.([]any)
	if isList && both && len(wl) == len(hl) {
		for i := range wl {
			if text := difference(fmt.Sprintf("%s[%d]", path, i), wl[i], hl[i]); text != "" {
				return text
			}
		}
		return ""
	}
	if reflect.DeepEqual(want, have) {
		return ""
	}
	return fmt.Sprintf("%s: %s, without faults %s", path, short(have), short(want))
}

func short(v any) string {
	text, _ := json.Marshal(v)
	if v == nil {
		return "none"
	}
	if len(text) > 80 {
		return string(text[:77]) + "..."
	}
	return string(text)
}
