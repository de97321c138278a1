package browser

import (
	"bytes"
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/bench/report/reporttest"
)

// screenshots is where pictures of the pages are kept, for those who look.
var screenshots = filepath.Join("..", "..", "..", "bin", "screenshots")

// chromium returns the browser's path, or skips the test as loudly as a test can.
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
	t.Skip("#### SKIPPED: no Chromium; scripts/chromium.sh installs one. The HTML report is NOT tested in a browser ####")
	return ""
}

// tab is a page in a browser of its own, and what it complained of.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
}

// open starts a browser, lets setup act, and loads the page.
func open(t *testing.T, html []byte, setup ...chromedp.Action) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, html, 0o644); err != nil {
		t.Fatal(err)
	}
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
	ctx, cancel = context.WithTimeout(ctx, 2*time.Minute)
	t.Cleanup(cancel)

	b := &tab{t: t, ctx: ctx}
	address := (&url.URL{Scheme: "file", Path: file}).String()
	chromedp.ListenTarget(ctx, func(event any) { b.listen(event, address) })
	actions := append([]chromedp.Action{network.Enable(), log.Enable()}, setup...)
	b.do(append(actions, chromedp.Navigate(address))...)
	return b
}

// listen keeps whatever a page that is sound never does.
func (b *tab) listen(event any, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			var words []string
			for _, a := range e.Args {
				words = append(words, string(a.Value))
			}
			b.problems = append(b.problems, "console: "+strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Error())
	case *log.EventEntryAdded:
		b.problems = append(b.problems, "log: "+e.Entry.Text)
	case *network.EventRequestWillBeSent:
		if got := e.Request.URL; !strings.HasPrefix(got, address) && !strings.HasPrefix(got, "data:") {
			b.problems = append(b.problems, "request: "+got)
		}
	}
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns what a JavaScript expression is.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	if err := chromedp.Run(b.ctx, chromedp.Evaluate(expression, &v)); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// sound fails the test where the page complained.
func (b *tab) sound() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Error(p)
	}
}

// keep takes a picture of the whole page.
func (b *tab) keep(name string) {
	b.t.Helper()
	var png []byte
	b.do(chromedp.FullScreenshot(&png, 100))
	b.save(name, png)
}

func (b *tab) save(name string, data []byte) {
	b.t.Helper()
	if err := os.MkdirAll(screenshots, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(screenshots, name), data, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func render(t *testing.T, o *lab.Outcome) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := report.HTML(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func fixture(t *testing.T) []byte {
	t.Helper()
	return render(t, reporttest.Outcome())
}
