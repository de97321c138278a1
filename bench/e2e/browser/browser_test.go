// Package browser tests the HTML reports and the live page of a run in a headless Chromium.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"watchlab/bench/e2e/programs"
)

// tab is a page in its own browser. It records the page's errors.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	problems []string
	over     bool // stops the recording of problems
}

// open writes a page to a file and opens the file.
func open(t *testing.T, html []byte, setup ...chromedp.Action) *tab {
	t.Helper()
	file := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(file, html, 0o644); err != nil {
		t.Fatal(err)
	}
	return openURL(t, (&url.URL{Scheme: "file", Path: file}).String(), setup...)
}

// openURL starts a browser, runs setup, and loads the page.
func openURL(t *testing.T, address string, setup ...chromedp.Action) *tab {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(programs.Chromium(t)), chromedp.WindowSize(1280, 900), chromedp.DisableGPU,
		// The default of 20 s is not enough on a busy machine.
		chromedp.WSURLReadTimeout(programs.Patience))
	if os.Geteuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(func() {
		// Cancel ends the browser and deletes its temporary folder.
		if err := chromedp.Cancel(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("close the browser: %v", err)
		}
		cancel()
	})
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("Chromium has not started within %v: %v", programs.Patience, err)
	}
	ctx, cancel = context.WithTimeout(ctx, 2*programs.Patience)
	t.Cleanup(cancel)

	b := &tab{t: t, ctx: ctx}
	host, _, _ := strings.Cut(address, "?")
	chromedp.ListenTarget(ctx, func(event any) { b.listen(event, host) })
	actions := append([]chromedp.Action{network.Enable(), log.Enable()}, setup...)
	b.do(append(actions, chromedp.Navigate(address))...)
	return b
}

// listen records errors, warnings, and requests to servers other than address.
func (b *tab) listen(event any, address string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
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
		b.t.Fatalf("%d actions on the page: %v", len(actions), err)
	}
}

// eval returns the value of a JavaScript expression.
func eval[T any](b *tab, expression string) T {
	b.t.Helper()
	var v T
	if err := chromedp.Run(b.ctx, chromedp.Evaluate(expression, &v)); err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// sound ends the recording. It fails the test if the page had problems.
func (b *tab) sound() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	for _, p := range b.problems {
		b.t.Error(p)
	}
}

// fixture returns a page that the tests of bench/report render: 0 of a run, 1 of a controller's run.
func fixture(t *testing.T, i int) []byte {
	t.Helper()
	pages, err := fixturePages()
	if err != nil {
		t.Fatal(err)
	}
	return pages[i]
}

var fixturePages = sync.OnceValues(func() (pages [2][]byte, err error) {
	dir, err := os.MkdirTemp("", "watchlab-page-")
	if err != nil {
		return pages, err
	}
	files := []string{filepath.Join(dir, "page.html"), filepath.Join(dir, "controller.html")}
	cmd := exec.Command("go", "test", "-count=1", "-run=^TestFixturePage$", "./bench/report", "-page="+files[0], "-controller-page="+files[1])
	cmd.Dir = filepath.Join("..", "..", "..")
	if out, err := cmd.CombinedOutput(); err != nil {
		return pages, fmt.Errorf("%w: %s", err, out)
	}
	for i, file := range files {
		var readErr error
		pages[i], readErr = os.ReadFile(file)
		err = errors.Join(err, readErr)
	}
	return pages, errors.Join(err, os.RemoveAll(dir))
})
