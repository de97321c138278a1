package queuetest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"weak"

	v1 "k8s.io/api/core/v1"
)

// orderChecks: which objects come, and in which order.
var orderChecks = []check{
	{name: "keys in the order in which they began to wait", places: 3, run: order},
	{name: "newest object of a key", run: newest},
	{name: "pop looks at what came last", places: 4, run: cameLast},
	{name: "delete takes out of the queue", places: 1000, run: deletes},
	{name: "replace drops what waits", places: 2, run: replace},
	{name: "replace with an object twice", run: replaceTwice},
	{name: "a list may be longer than the capacity", run: longList},
	{name: "resync does nothing", run: resync},
	{name: "length", places: 2, run: length},
	{name: "process may produce", applies: unlocked, places: 3, run: processProduces},
	{name: "a key that is deleted and added again", places: 40, run: deletedAndAdded},
	{name: "many keys come and go", places: 1000, run: comeAndGo},
	{name: "objects are let go", applies: ours, places: 100, run: letGo},
}

func order(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("b", 1)), r.queue.Update(pod("a", 2)), r.queue.Add(pod("c", 3)), r.queue.Update(pod("b", 4)))
	r.expect("b@4", "a@2", "c@3")
	// A key that was taken begins anew.
	r.do(r.queue.Add(pod("c", 5)), r.queue.Add(pod("b", 6)))
	r.expect("c@5", "b@6")
}

func newest(t *testing.T, b bed) {
	r := b.new(t)
	for i := range 1000 {
		r.do(r.queue.Update(pod("a", i)))
	}
	r.expect("a@999")
	r.expect()
	// Also between two that are taken.
	for i := range 100 {
		r.do(r.queue.Update(pod("a", i)), r.queue.Update(pod("a", i+1)))
		r.expect(fmt.Sprintf("a@%d", i+1))
	}
}

// cameLast takes without a look at the length, which might put in order what Pop
// should.
func cameLast(t *testing.T, b bed) {
	if !b.fifo() {
		return // It can't be said what comes next.
	}
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 1)), r.queue.Add(pod("c", 1)), r.queue.Add(pod("d", 1)))
	r.do(r.take(), r.queue.Update(pod("b", 2)), r.take(), r.queue.Delete(pod("c", 2)), r.take())
	r.do(r.queue.Add(pod("e", 3)), r.queue.Replace([]any{pod("f", 3)}, "3"), r.take())
	if want := []string{"a@1", "b@2", "d@1", "f@3"}; !slices.Equal(r.taken, want) {
		t.Errorf("handed over %v, want %v", r.taken, want)
	}
}

func deletes(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Delete(pod("a", 3)), r.queue.Delete(pod("nowhere", 4)))
	r.expect("b@2")
	r.do(r.queue.Add(pod("a", 5)))
	r.expect("a@5")
	// Many keys, so that what a deletion leaves behind shows.
	for i := range 1000 {
		r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), i)))
	}
	var want []string
	for i := range 1000 {
		if i%3 == 0 {
			want = append(want, fmt.Sprintf("k%d@%d", i, i))
		} else {
			r.do(r.queue.Delete(pod(fmt.Sprintf("k%d", i), i)))
		}
	}
	r.expect(want...)
}

func replace(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)))
	r.replace("b", "c")
	got := r.drain()
	slices.Sort(got)
	if want := []string{"b@9", "c@9"}; !slices.Equal(got, want) {
		t.Errorf("handed over %v, want %v", got, want)
	}
	r.do(r.queue.Add(pod("a", 10)))
	r.replace()
	r.expect()
}

func replaceTwice(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Replace([]any{pod("a", 1), pod("a", 2)}, "2"))
	r.expect("a@2")
	if !r.queue.HasSynced() {
		t.Error("the list has been processed: HasSynced must be true")
	}
}

func longList(t *testing.T, b bed) {
	r := b.new(t)
	var list []any
	for i := range 2 * (b.Capacity + 10) {
		list = append(list, pod(fmt.Sprintf("k%d", i), i))
	}
	for range 2 {
		r.do(r.queue.Replace(list, "1"))
		if n := r.queue.Len(); n != len(list) {
			t.Errorf("length is %d after a list of %d", n, len(list))
		}
		if n := len(r.drain()); n != len(list) {
			t.Errorf("%d of %d objects of a list came", n, len(list))
		}
	}
}

func resync(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Resync())
	r.expect("a@1")
	r.do(r.queue.Resync())
	r.expect()
}

func length(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)), r.queue.Add(pod("b", 2)), r.queue.Update(pod("a", 3)))
	if n := r.queue.Len(); n != 2 {
		t.Errorf("length is %d, want 2", n)
	}
	r.do(r.queue.Delete(pod("a", 4)))
	if n := r.queue.Len(); n != 1 {
		t.Errorf("length is %d after a delete, want 1", n)
	}
}

func processProduces(t *testing.T, b bed) {
	r := b.new(t)
	r.do(r.queue.Add(pod("a", 1)))
	once := true
	r.during = func() {
		if once {
			once = false
			r.do(r.queue.Update(pod("a", 2)), r.queue.Add(pod("b", 3)))
		}
	}
	r.expect("a@1", "a@2", "b@3")
}

// deletedAndAdded does so again and again behind a key that stays, and looks
// that nothing comes twice or is lost.
func deletedAndAdded(t *testing.T, b bed) {
	r := b.new(t)
	for i := range 40 {
		r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i), 0)))
	}
	want := map[string]bool{"k0@0": true}
	for round := range 50 {
		for i := 1; i < 40; i++ {
			r.do(r.queue.Delete(pod(fmt.Sprintf("k%d", i*7%40), round)))
			if round < 49 || i%2 == 0 {
				r.do(r.queue.Add(pod(fmt.Sprintf("k%d", i*7%40), round)))
			}
			if round == 49 && i%2 == 0 {
				want[fmt.Sprintf("k%d@49", i*7%40)] = true
			}
		}
	}
	for _, w := range r.drain() {
		if !want[w] {
			t.Errorf("%s came, which was not waiting or came before", w)
		}
		delete(want, w)
	}
	if len(want) > 0 {
		t.Errorf("lost %v", want)
	}
}

// comeAndGo grows and shrinks the queue several times.
func comeAndGo(t *testing.T, b bed) {
	r := b.new(t)
	rv := 0
	for round, n := range []int{1, 10, 1000, 3, 999, 17, 500} {
		var want []string
		for i := range n {
			rv++
			name := fmt.Sprintf("r%d-k%d", round%3, i)
			r.do(r.queue.Add(pod(name, rv)))
			want = append(want, fmt.Sprintf("%s@%d", name, rv))
		}
		r.expect(want...)
	}
}

// letGo: a queue holds on to no object that it has handed over, save to some
// few.
func letGo(t *testing.T, b bed) {
	const objects = 1000
	r := b.new(t)
	var all []weak.Pointer[v1.Pod]
	for i := range objects {
		p := pod(fmt.Sprintf("k%d", i%70), i)
		all = append(all, weak.Make(p))
		r.do(r.queue.Update(p))
		if i%90 == 89 {
			r.drain()
		}
	}
	r.drain()
	runtime.GC()
	alive := 0
	for _, p := range all {
		if p.Value() != nil {
			alive++
		}
	}
	runtime.KeepAlive(r.queue)
	if alive > objects/50 {
		t.Errorf("%d of %d objects are held on to after they were handed over", alive, objects)
	}
}
