package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// atOnce are the flags of a very short run.
var atOnce = []string{"--ignore-host", "--family", "queue", "--impl", "clientgo-fifo,ring", "--storm", "testdata/input/tiny.jsonl", "--events", "200", "--rounds", "1"}

var shown = regexp.MustCompile(`(http://\S+) shows the run`)

// TestDash: after the run, the page and the metrics stay with their figures until an
// interrupt. The exit code is 0.
func TestDash(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := newOutput()
	var stdout bytes.Buffer
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, append(append([]string{"dash"}, atOnce...), "--metrics-addr", "127.0.0.1:0"), &stdout, stderr)
	}()
	stderr.await(t, "stays until Ctrl-C")
	m := shown.FindStringSubmatch(stderr.String())
	if m == nil {
		t.Fatalf("no address in %q", stderr)
	}
	for path, want := range map[string]string{
		"/":        `<section id="answer"`,
		"/metrics": "\nwatchlab_run_progress_ratio{",
		"/healthz": "ok",
	} {
		res, err := http.Get(m[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, %v, without %q", path, res.StatusCode, err, want)
		}
		if path == "/metrics" && !regexp.MustCompile(`watchlab_events_per_second\{.*variant="ring"[^}]*\} [1-9]`).Match(body) {
			t.Error("there is no figure of ring")
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if c := <-code; c != exitOK {
		t.Errorf("exit code %d: %s", c, stderr)
	}
	if !strings.Contains(stdout.String(), "ring") {
		t.Errorf("no table: %s", stdout.String())
	}
}
