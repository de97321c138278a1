package browser

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestControllerReport opens the report of a controller's run: the charts have their faults, phases XX
func TestControllerReport(t *testing.T) {
	b := open(t, controllerFixture(t), chromedp.EmulateViewport(1600, 1000))
	for _, f := range eval[[]drawn](b, strings.Replace(figures, "document", `document.getElementById("time")`, 1)) {
		if f.Points == 0 || f.Rows == 0 || f.Wide < 300 || f.High < 150 {
			t.Errorf("%+v", f)
		}
	}
	if n := eval[int](b, `document.querySelectorAll("#time figure[data-kind=latency] .moment").length`); n != 3 {
		t.Errorf("%d faults in the charts of the latency, want 3", n)
	}
	const cut = `[...document.querySelectorAll(".chart text")].filter(e => {
		const r = e.getBoundingClientRect(), box = e.closest("svg").getBoundingClientRect();
		return r.width > 0 && (r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1);
	}).map(e => e.textContent)`
	if texts := eval[[]string](b, cut); len(texts) > 0 {
		t.Errorf("outside their charts: %v", texts)
	}
	// The faults are in the order of the arrow keys.
	b.do(chromedp.Focus("#time-2 figure[data-kind=rss] .plot", chromedp.ByQuery), chromedp.KeyEvent(kb.End))
	if said := eval[string](b, `document.getElementById("said").textContent`); said != "3: relist at 12.0 s (2 requests)" {
		t.Errorf("%q is said of the last fault", said)
	}
	for _, what := range slices.Sorted(maps.Keys(complaints)) {
		for _, where := range eval[[]string](b, complaints[what]) {
			t.Errorf("%s: %s", what, where)
		}
	}
	b.keep("controller.png")
	b.sound()
}
