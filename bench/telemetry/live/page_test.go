package live

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/bench/telemetry/metric"
)

// followed plays a storm of ten seconds, 100 events a second, in which a watch breaks at the fifth.
func followed(s *Set) (stop func()) {
	s.Depth(func() int { return 7 })
	s.Update(func(f *Figures) { f.Phase = metric.Measure })
	stop = s.Clock()
	for i := range 40 {
		time.Sleep(250 * time.Millisecond)
		s.Update(func(f *Figures) {
			f.Count(Released, Modified, 25)
			f.Count(Handled, Modified, 25)
			f.Observe(IntendedHandled, 2e6)
			if i == 19 {
				f.Relists++
				f.Faults["disconnect"]++
			}
		})
		s.Look()
	}
	return stop
}

// TestTrail: a trail has the points of one play, from its begin to its end, and keeps its bounds.
func TestTrail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSet(labels)
		s.Update(func(f *Figures) { f.Count(Handled, Modified, 1000) }) // of an earlier play
		stop := followed(s)
		s.Update(func(f *Figures) { f.Count(Handled, Modified, 25) })
		time.Sleep(100 * time.Millisecond)
		stop()
		s.Rest(0)
		s.Update(func(f *Figures) { f.Count(Handled, Modified, 5000) }) // what the check finds
		s.Look()
		points := s.Trail()
		last := points[len(points)-1]
		if len(points) != 41 || points[0].At != 250*time.Millisecond || points[0].Handled != 25 {
			t.Errorf("%d points, the first %+v", len(points), points[0])
		}
		if last.At != 10100*time.Millisecond || last.Handled != 1025 || last.Released != 1000 || last.Depth != 0 || last.Relists != 1 || last.Faults != 1 {
			t.Errorf("the last is %+v", last)
		}
		if p := points[3].P99; p < 0.002 || p > 0.0022 {
			t.Errorf("p99 %v", p)
		}
		s.Clock()
		for range 10 * trailPoints {
			time.Sleep(time.Second)
			s.Look()
		}
		points = s.Trail()
		if n := len(points); n >= trailPoints || n < trailPoints/2 || points[n-1].At < 9*trailPoints*time.Second {
			t.Errorf("%d points of a long play until %v", n, points[n-1].At)
		}
	})
}

// shown returns the texts of a page at a moment.
func shown(t *testing.T, v *view) message {
	t.Helper()
	m, err := v.message(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func rankings(group string) []Ranking {
	return []Ranking{{Group: "another", Variants: []Standing{{Name: "channel"}}}, {
		Group: group, Of: "events/s", Variants: []Standing{
			{Name: "ring", Rounds: 5, Figure: "650k", Ratio: "1.62×", Verdict: "valid"}, {Name: "cond", Rounds: 2, Figure: "390k", Ratio: "0.98×?", Verdict: "noisy"},
		},
		Figures: []Figure{{Title: "Ratio to clientgo-realfifo", SVG: "<svg></svg>"}}, Marks: []Mark{{Text: "too few rounds"}},
	}}
}

// TestView: the page before the first round, in the middle of a run, and after it.
func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("test", "")
		v := &view{registry: r}
		expect := func(when string, m message, part string, want ...string) {
			t.Helper()
			for _, w := range want {
				if !strings.Contains(m.Parts[part], w) {
					t.Errorf("%s: %q is not in %s: %s", when, w, part, m.Parts[part])
				}
			}
		}
		m := shown(t, v)
		for part, text := range map[string]string{"state": "Waiting for the first round.", "progress": "waiting for the first round", "ranking": "Waiting", "storm": "Waiting"} {
			expect("waiting", m, part, text)
		}
		for part, html := range m.Parts {
			if strings.Contains(html, "0 %") {
				t.Errorf("waiting: %s has 0 %%: %s", part, html)
			}
		}

		ring, base, again, unpaced := labels, labels, labels, labels
		base.Variant, again.Variant, unpaced.Rate = "clientgo-realfifo", "clientgo-realfifo-again", "max"
		followed(r.Set(base))
		r.Set(base).Update(func(f *Figures) { f.Phase = metric.Idle })
		followed(r.Set(again))
		r.Set(again).Update(func(f *Figures) { f.Phase = metric.Idle })
		followed(r.Set(ring))
		r.Set(unpaced)
		r.Progress(3, 0.25)
		r.Show(func(s *State) {
			s.Begun, s.Round, s.Rounds, s.Left, s.Rankings = true, 2, 10, 83*time.Second, rankings(labels.Group())
		})
		m = shown(t, v)
		expect("middle", m, "state", "Round 2 of 10.")
		expect("middle", m, "playing", "Playing ring at 1000 events/s.")
		expect("middle", m, "progress", "25 %, 1m23s left", `value="0.25"`)
		expect("middle", m, "ranking", "Ratio to clientgo-realfifo", "<svg></svg>", "too few rounds")
		expect("middle", m, "table", ">Ratio of events/s<", ">ring<", `class="noisy"`, "0.98×?")
		expect("middle", m, "legend", "at 1000 events/s", "the bold line, ring,", "clientgo-realfifo")
		for chart, label := range map[string]string{"storm": "events/s", "depth": "events queued", "latency": "p99"} {
			expect("middle", m, chart, ">"+label+"</text>", ">seconds of the round</text>", `data-series="clientgo-realfifo"`, "relist by 5.0 s", "fault by 5.0 s")
		}
		if strings.Contains(m.Parts["table"], "channel") {
			t.Error("the table has another comparison")
		}
		if bold := regexp.MustCompile(`class="series [^"]*bold[^"]*" data-series="([a-z-]+)"`).FindAllStringSubmatch(m.Parts["depth"], -1); len(bold) != 1 || bold[0][1] != "ring" {
			t.Errorf("bold is %v", bold)
		}
		if m.Over || strings.Contains(m.Parts["storm"], "again") {
			t.Errorf("over %v, storm %s", m.Over, m.Parts["storm"])
		}

		// Another comparison is shown when this one is not played for a while, and only unless one is chosen.
		other := labels
		other.Storm = "rollout"
		r.Set(ring).Update(func(f *Figures) { f.Phase = metric.Idle })
		r.Set(other).Update(func(f *Figures) { f.Phase = metric.Measure })
		chosen := &view{registry: r, chosen: labels.Group()}
		for wait, held := range map[time.Duration]bool{holdGroup / 2: true, 2 * holdGroup: false} {
			again := *v
			m, err := again.message(time.Now().Add(wait))
			if err != nil || strings.Contains(m.Parts["table"], "ring") != held {
				t.Errorf("after %v: %v %s", wait, err, m.Parts["table"])
			}
		}
		expect("chosen", shown(t, chosen), "groups", "<option selected>"+labels.Group())
		expect("chosen", shown(t, chosen), "table", "ring")

		r.Show(func(s *State) {
			s.Over, s.Share, s.Sentences = true, 1, []string{"A queue on `ring` handles 1.62× & more."}
			s.Report = func(w io.Writer) error { return errors.New("gone") }
		})
		m = shown(t, chosen)
		expect("end", m, "state", "The run has finished.")
		expect("end", m, "answer", "A queue on <code>ring</code> handles 1.62× &amp; more.", `href="report.html"`)
		expect("end", m, "progress", "100 %</output>")
		if !m.Over || m.Parts["playing"] != "" {
			t.Errorf("at the end: over %v, playing %q", m.Over, m.Parts["playing"])
		}
		r.Show(func(s *State) { s.Interrupted = true })
		expect("interrupted", shown(t, v), "state", "The run was interrupted.")
	})
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

// TestPage: the page refers to no other server, and its script and updates use only existing ids.
func TestPage(t *testing.T) {
	h := pageHandler(New("test", ""), time.Second, nil)
	get := func(path string) string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || w.Header().Get("Content-Security-Policy") != contentPolicy {
			t.Fatalf("%s: %d %v", path, w.Code, w.Header())
		}
		return w.Body.String()
	}
	html, script, style := get("/"), get("/page.js"), get("/page.css")+get("/chart.css")
	get("/icon.svg")
	for name, text := range map[string]string{"html": html, "script": script, "style": style, "parts": partsHTML} {
		for _, bad := range regexp.MustCompile(`(?i)https?://[^"'\s)]+|@import|eval\(|innerHTML|style="`).FindAllString(text, -1) {
			t.Errorf("%s has %q", name, bad)
		}
	}
	var ids []string
	for _, m := range regexp.MustCompile(`\$\("([a-z]+)"\)`).FindAllStringSubmatch(script, -1) {
		ids = append(ids, m[1])
	}
	for id := range shown(t, &view{registry: New("test", "")}).Parts {
		ids = append(ids, id)
	}
	if !slices.Contains(ids, "ranking") {
		t.Errorf("ids %v", ids)
	}
	for _, id := range ids {
		if !strings.Contains(html, `id="`+id+`"`) {
			t.Errorf("the page has no id %q", id)
		}
	}
}
