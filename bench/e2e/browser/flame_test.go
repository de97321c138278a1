package browser

import (
	"bytes"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"watchlab/bench/profile"
	"watchlab/bench/profile/flame"
)

// frame makes one of a call tree up.
func frame(name string, before, after float64, children ...*profile.Frame) *profile.Frame {
	f := &profile.Frame{Name: "example.com/" + name, Short: name, Children: children, Flat: profile.Pair{Before: before, After: after}}
	f.Cum = f.Flat
	for _, c := range children {
		f.Cum.Before += c.Cum.Before
		f.Cum.After += c.Cum.After
	}
	return f
}

// flamePage is of a queue that became faster, beside a store that didn't.
func flamePage(t *testing.T) []byte {
	t.Helper()
	g := &profile.Graph{
		Kind: "cpu", Unit: "ns/event",
		Before: &profile.Total{Name: "Queue/impl=old", Value: 100}, After: profile.Total{Name: "Queue/impl=new", Value: 75},
		Root: frame("all", 0, 0,
			frame("queue.Pop", 30, 10, frame("queue.lock", 30, 5), frame("queue.ring", 0, 20)),
			frame("store.Update", 40, 40)),
	}
	table := &profile.Table{Kind: g.Kind, Unit: g.Unit, Before: g.Before, After: g.After}
	var walk func(f *profile.Frame)
	walk = func(f *profile.Frame) {
		table.Rows = append(table.Rows, profile.Row{Name: f.Name, Flat: f.Flat, Cum: f.Cum})
		for _, c := range f.Children {
			walk(c)
		}
	}
	walk(g.Root)
	var b bytes.Buffer
	if err := flame.HTML(&b, "cpu: old → new", g, table); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	focused   = `document.activeElement.dataset.n || document.activeElement.tagName`
	drawnNow  = `[...document.querySelectorAll(".frame")].filter(f => f.style.display !== "none").map(f => f.dataset.n).join(" ")`
	everyName = "all queue.Pop queue.lock queue.ring store.Update"
)

// TestFlame: the flame graph can be walked through, zoomed and searched without a
// mouse, and nothing is complained of.
func TestFlame(t *testing.T) {
	b := open(t, flamePage(t))
	if got := eval[string](b, drawnNow); got != everyName {
		t.Errorf("drawn: %s", got)
	}
	b.do(chromedp.Focus(".frame"))
	for _, step := range []struct{ key, focused, drawn string }{
		{kb.ArrowDown, "queue.Pop", everyName},
		{kb.ArrowRight, "store.Update", everyName},
		{kb.ArrowLeft, "queue.Pop", everyName},
		{kb.Enter, "queue.Pop", "all queue.Pop queue.lock queue.ring"},
		{kb.ArrowDown, "queue.lock", "all queue.Pop queue.lock queue.ring"},
		{kb.ArrowRight, "queue.ring", "all queue.Pop queue.lock queue.ring"},
		{kb.ArrowUp, "queue.Pop", "all queue.Pop queue.lock queue.ring"},
		{kb.Escape, "queue.Pop", everyName},
		{kb.Home, "all", everyName},
	} {
		b.do(chromedp.KeyEvent(step.key))
		if f, d := eval[string](b, focused), eval[string](b, drawnNow); f != step.focused || d != step.drawn {
			t.Errorf("after %q: at %s, drawn %s; want at %s, drawn %s", step.key, f, d, step.focused, step.drawn)
		}
	}
	if got := eval[string](b, `document.getElementById("says").textContent`); got != "example.com/all: 100 → 75.0 ns/event (-25.0, -25 %)" {
		t.Errorf("what has the focus is told as %q", got)
	}
	// A zoomed frame is as wide as the graph.
	b.do(chromedp.Click(`[data-n="store.Update"] rect`, chromedp.ByQuery))
	if got := eval[float64](b, `+document.querySelector('[data-n="store.Update"] rect').getAttribute("width")`); got < 1199 {
		t.Errorf("zoomed by a click, it is %v wide of 1200", got)
	}
	b.do(chromedp.Click("#reset", chromedp.ByQuery), chromedp.SendKeys("#search", "queue", chromedp.ByQuery))
	if got := eval[string](b, `document.getElementById("found").textContent`); got != "3 frames" {
		t.Errorf("found %s of queue", got)
	}
	if got := eval[int](b, `document.querySelectorAll(".frame[tabindex='0']").length`); got != 1 {
		t.Errorf("%d frames are stops of the Tab key", got)
	}
	if got := eval[int](b, `document.querySelectorAll("tbody tr").length`); got != 5 {
		t.Errorf("%d rows in the table", got)
	}
	b.keep("flame.png")
	b.sound()
}
