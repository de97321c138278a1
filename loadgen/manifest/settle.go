package manifest

import (
	"fmt"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Settle makes objects that were exported from a cluster fit together on an empty server. Uids stay, and owners are
// found by uid, or else by kind, namespace and name. It drops a uid that another object has, an owner that is none
// of the objects, and the mark of a deletion, and returns a line for each.
func Settle(objects []Object) (dropped []string) {
	type identity struct {
		kind            schema.GroupKind
		namespace, name string
	}
	byName, byUID := map[identity]metav1.Object{}, map[types.UID]identity{}
	identityOf := func(kind schema.GroupKind, o Object, name string) identity { return identity{kind, o.Namespace, name} }
	drop := func(o Object, format string, args ...any) {
		dropped = append(dropped, fmt.Sprintf("%s: dropped: %s", o, fmt.Sprintf(format, args...)))
	}
	for _, o := range objects {
		m, err := meta.Accessor(o.Object)
		if err != nil {
			continue
		}
		me := identityOf(o.Kind.GroupKind(), o, o.Name)
		if other, taken := byUID[m.GetUID()]; taken && m.GetUID() != "" && other != me {
			drop(o, "uid %s, which %s %s has", m.GetUID(), other.kind.Kind, other.name)
			m.SetUID("")
		}
		if m.GetDeletionTimestamp() != nil {
			drop(o, "deletionTimestamp")
			m.SetDeletionTimestamp(nil)
			m.SetDeletionGracePeriodSeconds(nil)
		}
		byName[me], byUID[m.GetUID()] = m, me
	}
	for _, o := range objects {
		m, err := meta.Accessor(o.Object)
		if err != nil || len(m.GetOwnerReferences()) == 0 {
			continue
		}
		var refs []metav1.OwnerReference
		for _, ref := range m.GetOwnerReferences() {
			kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
			owner := byName[identityOf(kind, o, ref.Name)]
			if owner == nil { // It may have no namespace.
				owner = byName[identity{kind, "", ref.Name}]
			}
			if owner == nil {
				drop(o, "owner %s %s, which is not in the manifests", ref.Kind, ref.Name)
				continue
			}
			if owner.GetUID() == "" {
				owner.SetUID(types.UID(uuid.NewString()))
			}
			ref.UID = owner.GetUID()
			refs = append(refs, ref)
		}
		m.SetOwnerReferences(refs)
	}
	return dropped
}
