package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"watchlab/bench/telemetry/live"
)

// TestServePage: a storm that is held before its first watch releases what the page steps and seeks to, and
// goes on to its end.
func TestServePage(t *testing.T) {
	out, end := serving(t, "--storm", tiny, "--tls=false", "--page", "--start", "0", "--speed", "0.000001", "--faults", "disconnect:at=1h")
	base, _, ok := strings.Cut(pageLink.FindString(out.String()), "/?")
	if !ok {
		t.Fatalf("the page has no address:\n%s", out)
	}
	token := printedToken(t, out.String())
	defer http.DefaultClient.CloseIdleConnections()
	request := func(method, path, body string) (s live.StormStatus) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v", resp.Status, err)
		}
		return s
	}
	post := func(path, body string) live.StormStatus {
		t.Helper()
		return request(http.MethodPost, path, body)
	}
	if s := post("/pause", ""); s.State != "paused" || s.Released != 0 || s.Events == 0 || s.Length == 0 || s.Name != tiny || !s.Control {
		t.Errorf("paused: %+v", s)
	}
	if s := post("/step", `{"events": 1}`); s.State != "paused" || s.Released != 1 {
		t.Errorf("a step: %+v", s)
	}
	first := request(http.MethodGet, "/status", "")
	if len(first.Figures) == 0 || first.At == 0 && first.Released == 0 {
		t.Errorf("%+v", first)
	}
	if s := post("/speed", `{"speed": 1000}`); s.Speed != 1000 || s.State != "paused" {
		t.Errorf("a speed: %+v", s)
	}
	if s := post("/seek", `{"at": 100000}`); s.State != "over" || s.Released != s.Events || s.At != s.Length {
		t.Errorf("the end: %+v", s)
	}
	post("/resume", "")
	out.await(t, "the storm is over")
	if code, errs := end(); code != exitOK || errs != "" {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}
