package rules

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/storm"
)

// owner is an owner of an object, or an owner's owner.
type owner struct {
	record.ID
	uid types.UID
}

// index finds the objects of a play. Building it is linear in its changes.
type index struct {
	play    *record.Play
	objects map[record.ID][]int32 // changes
	uids    map[types.UID]int32   // last change
	writes  []int32               // successful writes, by arrival
}

func newIndex(p *record.Play) *index {
	x := &index{
		play:    p,
		objects: make(map[record.ID][]int32, len(p.Changes)/4),
		uids:    make(map[types.UID]int32, len(p.Changes)/4),
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		k := c.ID()
		x.objects[k] = append(x.objects[k], int32(i))
		if m := metaOf(c.Object); m != nil && m.GetUID() != "" {
			x.uids[m.GetUID()] = int32(i)
		}
	}
	for i := range p.Accesses {
		if a := &p.Accesses[i]; a.Writes() && a.Code >= 200 && a.Code < 300 {
			x.writes = append(x.writes, int32(i))
		}
	}
	slices.SortStableFunc(x.writes, func(a, b int32) int { return cmp.Compare(p.Accesses[a].At, p.Accesses[b].At) })
	return x
}

// metaOf returns the metadata of an object, nil without.
func metaOf(o runtime.Object) metav1.Object {
	m, _ := o.(metav1.Object)
	return m
}

// last returns the last change of an object, or nil.
func (x *index) last(k record.ID) *record.Change {
	if changes := x.objects[k]; len(changes) > 0 {
		return &x.play.Changes[changes[len(changes)-1]]
	}
	return nil
}

// at returns the state of an object at a time, or else its first one; nil for an unknown object.
func (x *index) at(k record.ID, at time.Duration) metav1.Object {
	changes := x.objects[k]
	if len(changes) == 0 {
		return nil
	}
	n := sort.Search(len(changes), func(i int) bool { return x.play.Changes[changes[i]].At > at })
	return metaOf(x.play.Changes[changes[max(n-1, 0)]].Object)
}

// gone reports whether an object does not exist in the end.
func (x *index) gone(k record.ID) bool {
	c := x.last(k)
	return c != nil && c.Type == watch.Deleted
}

// maxDepth limits owners of owners. References may be circular.
const maxDepth = 8

// owners returns the owners of an object and theirs in the last known state, without duplicates.
func (x *index) owners(m metav1.Object) []owner {
	var out []owner
	x.addOwners(&out, m, 0)
	return out
}

func (x *index) addOwners(out *[]owner, m metav1.Object, depth int) {
	from := len(*out)
	for _, ref := range m.GetOwnerReferences() {
		if !slices.ContainsFunc(*out, func(o owner) bool { return o.uid == ref.UID }) {
			*out = append(*out, x.owner(m, &ref))
		}
	}
	if depth == maxDepth {
		return
	}
	for _, o := range (*out)[from:] {
		if i, ok := x.uids[o.uid]; ok {
			if m := metaOf(x.play.Changes[i].Object); m != nil {
				x.addOwners(out, m, depth+1)
			}
		}
	}
}

// owner follows a reference by its UID, and by its kind and name if no change has shown the owner.
func (x *index) owner(m metav1.Object, ref *metav1.OwnerReference) owner {
	if i, ok := x.uids[ref.UID]; ok {
		return owner{x.play.Changes[i].ID(), ref.UID}
	}
	gv, _ := schema.ParseGroupVersion(ref.APIVersion)
	resource, _ := meta.UnsafeGuessKindToResource(gv.WithKind(ref.Kind))
	return owner{record.ID{Resource: resource.GroupResource(), Key: storm.ObjectKey(m.GetNamespace(), ref.Name)}, ref.UID}
}

// related returns the owners that an answer asks for: those of its resource, or the controller, or each direct owner if none
// is one.
func (x *index) related(a *answer, m metav1.Object) (out []owner) {
	if a.relation == ownsIt {
		return slices.DeleteFunc(x.owners(m), func(o owner) bool { return !a.resource.matches(o.Resource) })
	}
	if ref := metav1.GetControllerOfNoCopy(m); ref != nil {
		return []owner{x.owner(m, ref)}
	}
	for _, ref := range m.GetOwnerReferences() {
		out = append(out, x.owner(m, &ref))
	}
	return out
}

// phase returns the phase at a time; of several, that which began last.
func (x *index) phase(at time.Duration) string {
	name, from := "", time.Duration(-1)
	for i, p := range x.play.Phases {
		if p.From <= at && (at < p.To || at == p.To && i == len(x.play.Phases)-1) && p.From > from {
			name, from = p.Name, p.From
		}
	}
	return name
}
