package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long something may take that takes a second or a few.
const patience = 60 * time.Second

// scrape is how often the Prometheus of a test looks.
const scrape = time.Second

// program finds a program that a test needs, or skips the test, loudly.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("#### SKIPPED: no %s here ####", name)
	}
	return path
}

// prometheus is a running server.
type prometheus struct{ url string }

// startPrometheus starts one on the loopback that scrapes targets and evaluates
// our rules, every second instead of every 15. It ends with the test.
func startPrometheus(t *testing.T, form form, targets ...string) *prometheus {
	t.Helper()
	path := program(t, "prometheus")
	dir := t.TempDir()

	rules, err := os.ReadFile(filepath.Join("..", "rules", "watchlab.rules.yaml"))
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
		t.Skipf("%s keeps one form of a histogram, not both", path)
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

	address := freeAddress(t)
	var log lockedBuffer
	cmd := exec.Command(path,
		"--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address,
		"--web.enable-remote-write-receiver",
		"--enable-feature="+features,
		"--log.level=warn")
	cmd.Stdout, cmd.Stderr = &log, &log
	start(t, cmd, &log)
	p := &prometheus{url: "http://" + address}
	eventually(t, "Prometheus is ready", func() error {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return fmt.Errorf("%w\n%s", err, log.String())
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", resp.Status)
		}
		return nil
	})
	return p
}

// hasSetting reports whether native histograms are a setting of what is scraped, as
// since Prometheus 3.8, and not a feature of the whole server. One that was built
// without its release's build flags doesn't know its version, and is taken to be
// new.
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

// start starts a program that ends with the test, at the latest: the kernel sees
// to it where the test is killed.
func start(t *testing.T, cmd *exec.Cmd, log fmt.Stringer) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		done := make(chan struct{})
		go func() { defer close(done); _ = cmd.Wait() }()
		select {
		case <-done:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			<-done
			t.Errorf("%s didn't end:\n%s", cmd.Path, log)
		}
	})
}

// series is one of an answer, with its samples.
type series struct {
	Metric map[string]string `json:"metric"`

	Value      [2]any   `json:"value"`
	Values     [][2]any `json:"values"`
	Histogram  [2]any   `json:"histogram"`
	Histograms [][2]any `json:"histograms"`
}

// last returns the last number that is one, and false where there is none.
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

// drawable reports whether there is anything to draw.
func (s series) drawable() bool {
	if _, ok := s.last(); ok {
		return true
	}
	return len(s.Histograms) > 0 || s.Histogram[1] != nil
}

// get asks the API, and decodes what is under data.
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

// window is the time range that a dashboard looks at.
type window struct{ from, to time.Time }

func at(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// instant evaluates an expression at the end of the window, over the whole of it
// where it says so, series evaluates it every second.
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

// labelSets are those of the series that match.
func (p *prometheus) labelSets(ctx context.Context, match string, w window) ([]map[string]string, error) {
	var sets []map[string]string
	err := p.get(ctx, "/api/v1/series", url.Values{"match[]": {match}, "start": {at(w.from)}, "end": {at(w.to)}}, &sets)
	return sets, err
}

// eventually tries until there is no error any more.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s: %v", patience, what, err)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v", what, t.Context().Err())
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer takes what a program prints while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
