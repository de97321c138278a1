package browser

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"watchlab/bench/e2e/programs"
)

// becomes waits until a JavaScript expression is true.
func (b *tab) becomes(what, expression string) {
	b.t.Helper()
	programs.Eventually(b.t, what, func() error {
		if !eval[bool](b, expression) {
			return fmt.Errorf("not yet: %s", expression)
		}
		return nil
	})
}

// charted checks the charts of a page: each is a named picture with labels on both axes, or on one if
// it has rows, and neither the page nor a table scrolls sideways.
func (b *tab) charted(when string, least int) {
	b.t.Helper()
	if n := eval[int](b, `document.querySelectorAll("svg.chart[role=img]").length`); n < least {
		b.t.Errorf("%s: %d charts, want %d", when, n, least)
	}
	const unlabelled = `[...document.querySelectorAll("svg.chart")].filter(c => c.querySelectorAll(".axis-label").length < (c.querySelector(".row") ? 1 : 2) || c.querySelectorAll(".tick").length < 2).map(c => c.querySelector("title").textContent)`
	if names := eval[[]string](b, unlabelled); len(names) > 0 {
		b.t.Errorf("%s: charts without labels or ticks: %v", when, names)
	}
	for _, width := range []int64{1200, 360} {
		b.do(chromedp.EmulateViewport(width, 900))
		if wide := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
			b.t.Errorf("%s: a page of %d pixels scrolls by %d", when, width, wide)
		}
		for _, cut := range eval[[]string](b, `[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth).flatMap(e => [...e.querySelectorAll("thead th")]
			.filter(h => h.getBoundingClientRect().right > e.getBoundingClientRect().right).map(h => h.textContent).concat(e.id))`) {
			b.t.Errorf("%s: at %d pixels %q is cut off", when, width, cut)
		}
	}
	b.do(chromedp.EmulateViewport(1200, 900))
}

// pictured takes the pictures of a moment for the guide (docs/live.md).
func (b *tab) pictured(when string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(`document.activeElement.blur()`, nil))
	for _, p := range []struct {
		suffix, theme string
		wide          int64
	}{{"", "light", 1600}, {"-dark", "dark", 1600}, {"-360", "light", 360}} {
		var shot []byte
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.theme}}),
			chromedp.EmulateViewport(p.wide, 740), chromedp.FullScreenshot(&shot, 100))
		b.save("live-"+when+p.suffix+".png", paletted(b.t, shot))
	}
	b.do(chromedp.EmulateViewport(1200, 900))
}

// TestLivePage opens the live page of a run in a real browser: before the first round, in the middle
// of the run, and after it.
func TestLivePage(t *testing.T) {
	programs.Chromium(t)
	address := programs.Address(t)
	run := programs.Start(t, exec.Command(programs.Watchlab(t), "dash", "--ignore-host", "--rounds", "4", "--metrics-addr", address,
		"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring", "--pipeline", "informer", "--source", "apiserver",
		"--faults", "disconnect:every=1s,count=3; relist:at=2s", "--storm", "recorded-gang", "--pace", "max,4000"), 0, 130)
	run.Ready(t, func() error {
		resp, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	})
	b := openURL(t, "http://"+address+"/")
	text := func(id string) string { return fmt.Sprintf(`document.querySelector("#%s").textContent`, id) }

	b.becomes("waiting", `/Waiting for the first round/.test(`+text("state")+`) && /waiting for the first round/.test(`+text("progress")+`)`)
	if got := eval[string](b, text("progress")); strings.Contains(got, "%") {
		t.Errorf("progress before the first round: %q", got)
	}
	b.charted("waiting", 0)
	b.pictured("waiting")

	b.becomes("round 2", `/^Round [234] of 4/.test(`+text("state")+`)`)
	b.becomes("all charts", `["ranking", "storm", "depth", "latency"].every(id => document.querySelector("#" + id + " svg.chart"))`)
	b.becomes("overlaid variants", `document.querySelectorAll("#latency [data-series]").length === 2 && document.querySelectorAll("#latency .series.bold").length === 1`)
	b.becomes("faults and relists", `["fault by", "relist by"].every(mark => [...document.querySelectorAll("#storm .moment title")].some(e => e.textContent.includes(mark)))`)
	b.becomes("bars with intervals", `document.querySelector("#ranking .row path.bar")`+` !== null`)
	b.pictured("middle")
	b.do(chromedp.Click("#pause", chromedp.ByQuery)) // while the page is measured
	b.becomes("paused", `document.querySelector("#pause").getAttribute("aria-pressed") === "true" && `+text("state")+`.startsWith("Paused")`)
	still := eval[string](b, text("progress"))
	b.charted("middle", 4)
	if got := eval[string](b, text("progress")); got != still || !strings.Contains(got, " left") {
		t.Errorf("paused at %q, then %q", still, got)
	}
	if rows := eval[[]string](b, `[...document.querySelectorAll("#table tbody th")].map(e => e.textContent)`); len(rows) != 2 {
		t.Errorf("the table has %v", rows)
	}
	b.looks()
	b.keyboard()

	b.becomes("the end", `/The run has finished/.test(`+text("state")+`)`)
	if got := eval[string](b, text("answer")); !strings.Contains(got, "client-go's") || strings.Contains(got, "too few rounds") || !strings.Contains(got, "Report of this run") {
		t.Errorf("who won: %q", got)
	}
	b.becomes("the ranking is final", `/100 %/.test(`+text("progress")+`)`)
	b.charted("end", 4)
	b.pictured("end")
	b.sound()

	report := openURL(t, eval[string](b, `document.querySelector("#answer a").href`))
	report.becomes("the report", `document.querySelector("main svg.chart") !== null && /ring/.test(document.body.textContent)`)
	report.sound()
	run.Stop(t)
	b.becomes("it stays", `/The run has finished/.test(`+text("state")+`) && document.querySelectorAll("svg.chart").length >= 4`)
}

// looks checks both themes of the page, and its controls on a phone.
func (b *tab) looks() {
	b.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
		for _, faint := range eval[[]string](b, contrasts) {
			b.t.Errorf("%s: %s", theme, faint)
		}
		b.keep("live-" + theme + ".png")
	}
	dark := eval[string](b, background)
	b.do(chromedp.Click("#theme", chromedp.ByQuery))
	if light := eval[string](b, background); light == dark {
		b.t.Errorf("light by hand is %s", light)
	}
	b.do(chromedp.Click("#theme", chromedp.ByQuery), chromedp.Click("#theme", chromedp.ByQuery)) // the system's again
	b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	if small := eval[[]string](b, `[...document.querySelectorAll("button, select")].filter(e => e.getBoundingClientRect().height < 40).map(e => e.id)`); len(small) > 0 {
		b.t.Errorf("too small for a finger: %v", small)
	}
	if n := eval[float64](b, `Math.min(...[...document.querySelectorAll("svg.chart text")].map(e => e.getBoundingClientRect().height))`); n < 9 {
		b.t.Errorf("the smallest label is %v high", n)
	}
	b.do(chromedp.EmulateViewport(1200, 900))
}

// keyboard checks the names of the controls and goes through them with the keys alone.
func (b *tab) keyboard() {
	b.t.Helper()
	if unnamed := eval[[]string](b, `[...document.querySelectorAll("svg[role=img], button, select, progress")].filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length))).map(e => e.outerHTML.slice(0, 80))`); len(unnamed) > 0 {
		b.t.Errorf("without a name: %v", unnamed)
	}
	var order []string
	b.do(chromedp.Focus(".skip", chromedp.ByQuery))
	for range 4 {
		b.do(chromedp.KeyEvent(kb.Tab))
		order = append(order, eval[string](b, `document.activeElement.id || document.activeElement.className`))
	}
	if got, want := fmt.Sprint(order), "[groups pause theme table]"; got != want {
		b.t.Errorf("Tab leads to %s, want %s", got, want)
	}
	b.do(chromedp.Focus("#pause"), chromedp.KeyEvent(kb.Enter))
	b.becomes("going on", `document.querySelector("#pause").getAttribute("aria-pressed") === "false" && /^Round/.test(document.querySelector("#state").textContent)`)
	b.do(chromedp.Focus("#groups"), chromedp.KeyEvent(kb.ArrowDown))
	b.becomes("a comparison chosen", `document.querySelector("#groups").value !== "" && document.activeElement.id === "groups"`)
}
