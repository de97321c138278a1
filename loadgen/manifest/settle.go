package manifest

import (
	"cmp"
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Settle makes objects that were exported from a cluster fit together on an empty server. Uids stay, and owners are
// found by kind, namespace and name. It drops a uid that another object has, an owner that is none of the objects,
// and the mark of a deletion, and returns a line for each.
func Settle(objects []Object) (dropped []string) {
	type identity struct {
		kind            schema.GroupKind
		namespace, name string // the namespace of a cluster-scoped object, too, is default
	}
	found, holders := map[identity]metav1.Object{}, map[types.UID]identity{}
	for _, o := range objects {
		m, err := meta.Accessor(o.Object)
		if err != nil {
			continue
		}
		me := identity{o.Kind.GroupKind(), cmp.Or(o.Namespace, metav1.NamespaceDefault), o.Name}
		if other, taken := holders[m.GetUID()]; taken && m.GetUID() != "" && other != me {
			dropped = append(dropped, fmt.Sprintf("%s: dropped: uid %s, which %s %s has", o, m.GetUID(), other.kind.Kind, other.name))
			m.SetUID("")
		}
		if m.GetDeletionTimestamp() != nil {
			dropped = append(dropped, fmt.Sprintf("%s: dropped: deletionTimestamp", o))
			m.SetDeletionTimestamp(nil)
			m.SetDeletionGracePeriodSeconds(nil)
		}
		found[me], holders[m.GetUID()] = m, me
	}
	for _, o := range objects {
		m, err := meta.Accessor(o.Object)
		if err != nil {
			continue
		}
		var refs []metav1.OwnerReference
		for _, ref := range m.GetOwnerReferences() {
			id := identity{schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind(), cmp.Or(o.Namespace, metav1.NamespaceDefault), ref.Name}
			owner := found[id]
			if owner == nil {
				id.namespace = metav1.NamespaceDefault
				owner = found[id]
			}
			if owner == nil {
				dropped = append(dropped, fmt.Sprintf("%s: dropped: owner %s %s, which is not in the manifests", o, ref.Kind, ref.Name))
				continue
			}
			owner.SetUID(cmp.Or(owner.GetUID(), types.UID(uuid.NewString())))
			ref.UID = owner.GetUID()
			refs = append(refs, ref)
		}
		m.SetOwnerReferences(refs)
	}
	return dropped
}
