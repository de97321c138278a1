package browser

import (
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"watchlab/bench/e2e/programs"
)

// becomes waits until a JavaScript expression is true. A page that is being reloaded has no values.
func (b *tab) becomes(what, expression string) {
	b.t.Helper()
	programs.Eventually(b.t, what, func() (err error) {
		is := false
		if err = chromedp.Run(b.ctx, chromedp.Evaluate(expression, &is)); err == nil && !is {
			err = fmt.Errorf("not yet: %s", expression)
		}
		return err
	})
}

// TestLivePage opens the live page of a run in a real browser, until the end of the run and of the command.
func TestLivePage(t *testing.T) {
	programs.Chromium(t)
	address := programs.Address(t)
	run := programs.Start(t, exec.Command(programs.Watchlab(t), "dash", "--ignore-host", "--rounds", "4", "--metrics-addr", address,
		"--family", "deltafifo", "--delivery", "in-order", "--impl", "clientgo-realfifo-batch,ring", "--pipeline", "informer",
		"--storm", "recorded-gang", "--pace", "max,4000"), 0, 130)
	// until returns an error unless the page is there, and over if so wanted.
	until := func(over bool) func() error {
		return func() error {
			resp, err := http.Get("http://" + address + "/")
			if err != nil {
				return err
			}
			if over && resp.Header.Get("Refresh") != "" {
				err = errors.New("the page is still reloaded")
			}
			return errors.Join(err, resp.Body.Close())
		}
	}
	run.Ready(t, until(false))
	b := openURL(t, "http://"+address+"/")
	b.becomes("bars with intervals", `document.querySelector("#answer svg.chart .row path.bar") !== null`)
	programs.Eventually(t, "the end", until(true))
	b.do(chromedp.Reload())
	b.becomes("who won", `/ring handles/.test(document.querySelector("#answer").textContent)`)
	b.sound()
	run.Stop(t)
	b.becomes("it stays", `document.querySelector("#answer svg.chart") !== null`)
}
