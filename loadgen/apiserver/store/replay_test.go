package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/storm"
)

// TestReplayed: a client changes a storm's object before the storm does. The storm: created (initial), changed,
// changed again, deleted, created again, changed.
func TestReplayed(t *testing.T) {
	s := &storm.Storm{Name: "test", Kind: podKind, Resource: v1.SchemeGroupVersion.WithResource("pods"), Initial: 1, Keys: 1}
	for i, typ := range []watch.EventType{watch.Added, watch.Modified, watch.Modified, watch.Deleted, watch.Added, watch.Modified} {
		p := named("p", "storm")
		p.UID, p.ResourceVersion = "first", "1"
		if i > 3 {
			p.UID = "second"
		}
		p.Labels = map[string]string{"storm": string(rune('a' + i))}
		s.Events = append(s.Events, storm.Event{Type: typ, Seq: uint64(i + 1), Key: "p", Object: p})
	}
	type event struct {
		Type      watch.EventType
		UID, Note string
		Storm     string // its label
		Mine      string // the client's
		Dying     bool
	}
	storms := []event{ // without a client
		{watch.Added, "first", "storm", "a", "", false},
		{watch.Modified, "first", "storm", "b", "", false},
		{watch.Modified, "first", "storm", "c", "", false},
		{watch.Deleted, "first", "storm", "d", "", false},
		{watch.Added, "second", "storm", "e", "", false},
		{watch.Modified, "second", "storm", "f", "", false},
	}
	for name, c := range map[string]struct {
		write func(p *v1.Pod) watch.EventType // after the first event
		want  []event
	}{
		"nothing": {nil, storms},
		"label": {func(p *v1.Pod) watch.EventType { p.Labels["mine"] = "1"; return watch.Modified }, []event{
			storms[0],
			{watch.Modified, "first", "storm", "a", "1", false},
			{watch.Modified, "first", "storm", "b", "1", false},
			{watch.Modified, "first", "storm", "c", "1", false},
			{watch.Deleted, "first", "storm", "d", "1", false},
			storms[4], storms[5],
		}},
		"note and the storm's label": {func(p *v1.Pod) watch.EventType {
			p.Annotations["note"], p.Labels["storm"] = "mine", "z"
			return watch.Modified
		}, []event{
			storms[0],
			{watch.Modified, "first", "mine", "z", "", false},
			{watch.Modified, "first", "mine", "b", "", false},
			{watch.Modified, "first", "mine", "c", "", false},
			{watch.Deleted, "first", "mine", "d", "", false},
			storms[4], storms[5],
		}},
		"deleted": {func(*v1.Pod) watch.EventType { return watch.Deleted }, []event{
			storms[0], {watch.Deleted, "first", "storm", "a", "", false}, storms[4], storms[5],
		}},
		"marked": {func(p *v1.Pod) watch.EventType {
			p.DeletionTimestamp = new(metav1.NewTime(time.Unix(1, 0)))
			return watch.Modified
		}, []event{
			storms[0],
			{watch.Modified, "first", "storm", "a", "", true},
			{watch.Modified, "first", "storm", "b", "", true},
			{watch.Modified, "first", "storm", "c", "", true},
			{watch.Deleted, "first", "storm", "d", "", true},
			storms[4], storms[5],
		}},
		"replaced": {func(p *v1.Pod) watch.EventType { p.UID = types.UID("other"); return watch.Modified }, []event{
			storms[0],
			{watch.Modified, "other", "storm", "a", "", false},
			{watch.Modified, "second", "storm", "e", "", false},
			storms[5],
		}},
		"finalizer": {func(p *v1.Pod) watch.EventType { p.Finalizers = []string{"example.com/mine"}; return watch.Modified }, []event{
			storms[0],
			{watch.Modified, "first", "storm", "a", "", false},
			{watch.Modified, "first", "storm", "b", "", false},
			{watch.Modified, "first", "storm", "c", "", false},
			{watch.Modified, "first", "storm", "d", "", true},
			{watch.Modified, "second", "storm", "e", "", false},
			storms[5],
		}},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewRecording(s, kind, NewBudget(0)).Play(new(Revision), 0, false)
			var got []event
			l.Observe(func(c Change) {
				p := c.Object.(*v1.Pod)
				got = append(got, event{c.Type, string(p.UID), p.Annotations["note"], p.Labels["storm"], p.Labels["mine"], p.DeletionTimestamp != nil})
				if e, _, err := l.Event(uint64(len(got) - 1)); err != nil || e.Object != c.Object {
					t.Errorf("event %d has another position: %v", len(got), err)
				}
			})
			if c.write != nil {
				o, was := l.Get("p")
				p := o.(*v1.Pod).DeepCopy()
				if !l.Put(Origin{}, c.write(p), "p", p, was) {
					t.Fatal("the write is refused")
				}
			}
			for i := range s.Events {
				l.Release(uint64(i+1), nil)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for i, e := range s.Events {
				if p := e.Object.(*v1.Pod); p.ResourceVersion != "1" || p.Labels["storm"] != string(rune('a'+i)) || len(p.Labels) != 1 {
					t.Errorf("the storm's event %d was changed: %+v", i+1, p.ObjectMeta)
				}
			}
		})
	}
}
