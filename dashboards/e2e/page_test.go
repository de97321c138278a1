package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// screenshots is where pictures of the live page are kept, for those who look.
var screenshots = filepath.Join("..", "..", "bin", "screenshots")

// chromium finds the browser, or skips the test, loudly.
func chromium(t *testing.T) string {
	t.Helper()
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}
	if own := os.Getenv("CHROMIUM"); own != "" {
		names = []string{own}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("#### SKIPPED: no Chromium here; scripts/chromium.sh installs one ####")
	return ""
}

// tab is a page in a browser of its own, and what it complained of.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string

	over bool
}

func openTab(t *testing.T, address string) *tab {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(chromium(t)), chromedp.WindowSize(1280, 900), chromedp.DisableGPU)
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {

		if err := chromedp.Cancel(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("close the browser: %v", err)
		}
		cancel()
	})
	ctx, cancel = context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	b := &tab{t: t, ctx: ctx}
	chromedp.ListenTarget(ctx, func(event any) { b.listen(event, address) })
	b.do(network.Enable(), log.Enable(), chromedp.Navigate(address))
	return b
}

// listen keeps whatever a page that is sound never does: complain, or ask anybody
// else than the command.
func (b *tab) listen(event any, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			b.problems = append(b.problems, fmt.Sprintf("console: %v", e.Args))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		b.problems = append(b.problems, "log: "+e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, address) {
			b.problems = append(b.problems, "request: "+e.Request.URL)
		}
	}
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// value returns what a JavaScript expression is.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	if err := chromedp.Run(b.ctx, chromedp.Evaluate(expression, &v)); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// becomes waits until a JavaScript expression is true.
func (b *tab) becomes(what, expression string) {
	b.t.Helper()
	eventually(b.t, what, func() error {
		if !value[bool](b, expression) {
			return fmt.Errorf("not yet: %s", expression)
		}
		return nil
	})
}

func (b *tab) keep(name string) {
	b.t.Helper()
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
	if err := os.MkdirAll(screenshots, 0o755); err != nil {
		b.t.Fatal(err)
	}
	write(b.t, filepath.Join(screenshots, name), png)
}

// contrasts are the texts of a page that stand out from what is behind them by less
// than WCAG 2.1 asks of normal text, 4.5 to 1.
const contrasts = `(() => {
	const light = c => {
		const [r, g, b] = c.match(/[\d.]+/g).map(Number).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const ground = e => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (!/, 0\)$|transparent/.test(c)) return c;
		}
		return "rgb(255, 255, 255)";
	};
	const faint = [];
	for (const e of document.querySelectorAll("h1, h2, p, th, td, caption, label, button, output, figcaption, small, li, a")) {
		if (!e.textContent.trim() || !e.getClientRects().length) continue;
		const a = light(getComputedStyle(e).color), b = light(ground(e));
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) faint.push(e.tagName + " " + e.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
	}
	return faint;
})()`

// TestLivePage: the page that a run serves itself, in a real browser, while a storm
// is played.
func TestLivePage(t *testing.T) {
	chromium(t)
	watchlab, err := command()
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	end := playing(t, watchlab, "", address, storms[1]...)
	b := openTab(t, "http://"+address+"/")

	const said = `document.querySelector("#chart-handled").getAttribute("aria-label")`
	moves := func(what string) {
		t.Helper()
		before := value[string](b, said)
		eventually(t, what, func() error {
			if now := value[string](b, said); now == before {
				return fmt.Errorf("still %q", now)
			}
			return nil
		})
	}
	b.becomes("a line", `document.querySelectorAll("#chart-handled path, #chart-handled circle").length > 0`)
	moves("values move")
	b.becomes("all charts of a paced storm", `[...document.querySelectorAll("svg.chart")].filter(c => !c.querySelector("path, circle")).length === 0`)

	t.Run("structure", func(t *testing.T) {
		if n := value[int](b, `document.querySelectorAll("figure svg.chart[role=img]").length`); n != 10 {
			t.Errorf("%d charts", n)
		}
		if unnamed := value[[]string](b, `[...document.querySelectorAll("svg[role=img], button, select, progress")].filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || (e.labels && e.labels.length))).map(e => e.outerHTML.slice(0, 80))`); len(unnamed) > 0 {
			t.Errorf("without a name: %v", unnamed)
		}
		if variants := value[[]string](b, `[...document.querySelectorAll("#now tbody th")].map(e => e.textContent)`); len(variants) < 2 {
			t.Errorf("variants: %v", variants)
		}
		if lang := value[string](b, `document.documentElement.lang`); lang != "en" {
			t.Errorf("language %q", lang)
		}
	})

	t.Run("keyboard", func(t *testing.T) {
		focused := func() string {
			return value[string](b, `document.activeElement.id || document.activeElement.className`)
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
		still, had := value[string](b, said), value[int](b, `samples.length`)
		b.becomes("samples while paused", fmt.Sprintf(`samples.length >= %d`, had+2))
		if now := value[string](b, said); now != still {
			t.Errorf("paused, and %q became %q", still, now)
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
			if got := value[string](b, `getComputedStyle(document.documentElement).colorScheme`); got != theme {
				t.Errorf("asked for %s, got %s", theme, got)
			}
			for _, faint := range value[[]string](b, contrasts) {
				t.Errorf("%s: %s", theme, faint)
			}
			b.keep("live-" + theme + ".png")
		}

		b.do(chromedp.Click("#theme", chromedp.ByQuery))
		b.becomes("light by hand", `getComputedStyle(document.documentElement).colorScheme === "light"`)
		b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
		if wide := value[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide > 0 {
			t.Errorf("a phone has to scroll %d pixels sideways", wide)
		}
		if small := value[[]string](b, `[...document.querySelectorAll("button, select")].filter(e => e.getBoundingClientRect().height < 40).map(e => e.id)`); len(small) > 0 {
			t.Errorf("too small for a finger: %v", small)
		}
		b.keep("live-phone.png")
	})

	b.mu.Lock()
	problems := b.problems
	b.over = true
	b.mu.Unlock()
	for _, p := range problems {
		t.Error(p)
	}

	// When the command has gone, the page says so.
	end()
	b.becomes("the end is told", `/doesn't answer|is over/.test(document.querySelector("#state").textContent)`)
}
