package workqueue

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// timers is a wheel with its model: the list of the items in it.
type timers struct {
	wheel[int]
	all  []*entry[int]
	made int
}

func (m *timers) insert(due int64) {
	e := &entry[int]{item: m.made, due: due}
	e.node.value = e
	m.made++
	m.wheel.insert(e)
	m.all = append(m.all, e)
}

func (m *timers) remove(i int) {
	m.all[i].node.remove()
	m.all = slices.Delete(m.all, i, i+1)
}

// advance advances the wheel and the model, and compares.
func (m *timers) advance(t interface{ Fatalf(string, ...any) }, now int64) {
	var want, got []int
	slices.SortStableFunc(m.all, func(a, b *entry[int]) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.item, b.item)) })
	for len(m.all) > 0 && m.all[0].due <= now {
		want, m.all = append(want, m.all[0].item), m.all[1:]
	}
	for _, e := range m.wheel.advance(now) {
		got = append(got, e.item)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("at %d due %v, want %v", now, got, want)
	}
	next, ok := m.next()
	if ok != (len(m.all) > 0) {
		t.Fatalf("next %d, %v, with %d items", next, ok, len(m.all))
	}
	if ok && (next > m.all[0].due || next <= now) {
		t.Fatalf("next is at %d, the first item due at %d, now %d", next, m.all[0].due, now)
	}
}

// delay draws a delay of any magnitude.
func delay(t *rapid.T) int64 {
	return rapid.Int64Range(0, math.MaxInt64).Draw(t, "delay") >> rapid.IntRange(0, 63).Draw(t, "magnitude")
}

// TestWheel compares the wheel with a sorted list. The clock jumps, also back.
func TestWheel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := new(timers)
		now := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				due := now + min(delay(t), math.MaxInt64-now)
				for range rapid.IntRange(1, 20).Draw(t, "items") {
					m.insert(due)
				}
			},
			"remove": func(t *rapid.T) {
				if len(m.all) == 0 {
					t.Skip("empty")
				}
				m.remove(rapid.IntRange(0, len(m.all)-1).Draw(t, "which"))
			},
			"advance": func(t *rapid.T) {
				now += min(delay(t), math.MaxInt64-now)
				m.advance(t, now)
			},
			"back": func(t *rapid.T) {
				now -= min(now, delay(t))
				m.advance(t, now)
			},
			"next": func(t *rapid.T) {
				if next, ok := m.next(); ok {
					now = max(now, next)
					m.advance(t, now)
				}
			},
		})
	})
}
