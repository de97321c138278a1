package queuetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"
)

// lineModel is the contents of a queue with in-order delivery.
type lineModel struct {
	deltas []delta
	// groups counts the lists that queued tombstones.
	groups int
}

func (l *lineModel) len() int                 { return len(l.deltas) }
func (l *lineModel) clone() contents          { return &lineModel{slices.Clone(l.deltas), l.groups} }
func (l *lineModel) write(b *strings.Builder) { fmt.Fprint(b, l.deltas) }

func (l *lineModel) event(m *deltaModel, d delta) {
	m.place(d)
	l.deltas = append(l.deltas, d)
}

func (l *lineModel) mark() int {
	for i := range l.deltas {
		l.deltas[i].initial = true
	}
	return len(l.deltas)
}

// newest returns the newest delta of each key that is queued or in process, and the
// keys in the order in which they came.
func (l *lineModel) newest(m *deltaModel) (newest map[string]delta, order []string) {
	newest = map[string]delta{}
	note := func(deltas []delta) {
		for _, d := range deltas {
			key := keyOf(d.obj)
			if _, there := newest[key]; !there {
				order = append(order, key)
			}
			newest[key] = d
		}
	}
	for _, deltas := range m.process {
		note(deltas)
	}
	note(l.deltas)
	return newest, order
}

func (l *lineModel) replace(m *deltaModel, list []any) {
	listed := keysOf(list)
	queued, order := l.newest(m)
	l.groups++
	bury := func(key string, obj any) {
		if !listed[key] {
			d := tombstone(key, obj)
			d.group = l.groups
			l.event(m, d)
		}
	}
	for _, key := range order {
		if queued[key].typ != cache.Deleted {
			bury(key, queued[key].obj)
		}
	}
	for _, key := range sortedKeys(m.store) {
		if _, there := queued[key]; !there {
			bury(key, m.store[key])
		}
	}
	for _, obj := range list {
		l.event(m, delta{typ: cache.Replaced, obj: obj, placeless: true})
	}
}

func (l *lineModel) resync(m *deltaModel) {
	queued, _ := l.newest(m)
	for _, key := range sortedKeys(m.store) {
		if _, there := queued[key]; !there {
			l.event(m, delta{typ: cache.Sync, obj: m.store[key], placeless: true})
		}
	}
}

func (l *lineModel) pop(m *deltaModel, p popped) ([]delta, error) {
	if err := match(p.deltas, l.deltas); err != nil {
		return nil, err
	}
	n := len(p.deltas)
	popped := slices.Clone(l.deltas[:n])
	if !m.concurrent && popped[0].initial != popped[n-1].initial {
		return nil, errors.New("a batch extends beyond the initial list")
	}
	l.deltas = l.deltas[n:]
	return popped, nil
}
