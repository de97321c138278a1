package browser

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"watchlab/bench/e2e/programs"
)

// TestStormPage holds a storm by its page in a real browser: pause, step, seek, speed, resume.
func TestStormPage(t *testing.T) {
	programs.Chromium(t)
	server := programs.Address(t)
	_, port, err := net.SplitHostPort(server)
	if err != nil {
		t.Fatal(err)
	}
	run := programs.Start(t, exec.Command(programs.Watchlab(t), "serve", "--storm", "nodeloss", "--nodes", "5", "--tls=false", "--port", port,
		"--page", "--faults", "disconnect:at=1s"), 0, 130)
	var link string
	run.Ready(t, func() error {
		if link = regexp.MustCompile(`http://\S+/\?token=\w+`).FindString(run.Output.String()); link == "" {
			return errors.New("no link")
		}
		return nil
	})
	b := openURL(t, link)
	if at := eval[string](b, `location.href + document.cookie`); strings.Contains(at, "token") || strings.Contains(at, "watchlab") {
		t.Errorf("the page has a secret in its address, or its script sees the cookie: %s", at)
	}
	b.becomes("waiting", `/^Waiting/.test(document.querySelector("#state").textContent) && !document.querySelector("#transport").hidden`)

	// The storm is held before its first watch.
	b.do(chromedp.Focus("#hold"), chromedp.KeyEvent(kb.Enter))
	b.becomes("paused", `document.querySelector("#hold").textContent === "Resume" && last.state === "paused" && last.released === 0`)
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	req, err := http.NewRequestWithContext(watching, http.MethodGet, "http://"+server+"/api/v1/nodes?watch=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	go func() { _, _ = io.Copy(io.Discard, resp.Body) }() // until the fault, or the end of the test
	b.becomes("the fault", `last.faults.length === 1 && document.querySelector("#faults").textContent.startsWith("Faults: disconnect at")`)
	if n := eval[int](b, `last.released`); n != 0 {
		t.Errorf("%d events were released in a pause", n)
	}
	b.do(chromedp.Click(`[data-step="10"]`, chromedp.ByQuery))
	b.becomes("ten events", `last.released === 10`)
	b.do(chromedp.SendKeys("#at", "20"+kb.Enter, chromedp.ByQuery))
	b.becomes("second 20", `last.at === 20 && last.released > 10`)
	b.do(chromedp.Evaluate(`document.querySelector("#at").value = ""`, nil), chromedp.SendKeys("#at", "5"+kb.Enter, chromedp.ByQuery))
	b.becomes("a refusal", `document.querySelector("#error").textContent !== ""`)
	b.do(chromedp.SetValue("#speed", "100", chromedp.ByQuery), chromedp.Evaluate(`document.querySelector("#speed").dispatchEvent(new Event("change"))`, nil))
	b.becomes("the speed", `last.speed === 100 && last.state === "paused"`)
	b.do(chromedp.Click("#hold", chromedp.ByQuery))
	b.becomes("the end", `last.state === "over" && last.released === last.events`)
	b.mu.Lock()
	b.problems = slices.DeleteFunc(b.problems, func(p string) bool { return strings.Contains(p, "409 (Conflict)") }) // the refusal
	b.mu.Unlock()
	b.sound()
	stop()
	run.Stop(t)
	b.becomes("the end is shown", `/does not answer/.test(document.querySelector("#state").textContent)`)
}
