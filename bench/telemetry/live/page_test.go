package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func shown(t *testing.T, r *Registry) message {
	t.Helper()
	m := must(r.message())(t)
	return m
}

// TestMessage: the page before the first round, in the middle of a run, and after it.
func TestMessage(t *testing.T) {
	r := New("test", "")
	expect := func(when, part string, want ...string) {
		t.Helper()
		got := shown(t, r).Parts[part]
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q is not in %s: %s", when, w, part, got)
			}
		}
	}
	for part, text := range map[string]string{"state": "Waiting for the first round.", "progress": "waiting for the first round", "answer": "Waiting"} {
		expect("waiting", part, text)
	}
	for part, html := range shown(t, r).Parts {
		if strings.Contains(html, "0 %") {
			t.Errorf("waiting: %s has 0 %%: %s", part, html)
		}
	}

	base := labels
	base.Variant = "clientgo-realfifo"
	r.Set(base)
	r.Set(labels).Phase(Measure)
	r.Progress(3, 0.25)
	r.Show(func(s *State) {
		s.Begun, s.Round, s.Rounds, s.Left, s.Answer = true, 2, 10, 83*time.Second, "<b>ring</b> leads"
	})
	expect("middle", "state", "Round 2 of 10.")
	expect("middle", "playing", "Playing ring at 1000 events/s.")
	expect("middle", "progress", "25 %, 1m23s left", `value="0.25"`)
	expect("middle", "answer", "<b>ring</b> leads")
	if shown(t, r).Over {
		t.Error("the run is over in its middle")
	}

	r.Show(func(s *State) {
		s.Over, s.Share = true, 1
		s.Report = func(w io.Writer) error { return errors.New("gone") }
	})
	expect("end", "state", "The run has finished.")
	expect("end", "answer", "<b>ring</b> leads", `href="report.html"`)
	expect("end", "progress", "100 %</output>")
	if m := shown(t, r); !m.Over || m.Parts["playing"] != "" {
		t.Errorf("at the end: over %v, playing %q", m.Over, m.Parts["playing"])
	}
	r.Show(func(s *State) { s.Interrupted = true })
	expect("interrupted", "state", "The run was interrupted.")
}

// TestUpdates: each of four viewers gets updates until it disconnects; a fifth is refused. The end
// of the server is their last update.
func TestUpdates(t *testing.T) {
	r, closing := New("test", ""), make(chan struct{})
	s := httptest.NewServer(pageHandler(r, time.Millisecond, closing))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	var streams []*bufio.Scanner
	for range maxViewers {
		res, err := http.Get(s.URL + "/updates")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
			t.Fatalf("content type %q", got)
		}
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		streams = append(streams, lines)
		for n := 0; n < 3 && lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var m message
				if err := json.Unmarshal([]byte(data), &m); err != nil || m.Parts["run"] != "test" {
					t.Fatalf("%q: %v", data, err)
				}
				n++
			}
		}
	}
	if !r.Watched() {
		t.Error("nobody watches")
	}
	refused, err := http.Get(s.URL + "/updates")
	if err != nil {
		t.Fatal(err)
	}
	if _ = refused.Body.Close(); refused.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the fifth viewer gets %d", refused.StatusCode)
	}
	r.Show(func(s *State) { s.Over = true })
	close(closing)
	for _, lines := range streams {
		last := ""
		for lines.Scan() {
			last += lines.Text()
		}
		if !strings.Contains(last[strings.LastIndex(last, "data: "):], `"over":true`) {
			t.Errorf("the last update is %q", last)
		}
	}
}

// TestReportPage: the report is there after the run.
func TestReportPage(t *testing.T) {
	r := New("test", "")
	h := pageHandler(r, time.Second, nil)
	for _, want := range []int{http.StatusNotFound, http.StatusOK} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/report.html", nil))
		if w.Code != want || want == http.StatusOK && (w.Body.String() != "who won" || w.Header().Get("Content-Security-Policy") != reportPolicy) {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		r.Show(func(s *State) {
			s.Report = func(w io.Writer) error {
				_, err := fmt.Fprint(w, "who won")
				return err
			}
		})
	}
}

// TestPage: the page refers to no other server, and has all ids of its parts and of its script.
func TestPage(t *testing.T) {
	r := New("test", "")
	h := pageHandler(r, time.Second, nil)
	text := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil))
		if w.Code != http.StatusOK || w.Header().Get("Content-Security-Policy") != contentPolicy {
			t.Fatalf("%s: %d %v", path, w.Code, w.Header())
		}
		return w.Body.String()
	}
	html, script := text("/"), text("/page.js")
	text("/icon.svg")
	for name, text := range map[string]string{"html": html, "script": script, "style": text("/page.css") + text("/chart.css"), "parts": partsHTML} {
		for _, bad := range regexp.MustCompile(`(?i)https?://[^"'\s)]+|@import|eval\(|innerHTML|style="`).FindAllString(text, -1) {
			t.Errorf("%s has %q", name, bad)
		}
	}
	ids := slices.Collect(maps.Keys(shown(t, r).Parts))
	for _, m := range regexp.MustCompile(`\$\("([a-z]+)"\)`).FindAllStringSubmatch(script, -1) {
		ids = append(ids, m[1])
	}
	for _, id := range ids {
		if !strings.Contains(html, `id="`+id+`"`) {
			t.Errorf("the page has no id %q", id)
		}
	}
}
