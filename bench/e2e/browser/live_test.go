package browser

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
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

// TestLivePage opens the live page of a run in a real browser.
func TestLivePage(t *testing.T) {
	programs.Chromium(t)
	address := programs.Address(t)
	run := programs.Start(t, exec.Command(programs.Watchlab(t), "run", "--budget", "45s", "--metrics-addr", address,
		"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,cond", "--pipeline", "informer", "--source", "apiserver",
		"--faults", "disconnect:every=1s,count=20", "--storm", "recorded-gang", "--pace", "max,500"), 0, 130)
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

	const said = `document.querySelector("#chart-handled").getAttribute("aria-label")`
	moves := func(what string) {
		t.Helper()
		before := eval[string](b, said)
		programs.Eventually(t, what, func() error {
			if now := eval[string](b, said); now == before {
				return fmt.Errorf("still %q", now)
			}
			return nil
		})
	}
	b.becomes("a line", `document.querySelectorAll("#chart-handled path, #chart-handled circle").length > 0`)
	moves("values move")
	b.becomes("all charts of a paced storm", `[...document.querySelectorAll("svg.chart")].filter(c => !c.querySelector("path, circle")).length === 0`)

	t.Run("structure", func(t *testing.T) {
		if n := eval[int](b, `document.querySelectorAll("figure svg.chart[role=img]").length`); n != 10 {
			t.Errorf("%d charts", n)
		}
		if unnamed := eval[[]string](b, `[...document.querySelectorAll("svg[role=img], button, select, progress")].filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length))).map(e => e.outerHTML.slice(0, 80))`); len(unnamed) > 0 {
			t.Errorf("without a name: %v", unnamed)
		}
		if variants := eval[[]string](b, `[...document.querySelectorAll("#now tbody th")].map(e => e.textContent)`); len(variants) < 2 {
			t.Errorf("variants: %v", variants)
		}
		if lang := eval[string](b, `document.documentElement.lang`); lang != "en" {
			t.Errorf("language %q", lang)
		}
	})

	t.Run("keyboard", func(t *testing.T) {
		focused := func() string {
			return eval[string](b, `document.activeElement.id || document.activeElement.className`)
		}
		var order []string
		b.do(chromedp.Evaluate(`document.activeElement.blur()`, nil))
		for range 5 {
			b.do(chromedp.KeyEvent(kb.Tab))
			order = append(order, focused())
		}
		if got, want := fmt.Sprint(order), "[skip group pause theme scroll]"; got != want {
			t.Errorf("Tab leads to %s, want %s", got, want)
		}
		b.do(chromedp.Focus("#pause"), chromedp.KeyEvent(kb.Enter))
		b.becomes("paused", `document.querySelector("#pause").getAttribute("aria-pressed") === "true" && document.querySelector("#state").textContent.startsWith("Paused")`)
		still, had := eval[string](b, said), eval[int](b, `samples.length`)
		b.becomes("samples while paused", fmt.Sprintf(`samples.length >= %d`, had+2))
		if now := eval[string](b, said); now != still {
			t.Errorf("paused, but %q became %q", still, now)
		}
		b.do(chromedp.KeyEvent(kb.Enter))
		b.becomes("going on", `document.querySelector("#pause").getAttribute("aria-pressed") === "false"`)
		moves("values move again")
		b.do(chromedp.Focus("#group"), chromedp.KeyEvent(kb.ArrowDown))
		b.becomes("a comparison chosen", `document.querySelector("#group").value !== ""`)
	})

	t.Run("looks", func(t *testing.T) {
		for _, theme := range []string{"light", "dark"} {
			b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: theme}}))
			if got := eval[string](b, `getComputedStyle(document.documentElement).colorScheme`); got != theme {
				t.Errorf("requested %s, got %s", theme, got)
			}
			for _, faint := range eval[[]string](b, contrasts) {
				t.Errorf("%s: %s", theme, faint)
			}
			b.keep("live-" + theme + ".png")
		}

		b.do(chromedp.Click("#theme", chromedp.ByQuery))
		b.becomes("light by hand", `getComputedStyle(document.documentElement).colorScheme === "light"`)
		b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
		if wide := eval[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
			t.Errorf("a phone has to scroll %d pixels sideways", wide)
		}
		if small := eval[[]string](b, `[...document.querySelectorAll("button, select")].filter(e => e.getBoundingClientRect().height < 40).map(e => e.id)`); len(small) > 0 {
			t.Errorf("too small for a finger: %v", small)
		}
		b.keep("live-phone.png")
	})

	b.sound()

	// The page must show the end of the command.
	run.Stop(t)
	b.becomes("the end is shown", `/does not answer|has finished/.test(document.querySelector("#state").textContent)`)
}
