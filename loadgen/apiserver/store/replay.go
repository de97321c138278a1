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

// replay returns the event to append with a version for the recording's event with an index, given the newest
// event of its object; no type if there is none. The caller holds write and mu.
func (l *Log) replay(index int, current *storm.Event, number uint64) (watch.EventType, runtime.Object) {
	e := &l.rec.storm.Events[index]
	version := strconv.FormatUint(number, 10)
	switch {
	case e.Type == watch.Added && current == nil:
		return watch.Added, wire.AtVersion(e.Object, version)
	case e.Type == watch.Added:
		delete(l.foreign, current.KeyIndex)
		return watch.Modified, wire.AtVersion(e.Object, version)
	case current == nil:
		return "", nil
	}
	if _, foreign := l.foreign[current.KeyIndex]; !foreign {
		return e.Type, wire.AtVersion(e.Object, version)
	}
	from := l.rec.storm.Events[l.rec.keys().before[index]].Object.(resources.Object)
	now := current.Object.(resources.Object)
	if from.GetUID() != now.GetUID() {
		return "", nil // a client has replaced the object
	}
	o, err := patch.Replay(from, e.Object, now)
	if err != nil {
		o = wire.AtVersion(e.Object, version) // an object of another Go type
	}
	m := o.(resources.Object)
	m.SetResourceVersion(version)
	if e.Type != watch.Deleted {
		return watch.Modified, o
	}
	// Finalizers that the storm does not know are those of clients.
	others := slices.ContainsFunc(m.GetFinalizers(), func(f string) bool { return !slices.Contains(from.GetFinalizers(), f) })
	switch {
	case others && now.GetDeletionTimestamp() != nil:
		return "", nil
	case others:
		patch.Mark(m)
		return watch.Modified, o
	}
	delete(l.foreign, current.KeyIndex)
	return watch.Deleted, o
}
