package dashboards

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"watchlab/bench/e2e/programs"
)

// scrape is the scrape interval of the tests' Prometheus.
const scrape = time.Second

// prometheus is a running server.
type prometheus struct{ url string }

// startPrometheus starts a Prometheus on the loopback interface and stops it when the test ends. It
// scrapes targets and evaluates our rules every second instead of every 15 s.
func startPrometheus(t *testing.T, form form, targets ...string) *prometheus {
	t.Helper()
	path := programs.Installed(t, "prometheus")
	dir := t.TempDir()

	rules, err := os.ReadFile(filepath.Join(dashboards, "rules", "watchlab.rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	rules = bytes.ReplaceAll(rules, []byte("interval: 15s"), []byte("interval: 1s"))
	write(t, filepath.Join(dir, "watchlab.rules.yaml"), rules)
	quoted, err := json.Marshal(targets)
	if err != nil {
		t.Fatal(err)
	}
	features, setting := "exemplar-storage", ""
	switch {
	case hasSetting(t, path):
		setting = fmt.Sprintf(", scrape_native_histograms: %v, always_scrape_classic_histograms: %v", form.native, form.classic)
	case form.native && form.classic:
		t.Skipf("%s stores one form of a histogram, not both", path)
	case form.native:
		features += ",native-histograms"
	}
	write(t, filepath.Join(dir, "prometheus.yaml"), fmt.Appendf(nil, `
global: {scrape_interval: %v, evaluation_interval: 1s%s}
rule_files: [watchlab.rules.yaml]
scrape_configs:
  - job_name: watchlab
    static_configs: [{targets: %s}]
`, scrape, setting, quoted))

	address := programs.Address(t)
	process := programs.Start(t, exec.Command(path,
		"--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address,
		"--enable-feature="+features,
		"--log.level=warn"))
	p := &prometheus{url: "http://" + address}
	process.Ready(t, func() error { return ok(p.url + "/-/ready") })
	return p
}

// hasSetting reports whether native histograms are a scrape setting, as in Prometheus 3.8 and
// newer, and not a feature flag of the server. It returns true for a binary without a version.
func hasSetting(t *testing.T, path string) bool {
	t.Helper()
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, out)
	}
	m := regexp.MustCompile(`version (\d+)\.(\d+)`).FindSubmatch(out)
	if m == nil {
		return true
	}
	major, _ := strconv.Atoi(string(m[1]))
	minor, _ := strconv.Atoi(string(m[2]))
	return major > 3 || major == 3 && minor >= 8
}

// series is a series of an answer with its samples.
type series struct {
	Metric map[string]string `json:"metric"`
	// A sample is a pair of time and value.
	Value      [2]any   `json:"value"`
	Values     [][2]any `json:"values"`
	Histogram  [2]any   `json:"histogram"`
	Histograms [][2]any `json:"histograms"`
}

// last returns the last sample that is not NaN, or false if there is none.
func (s series) last() (float64, bool) {
	values := s.Values
	if s.Value[1] != nil {
		values = append(values, s.Value)
	}
	for i := len(values) - 1; i >= 0; i-- {
		text, _ := values[i][1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err == nil && v == v {
			return v, true
		}
	}
	return 0, false
}

// drawable reports whether a panel has something to draw.
func (s series) drawable() bool {
	if _, ok := s.last(); ok {
		return true
	}
	return len(s.Histograms) > 0 || s.Histogram[1] != nil
}

// get calls the API and decodes the field data of the answer.
func (p *prometheus) get(ctx context.Context, path string, values url.Values, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, strings.NewReader(values.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if !strings.Contains(path, "query") && !strings.HasSuffix(path, "/series") {
		req, err = http.NewRequestWithContext(ctx, http.MethodGet, p.url+path+"?"+values.Encode(), nil)
		if err != nil {
			return err
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Warnings      []string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %s: %w", path, resp.Status, err)
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return fmt.Errorf("%s: %s %v", path, answer.Error, answer.Warnings)
	}
	return json.Unmarshal(answer.Data, into)
}

// window is the time range of a dashboard.
type window struct{ from, to time.Time }

func at(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// instant evaluates an expression at the end of the window. Method series evaluates it
// at every second of the window.
func (p *prometheus) instant(ctx context.Context, expr string, w window) ([]series, error) {
	var data struct{ Result []series }
	err := p.get(ctx, "/api/v1/query", url.Values{"query": {expr}, "time": {at(w.to)}}, &data)
	return data.Result, err
}

func (p *prometheus) series(ctx context.Context, expr string, w window) ([]series, error) {
	var data struct{ Result []series }
	err := p.get(ctx, "/api/v1/query_range", url.Values{"query": {expr}, "start": {at(w.from)}, "end": {at(w.to)}, "step": {"1"}}, &data)
	return data.Result, err
}

// labelSets returns the label sets of the matching series.
func (p *prometheus) labelSets(ctx context.Context, match string, w window) ([]map[string]string, error) {
	var sets []map[string]string
	err := p.get(ctx, "/api/v1/series", url.Values{"match[]": {match}, "start": {at(w.from)}, "end": {at(w.to)}}, &sets)
	return sets, err
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// ok returns nil when a URL answers 200 OK.
func ok(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}
