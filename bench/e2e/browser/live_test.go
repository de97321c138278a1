package browser

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

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

// TestLivePage opens the live page of a run in a real browser, until the end of the run and of the command. The
// picture is that of docs/live.md.
func TestLivePage(t *testing.T) {
	programs.Chromium(t)
	address := programs.Address(t)
	run := programs.Start(t, exec.Command(programs.Watchlab(t), "dash", "--ignore-host", "--rounds", "4", "--metrics-addr", address,
		"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring", "--pipeline", "informer",
		"--storm", "recorded-gang", "--pace", "max,4000"), 0, 130)
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

	b.becomes("bars with intervals", `document.querySelector("#answer svg.chart .row path.bar") !== null`)
	if rows := eval[[]string](b, `[...document.querySelectorAll("#answer .more tbody th")].map(e => e.textContent)`); len(rows) != 2 {
		t.Errorf("the table has %v", rows)
	}

	b.becomes("the end", `/The run has finished/.test(`+text("state")+`) && /100 %/.test(`+text("progress")+`)`)
	if got := eval[string](b, text("answer")); !strings.Contains(got, "ring handles") || strings.Contains(got, "too few rounds") || !strings.Contains(got, "Report of this run") {
		t.Errorf("who won: %q", got)
	}
	const unlabelled = `[...document.querySelectorAll("svg.chart")].filter(c => !c.querySelector(".axis-label") || c.querySelectorAll(".tick").length < 2).map(c => c.querySelector("title").textContent)`
	if names := eval[[]string](b, unlabelled); len(names) > 0 {
		t.Errorf("charts without labels or ticks: %v", names)
	}
	var shot []byte
	b.do(chromedp.EmulateViewport(1200, 740), chromedp.FullScreenshot(&shot, 100))
	b.save("live.png", paletted(t, shot))
	b.sound()

	report := openURL(t, eval[string](b, `document.querySelector("#answer a").href`))
	report.becomes("the report", `document.querySelector("main svg.chart") !== null && /ring/.test(document.body.textContent)`)
	report.sound()
	run.Stop(t)
	b.becomes("it stays", `/The run has finished/.test(`+text("state")+`) && document.querySelector("svg.chart") !== null`)
}
