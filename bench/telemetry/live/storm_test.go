package live

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"
)

// player is a transport that notes its calls.
type player struct {
	calls []string
	at    time.Duration
}

func (p *player) Pause()  { p.calls = append(p.calls, "pause") }
func (p *player) Resume() { p.calls = append(p.calls, "resume") }
func (p *player) Step(n int) int {
	p.calls = append(p.calls, "step")
	return n
}

func (p *player) Seek(t time.Duration) error {
	if t < p.at {
		return errors.New("earlier")
	}
	p.at, p.calls = t, append(p.calls, "seek "+t.String())
	return nil
}

func (p *player) SetSpeed(v float64) error {
	p.calls = append(p.calls, "speed")
	return nil
}

func storming(p *player) StormOptions {
	return StormOptions{
		Status: func() StormStatus {
			return StormStatus{Name: "gang", State: "playing", At: p.at.Seconds(), Control: true}
		},
		Transport: func() Transport { return p },
	}
}

// TestStormControl: each request changes the storm, and answers with its status after that.
func TestStormControl(t *testing.T) {
	p := &player{}
	h := stormHandler(storming(p))
	for path, body := range map[string]string{"/pause": "{}", "/resume": "", "/step": `{"events": 10}`, "/seek": `{"at": 2.5}`, "/speed": `{"speed": 0.5}`} {
		p.calls = nil
		w := httptest.NewRecorder()
		req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:1234"+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json; charset=utf-8")
		req.Header.Set("Origin", "http://127.0.0.1:1234")
		h.ServeHTTP(w, req)
		var s StormStatus
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != http.StatusOK || s.Name != "gang" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if len(p.calls) != 1 || !strings.HasPrefix(p.calls[0], path[1:]) {
			t.Errorf("%s called %v", path, p.calls)
		}
	}
	if p.at != 2500*time.Millisecond {
		t.Errorf("at %v", p.at)
	}
}

// TestStormRefuses: bad values, what a form can send, and commands to a page without controls.
func TestStormRefuses(t *testing.T) {
	post := func(path, body string, change func(*http.Request)) func() *http.Request {
		return func() *http.Request {
			req := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:1234"+path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/json")
			if change != nil {
				change(req)
			}
			return req
		}
	}
	for name, tc := range map[string]struct {
		req  func() *http.Request
		code int
	}{
		"no JSON type":     {post("/pause", "{}", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), http.StatusUnsupportedMediaType},
		"get":              {post("/pause", "", func(r *http.Request) { r.Method = http.MethodGet }), http.StatusNotFound},
		"no step":          {post("/step", "{}", nil), http.StatusBadRequest},
		"a huge step":      {post("/step", `{"events": 2000000}`, nil), http.StatusBadRequest},
		"no speed":         {post("/speed", `{"speed": 0}`, nil), http.StatusBadRequest},
		"a negative time":  {post("/seek", `{"at": -1}`, nil), http.StatusBadRequest},
		"an earlier time":  {post("/seek", `{"at": 1}`, nil), http.StatusConflict},
		"an unknown field": {post("/step", `{"event": 1}`, nil), http.StatusBadRequest},
		"a long body":      {post("/step", `{"events": 1`+strings.Repeat(" ", maxBody)+"}", nil), http.StatusBadRequest},
		"no controls":      {post("/pause", "{}", nil), http.StatusMethodNotAllowed},
		"an unknown path":  {post("/stop", "{}", nil), http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			p := &player{at: 2 * time.Second}
			w := httptest.NewRecorder()
			opts := storming(p)
			if name == "no controls" {
				opts.Transport = nil
			}
			stormHandler(opts).ServeHTTP(w, tc.req())
			if w.Code != tc.code || len(p.calls) > 0 {
				t.Errorf("%d %s, called %v, want %d", w.Code, w.Body, p.calls, tc.code)
			}
		})
	}
}

// TestStormAddress: the page is on loopback only, and needs the token.
func TestStormAddress(t *testing.T) {
	o := storming(&player{})
	o.Addr = "0.0.0.0:0"
	if _, err := StartStorm(o); !errors.Is(err, ErrAddress) {
		t.Errorf("%v", err)
	}
	o.Addr, o.Token = "127.0.0.1:0", "mine"
	s, err := StartStorm(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.Background()) }()
	if code, _, _ := get(t, strings.Replace(s.URL(), "://", "://any:mine@", 1)+"/status", ""); code != http.StatusOK {
		t.Errorf("with the token: %d", code)
	}
}

// TestStormPage: the page refers to no other server, and its script uses only existing ids and fields.
func TestStormPage(t *testing.T) {
	script := checkPage(t, stormHandler(storming(&player{})), "/storm.js", "/storm.css")
	known, err := json.Marshal(StormStatus{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\bs\.([a-zA-Z]+)\b`).FindAllStringSubmatch(script, -1) {
		if !strings.Contains(string(known), `"`+m[1]+`"`) && m[1] != "error" {
			t.Errorf("the status has no %q", m[1])
		}
	}
}
