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
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/workload"
)

// Outcome is what a play came to, without what differs from play to play: names that are made up, UIDs, versions,
// times, addresses and messages, and what the stand-in for the cluster and the programs beside write.
type Outcome struct {
	// Pause is the longest time for which an object had stood still when the program changed it, as a timer does.
	Pause time.Duration
	// Settling is the time from the end of the storm to the last change.
	Settling time.Duration
	settled  bool
	objects  map[record.ID]map[string]any // that exist at the end
	groups   map[record.ID]group
	last     map[record.ID]time.Duration // of the last change
	deleted  map[record.ID][]*record.Access
	unseen   map[record.ID]bool              // of what was deleted: the program had not seen the last change of its owner by a user
	ended    map[string]schema.GroupResource // of objects that users have deleted, by key
	left     map[record.ID]int               // of its group, when it was deleted
	crowds   map[alike]crowd
	made     map[record.ID]state // of objects whose names are made up, or hashes
	writes   int
	asked    map[types.UID]wanted // of owners
	// simulated are resources whose status the stand-in or a program beside writes, and chance differences that need no fault.
	simulated map[schema.GroupResource]bool
	chance    map[string]bool
	// excused: a correct program may act twice, as it restarts with an old view, or its write takes effect and fails.
	excused bool
}

// group is what objects have in common whose names are made up.
type group struct {
	resource         schema.GroupResource
	namespace, owner string
}

// alike are the objects of a group, or those whose names the server has made up and whose content is the same.
type alike struct {
	group   group
	content string
	owner   types.UID // another one may have had the same name
}

// state is that of an owner: how often others than the controllers had changed it.
type state struct {
	owner   types.UID
	changes int
}

// touched is what users have done to an object.
type touched struct {
	record.ID
	changes int
	last    time.Duration // of the changes
	ended   bool          // they have deleted it
}

// wanted is how many an owner may have asked for.
type wanted struct {
	most     float64 // the largest number to or from which a field was changed: it may be that of replicas
	replicas bool    // it is: of replicas that were changed, or that the program gave an owner of its own
}

// crowd is the number of objects that exist, the largest one so far, its time and the object that made it.
type crowd struct {
	n, most int
	asked   bool // somebody may have asked for so many
	scaled  bool // by the replicas of their owner
	at      time.Duration
	by      record.ID
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
		deleted: map[record.ID][]*record.Access{}, left: map[record.ID]int{}, unseen: map[record.ID]bool{}, ended: map[string]schema.GroupResource{}, crowds: map[alike]crowd{}, made: map[record.ID]state{},
		simulated: map[schema.GroupResource]bool{}, chance: map[string]bool{}, asked: map[types.UID]wanted{},
		excused: slices.ContainsFunc(p.Faults, func(f fault.Spec) bool { return f.Name == fault.OldView || f.Name == fault.LostAnswer }),
	}
	if p.Quiet != nil {
		o.Settling = *p.Quiet - p.Over
	}
	last, standIns, living := map[record.ID]*record.Change{}, map[record.ID]bool{}, map[record.ID]alike{}
	users, owners := map[types.UID]touched{}, map[record.ID]types.UID{}
	clients, timed := p.Clients(), map[types.UID]bool{} // what has a schedule
	// The watches of a real server bring the changes of each resource in a stream of its own.
	for _, c := range slices.SortedStableFunc(record.Each(p.Changes), func(a, b *record.Change) int { return cmp.Compare(a.At, b.At) }) {
		m, ok := c.Object.(metav1.Object)
		// What nobody in the play has changed, the server has, or others in the cluster.
		if c.Background() || !ok || c.By == "" && c.Type != watch.Deleted {
			continue
		}
		k := c.ID()
		if was := last[k]; was != nil && c.Type == watch.Modified && clients[c.By] {
			o.Pause = max(o.Pause, c.At-was.At)
		}
		last[k], o.groups[k] = c, groupOf(k.Resource, m)
		standIn := c.By == record.ByLifecycle || slices.Contains(p.Beside, c.By)
		if standIn && c.Type == watch.Modified {
			o.simulated[k.Resource] = true
		}
		switch {
		case c.Type == watch.Added:
			standIns[k], timed[m.GetUID()] = standIn, scheduled(c.Object)
			if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
				owners[k] = owner.UID
				if m.GetGenerateName() != "" || hashed.MatchString(k.Key) {
					o.made[k] = state{owner.UID, users[owner.UID].changes}
				}
			}
		case c.ByUser():
			u := users[m.GetUID()]
			u.ID, u.changes, u.last = k, u.changes+1, c.At
			u.ended = u.ended || m.GetDeletionTimestamp() != nil || c.Type == watch.Deleted
			users[m.GetUID()] = u
			if u.ended {
				o.ended[k.Key] = k.Resource
			}
		}
		lives := c.Type != watch.Deleted && m.GetDeletionTimestamp() == nil
		switch a, lived := living[k]; {
		case lives && !lived:
			a.group = o.groups[k]
			o.count(a, 1, c)
			if c.Type == watch.Added && m.GetGenerateName() != "" {
				content := contentOf(c.Object)
				delete(content, "status")
				a.content = strings.ReplaceAll(fmt.Sprint(content), m.GetName(), "any")
				for _, ref := range m.GetOwnerReferences() {
					a.owner = ref.UID
				}
				o.count(a, 1, c)
			}
			living[k] = a
		case !lives && lived:
			if delete(living, k); a.content != "" {
				o.count(a, -1, c)
			}
			o.left[k] = o.count(alike{group: a.group}, -1, c)
		}
	}
	o.askedIn(p, clients)
	for k, c := range last {
		// What outlives an owner that a user has deleted, as the pods of a job, are as many as the controller had made by then.
		m, _ := c.Object.(metav1.Object)
		owner := users[owners[k]]
		orphan := owner.ended && metav1.GetControllerOfNoCopy(m) == nil
		if o.last[k] = c.At; c.Type != watch.Deleted && !standIns[k] && !orphan && !timed[owners[k]] { // A volume, say, stays as often as its claim was made.
			o.objects[k] = contentOf(c.Object)
			if timed[m.GetUID()] {
				delete(o.objects[k], "status")
			}
		}
	}
	news := newNews(p)
	for a := range record.Each(p.Accesses) {
		if a.Writes() && !a.Background() && a.Code < 300 {
			o.writes++
		}
		// One that comes again while the object is going, as from a stale cache, changes nothing.
		if a.Verb == "delete" && a.Writes() && !a.Background() && a.Code/100 == 2 && a.Subresource == "" && !a.Unchanged {
			k := a.ID()
			o.deleted[k] = append(o.deleted[k], a)
			u := users[owners[k]]
			o.unseen[k] = a.At < u.last || u.changes > 0 && !news.seen(source{a.Client, u.Resource}, u.last, a.At)
		}
	}
	return o
}

// scheduled reports whether an object has a spec.schedule, as a CronJob has: what is made of it depends on the time of day.
func scheduled(o runtime.Object) bool {
	if u, ok := o.(*unstructured.Unstructured); ok {
		schedule, _, _ := unstructured.NestedString(u.Object, "spec", "schedule")
		return schedule != ""
	}
	_, ok := o.(*batchv1.CronJob)
	return ok
}

// askedIn notes what the owners of crowds were changed to, and from: without faults the program may have come too late for
// the first number. Those that the program makes itself, as ReplicaSets, may have another number than without faults.
func (o *Outcome) askedIn(p *record.Play, clients map[string]bool) {
	for a := range o.crowds {
		if a.owner != "" {
			o.asked[a.owner] = wanted{}
		}
	}
	for c := range record.Each(p.Changes) {
		m, ok := c.Object.(metav1.Object)
		if !ok {
			continue
		}
		n, owns := o.asked[m.GetUID()]
		switch {
		case !owns:
			continue
		case c.Type == watch.Modified && c.Before != nil:
			Changed(c, func(path string, was, is any) {
				for _, value := range []any{was, is} {
					v, err := strconv.ParseFloat(fmt.Sprint(value), 64)
					if err == nil && !strings.HasPrefix(path, ".metadata") && !strings.HasPrefix(path, ".status") {
						n.most, n.replicas = max(n.most, v), n.replicas || strings.HasSuffix(path, ".replicas")
					}
				}
			})
		case c.Type == watch.Added && clients[c.By]:
			replicas, _, _ := unstructured.NestedInt64(contentOf(c.Object), "spec", "replicas")
			n = wanted{float64(replicas), true}
		}
		o.asked[m.GetUID()] = n
	}
}

func (o *Outcome) count(a alike, by int, change *record.Change) int {
	c := o.crowds[a]
	if c.n += by; c.n > c.most {
		c.most, c.at, c.by = c.n, change.At, change.ID()
	}
	o.crowds[a] = c
	return c.n
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

// contentOf returns an object's content without what differs from play to play.
func contentOf(object runtime.Object) map[string]any {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil
	}
	u := &unstructured.Unstructured{Object: content} // It may be the server's own: it is only read.
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
	// counter matches a field that counts states. It is dropped, too: how many of a user's changes a controller sees depends
	// on how quick it is.
	counter = regexp.MustCompile(`(?i)(revision|generation|attempts?|retries|restarts?|transitions)$`)
	digits  = regexp.MustCompile(`^\d+(,\d+)*$`)
	// hashed matches a name that ends in the hash of a content, as those of ReplicaSets and ControllerRevisions. It is the
	// alphabet of hashes in Kubernetes (k8s.io/apimachinery v0.37, pkg/util/rand), and longer than a made-up suffix.
	hashed = regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{7,10}$`)
	chance = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[-+]\d\d:\d\d)|kube-api-access-\w{5}`)
)

func plain(v any, generation int64) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, field := range v {
			switch {
			case name == "observedGeneration": // Argo Rollouts writes a string.
				out[name] = map[bool]string{true: "current", false: "old"}[fmt.Sprint(field) == fmt.Sprint(generation)]
			case slices.Contains(dropped, name), counter.MatchString(name) && digits.MatchString(fmt.Sprint(field)):
			default:
				out[name] = plain(field, generation)
			}
			if annotations, ok := out[name].(map[string]any); ok && name == "annotations" {
				maps.DeleteFunc(annotations, func(_ string, value any) bool { // a revision, its history, earlier replicas, the time of a change
					text := fmt.Sprint(value)
					return digits.MatchString(text) || text == "any"
				})
				if len(annotations) == 0 {
					delete(out, name)
				}
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

var words = regexp.MustCompile(`[0-9A-Za-z]+`)

// commonWords returns what makes two plays comparable although they make up names: it replaces the words of texts that
// names of one play have and those of the other one have not, and the ends of names that the server has made up, which may
// be the same in both.
func commonWords(a, b *Outcome) func(string) string {
	plays := map[string]int{} // 1 and 2, or their sum
	for i, o := range []*Outcome{a, b} {
		for k := range o.last {
			for _, word := range words.FindAllString(k.Key, -1) {
				plays[word] |= 1 << i
			}
		}
	}
	for _, o := range []*Outcome{a, b} {
		for k := range o.made {
			if all := words.FindAllString(k.Key, -1); !hashed.MatchString(k.Key) && len(all) > 0 {
				plays[all[len(all)-1]] = 1
			}
		}
	}
	return func(text string) string {
		return words.ReplaceAllStringFunc(text, func(word string) string {
			if n := plays[word]; n == 1 || n == 2 {
				return "any"
			}
			return word
		})
	}
}

// inWords returns the outcome in common words, without the status of what the stand-in writes in either play.
func (o *Outcome) inWords(common func(string) string, other *Outcome) *Outcome {
	out := *o
	out.objects, out.groups = map[record.ID]map[string]any{}, map[record.ID]group{}
	for k, g := range o.groups {
		g.owner = common(g.owner)
		out.groups[k] = g
	}
	for k, object := range o.objects {
		content, _ := workload.Fill(object, common).(map[string]any)
		if o.simulated[k.Resource] || other.simulated[k.Resource] {
			delete(content, "status")
			unstructured.RemoveNestedField(content, "spec", "nodeName")
		}
		out.objects[k] = content
	}
	return &out
}

// crowdsOf are the largest numbers of objects of one content with made-up names, in common words.
func (o *Outcome) crowdsOf(common func(string) string) map[alike]crowd {
	out := map[alike]crowd{}
	for a, c := range o.crowds {
		if a.content != "" && c.most > 0 {
			n := o.asked[a.owner]
			c.asked, c.scaled = a.owner == "" || float64(c.most) <= n.most, n.replicas
			a.group.owner, a.content, a.owner = common(a.group.owner), common(a.content), ""
			if c.most > out[a].most {
				out[a] = c
			}
		}
	}
	return out
}

// Diverge judges the outcome of a play by that of one without faults: objects that are missing, too many or other, and
// deletions of what is there in the end, or of a resource that is never deleted without faults. Names that one play has
// made up stand for those of the other, also where they are mentioned. Objects with the same resource, namespace and
// owner stand for each other if the names differ, and those of a resource and namespace if they are the same but for
// their names. Of objects with names that are made up or hashes, one for each state of their owner, there may be fewer.
func Diverge(free, o *Outcome) Verdict {
	v := Verdict{Name: Diverged}
	if !free.settled || !o.settled {
		v.Text = "not compared: a play did not come to an end"
		return v
	}
	differ := 0
	compare(free, o, func(d differing) {
		if !free.chance[d.kind] {
			v.Failed = true
			differ++
			v.showObject(d.at, d.object, d.text)
		}
	})
	v.Text = fmt.Sprintf("differences from the play without faults: %d", differ)
	return v
}

// differing is a difference between two outcomes.
type differing struct {
	kind   string // the same in other plays
	object record.ID
	at     time.Duration
	text   string
}

// Vary notes how another play without faults differs: by chance, as a password does.
func (o *Outcome) Vary(again *Outcome) {
	if o.settled && again.settled {
		note := func(d differing) { o.chance[d.kind] = true }
		compare(o, again, note)
		acted(o, again, note)
	}
}

// compare calls differs for each difference of an outcome from that without faults.
func compare(free, o *Outcome, differs func(differing)) {
	needed := map[record.ID]bool{} // deleted, although there were not too many
	for k := range o.deleted {
		needed[k] = o.left[k] < o.crowds[alike{group: o.groups[k]}].n
	}
	common := commonWords(free, o)
	free, o = free.inWords(common, o), o.inWords(common, free)
	missing, extra := map[group][]record.ID{}, map[group][]record.ID{}
	found := map[group][]differing{} // of what is there in the end
	note := func(g group, d differing) { g.owner = ""; found[g] = append(found[g], d) }
	contents := func(name fmt.Stringer, k record.ID, want, have any) {
		Differences("", want, have, func(path string, want, have any) {
			note(o.groups[k], differing{name.String() + path, k, o.last[k], fmt.Sprintf("%s: %s: %s, without faults %s", name, path, short(have), short(want))})
		})
	}
	for _, k := range sorted(free.objects) {
		// To what outlives a namesake that a user has deleted, as a Secret does its Certificate, the program may have come too late.
		namesake, ended := o.ended[k.Key]
		late := ended && namesake != k.Resource && free.groups[k].owner == "" && o.objects[record.ID{Resource: namesake, Key: k.Key}] == nil
		switch have, ok := o.objects[k]; {
		case late:
		case ok:
			contents(k, k, free.objects[k], have)
		default:
			missing[free.groups[k]] = append(missing[free.groups[k]], k)
		}
	}
	for _, k := range sorted(o.objects) {
		if free.objects[k] == nil {
			extra[o.groups[k]] = append(extra[o.groups[k]], k)
		}
	}
	all := maps.Clone(missing)
	maps.Copy(all, extra)
	before, here := free.grouped(), o.grouped()
	for _, g := range slices.SortedFunc(maps.Keys(all), group.compare) {
		// As many of the same content stand for each other.
		switch want, have := missing[g], extra[g]; {
		case len(want) > len(have) && len(here[g]) > 0 && free.historic(before[g]),
			len(want) < len(have) && len(before[g]) > 0 && o.historic(here[g]):
			// The play with fewer has not seen all states of the owner.
		case len(have) == 0:
			note(g, differing{g.String(), want[0], o.last[want[0]], "missing: " + names(want)})
		case len(want) == 0:
			note(g, differing{g.String(), have[0], o.last[have[0]], "too many: " + names(have)})
		case len(want) != len(have):
			note(g, differing{g.String(), have[0], o.last[have[0]], fmt.Sprintf("%s: %d, without faults %d: %s", g, len(have), len(want), names(have))})
		default:
			contents(g, have[0], nameless(free, want), nameless(o, have))
		}
	}
	for _, g := range slices.SortedFunc(maps.Keys(found), group.compare) {
		// Which of several get what is scarce, as jobs do in a queue, may differ, not how many.
		if !slices.Equal(free.anonymous(g), o.anonymous(g)) {
			for _, d := range found[g] {
				differs(d)
			}
		}
	}
	usual := map[schema.GroupResource]bool{} // deleted without faults
	for k := range free.deleted {
		usual[k.Resource] = true
	}
	for _, k := range sorted(o.deleted) {
		// Of an object that is there in the end the deletion was a mistake, unless it is one without faults, too. One of a
		// resource that is not deleted without faults may end what is too many, but leaves what is there in the end. Either was
		// right if the program could not see yet how a user changed the owner: a slow one sees its states at other times.
		all := o.deleted[k]
		again := o.objects[k] != nil && free.objects[k] != nil && len(all) > len(free.deleted[k])
		if !o.unseen[k] && (again || !usual[k.Resource] && needed[k]) {
			first := all[0]
			if again { // Those before it were right.
				first = all[len(free.deleted[k])]
			}
			differs(differing{"delete " + k.String(), k, first.At, fmt.Sprintf("%s deleted %s, and not without faults", first.Client, k)})
		}
	}
}

// historic reports whether objects were made one in each state of their owner, as replicasets and requests of
// certificates are: how many there are depends on how many of a user's changes the controller has seen.
func (o *Outcome) historic(objects []record.ID) bool {
	seen := map[state]bool{}
	for _, k := range objects {
		made, ok := o.made[k]
		if !ok || seen[made] {
			return false
		}
		seen[made] = true
	}
	return true
}

// grouped returns the objects at the end by group.
func (o *Outcome) grouped() map[group][]record.ID {
	out := map[group][]record.ID{}
	for k := range o.objects {
		out[o.groups[k]] = append(out[o.groups[k]], k)
	}
	return out
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

// anonymous returns the contents of the objects of a resource and namespace in an order of their own, without their names
// and those of their owners.
func (o *Outcome) anonymous(g group) (out []string) {
	for k, content := range o.objects {
		of := o.groups[k]
		_, owner, _ := strings.Cut(of.owner, " ")
		if of.owner = ""; of == g {
			own := k.Key[strings.LastIndex(k.Key, "/")+1:]
			text := strings.ReplaceAll(fmt.Sprint(content), own, "any")
			if owner != "" {
				text = strings.ReplaceAll(text, owner, "any")
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
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

// Changed visits the fields that a change of an object has changed, as [Differences] does.
func Changed(c *record.Change, visit func(path string, was, is any)) {
	was, errWas := runtime.DefaultUnstructuredConverter.ToUnstructured(c.Before)
	is, errIs := runtime.DefaultUnstructuredConverter.ToUnstructured(c.Object)
	if errWas == nil && errIs == nil {
		Differences("", was, is, visit)
	}
}

// Differences visits the fields that differ, as in .status.ready; items of a list have one path.
func Differences(path string, want, have any, visit func(path string, want, have any)) {
	w, isMap := want.(map[string]any)
	h, both := have.(map[string]any)
	if isMap && both {
		all := maps.Clone(w)
		maps.Copy(all, h)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			Differences(path+"."+name, w[name], h[name], visit)
		}
		return
	}
	wl, isList := want.([]any)
	hl, both := have.([]any)
	if isList && both && len(wl) == len(hl) {
		for i := range wl {
			Differences(path+"[]", wl[i], hl[i], visit)
		}
	} else if !reflect.DeepEqual(want, have) {
		visit(path, want, have)
	}
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
