package store

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver/patch"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// replay returns the next event, with a version, for the recording's event with an index, given its key and the
// newest event of its object; nil if there is none. The caller holds write and mu.
func (l *Log) replay(index int, k *entry, current *storm.Event, number uint64) *storm.Event {
	e := &l.rec.storm.Events[index]
	version := strconv.FormatUint(number, 10)
	event := func(t watch.EventType, o runtime.Object) *storm.Event {
		return &storm.Event{Type: t, Seq: l.indexed + 1, Key: e.Key, Object: o}
	}
	switch {
	case e.Type == watch.Added && current == nil:
		return event(watch.Added, wire.AtVersion(e.Object, version))
	case e.Type == watch.Added:
		k.foreign = false
		return event(watch.Modified, wire.AtVersion(e.Object, version))
	case current == nil:
		return nil
	}
	if !k.foreign {
		return event(e.Type, wire.AtVersion(e.Object, version))
	}
	from := l.rec.storm.Events[l.rec.before[index]].Object.(resources.Object)
	now := current.Object.(resources.Object)
	if from.GetUID() != now.GetUID() {
		return nil // a client has replaced the object
	}
	o, err := patch.Replay(from, e.Object, now)
	if err != nil {
		o = wire.AtVersion(e.Object, version) // an object of another Go type
	}
	m := o.(resources.Object)
	m.SetResourceVersion(version)
	if e.Type != watch.Deleted {
		return event(watch.Modified, o)
	}
	// Finalizers that the storm does not know are those of clients.
	others := slices.ContainsFunc(m.GetFinalizers(), func(f string) bool { return !slices.Contains(from.GetFinalizers(), f) })
	switch {
	case others && now.GetDeletionTimestamp() != nil:
		return nil
	case others:
		patch.Mark(m)
		return event(watch.Modified, o)
	}
	k.foreign = false
	return event(watch.Deleted, o)
}
