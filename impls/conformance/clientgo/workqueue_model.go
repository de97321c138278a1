package clientgo

import (
	"fmt"
	"slices"
	"strings"

	"watchlab/impls/conformance"
)

// operation is a call. Its output is what the method returns, nil where that is nothing.
type operation struct {
	kind string // the method, as a word of a script
	item string
}

// call does an operation.
func (r *workRig) call(o operation) any {
	switch o.kind {
	case "add":
		r.queue.Add(o.item)
	case "get":
		return r.take()
	case "done":
		r.queue.Done(o.item)
	case "len":
		return r.queue.Len()
	case "shutdown":
		r.down = true
		r.queue.ShutDown()
	case "down":
		return r.queue.ShuttingDown()
	}
	return nil
}

// model is the contract as a sequential machine. Items are letters.
type workModel struct {
	queued  string // in their order, or sorted if the variant keeps none
	process string // sorted
	again   string // sorted, the items in process that were added again
	down    bool
	ordered bool
}

func (m workModel) String() string {
	return fmt.Sprintf("queued %q, in process %q, of these added again %q, shut down %t", m.queued, m.process, m.again, m.down)
}

func has(items, item string) bool    { return strings.Contains(items, item) }
func without(items, i string) string { return strings.Replace(items, i, "", 1) }

func sorted(items string) string {
	b := []byte(items)
	slices.Sort(b)
	return string(b)
}

func (m *workModel) push(item string) {
	if m.queued += item; !m.ordered {
		m.queued = sorted(m.queued)
	}
}

// step returns the state after an operation, or why it cannot happen.
func (m workModel) step(o operation, out any) (workModel, error) {
	var want any
	switch o.kind {
	case "add":
		switch {
		case m.down || has(m.queued, o.item) || has(m.again, o.item):
		case has(m.process, o.item):
			m.again = sorted(m.again + o.item)
		default:
			m.push(o.item)
		}
	case "get":
		item, _ := out.(string)
		switch {
		case m.queued == "" && m.down:
			want = shutdown
		case m.queued == "":
			return m, fmt.Errorf("an empty queue handed out %s", item)
		case m.ordered || !has(m.queued, item) || item == "":
			want = m.queued[:1]
		default:
			want = item
		}
		if want != shutdown {
			m.queued, m.process = without(m.queued, item), sorted(m.process+item)
		}
	case "done":
		m.process = without(m.process, o.item)
		if has(m.again, o.item) {
			m.again = without(m.again, o.item)
			m.push(o.item)
		}
	case "len":
		want = len(m.queued)
	case "shutdown":
		m.down = true
	case "down":
		want = m.down
	}
	if out != want {
		return m, fmt.Errorf("%s %s returned %v, want %v", o.kind, o.item, out, want)
	}
	return m, nil
}

func workMachine(ordered bool) conformance.Machine[workModel] {
	return conformance.Machine[workModel]{
		Init: func() workModel { return workModel{ordered: ordered} },
		Step: func(before workModel, in, out any) ([]workModel, error) {
			after, err := before.step(in.(operation), out)
			if err != nil {
				return nil, err
			}
			return []workModel{after}, nil
		},
		Describe: func(in, out any) string {
			o := in.(operation)
			return fmt.Sprintf("%s %s → %v", o.kind, o.item, out)
		},
	}
}
