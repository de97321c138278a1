package program

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// kept are the metrics that a scrape keeps, by name or prefix.
var kept = []string{
	"workqueue_", "controller_runtime_", "rest_client_", "leader_election_", "process_",
	"go_goroutines", "go_memstats_heap_inuse_bytes",
}

const (
	scrapeLimit   = 32 << 20 // bytes of one answer
	scrapeTimeout = 5 * time.Second
)

// Scraper reads the metrics of a program, in Prometheus' text format.
type Scraper struct {
	url, token string
	client     *http.Client
}

// NewScraper returns a scraper of a URL. The token is for a loopback address, whose certificate is not
// verified; another address gets no token.
func NewScraper(address, token string) (*Scraper, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("metrics: %q is no URL, as in http://127.0.0.1:8080/metrics", address)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 1}
	if ip := net.ParseIP(u.Hostname()); u.Hostname() == "localhost" || ip != nil && ip.IsLoopback() {
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	} else {
		transport.Proxy = http.ProxyFromEnvironment
		token = ""
	}
	redirected := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Scraper{url: u.String(), token: token,
		client: &http.Client{Transport: transport, Timeout: scrapeTimeout, CheckRedirect: redirected}}, nil
}

// Close closes the connection.
func (s *Scraper) Close() { s.client.CloseIdleConnections() }

// Scrape returns the values by series, as in workqueue_depth{name="widget"}. Labels are sorted, and le is
// the last one. Histograms without observations are left out.
func (s *Scraper) Scrape(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	req.Header.Set("Accept", "text/plain;version="+expfmt.TextVersion)
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s: %s", s.url, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, scrapeLimit+1))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if len(body) > scrapeLimit {
		return nil, fmt.Errorf("metrics: %s: more than %d MiB", s.url, scrapeLimit>>20)
	}
	return parse(body)
}

func parse(body []byte) (map[string]float64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	values := map[string]float64{}
	for name, f := range families {
		if !slices.ContainsFunc(kept, func(k string) bool { return strings.HasPrefix(name, k) }) {
			continue
		}
		for _, m := range f.Metric {
			add(values, name, m)
		}
	}
	return values, nil
}

// add adds the series of a metric.
func add(values map[string]float64, name string, m *dto.Metric) {
	labels := make([]string, 0, len(m.Label))
	for _, l := range m.Label {
		labels = append(labels, pair(l.GetName(), l.GetValue()))
	}
	slices.Sort(labels)
	set := func(suffix string, value float64, more ...string) {
		values[series(name+suffix, append(labels[:len(labels):len(labels)], more...))] = value
	}
	switch {
	case m.Counter != nil:
		set("", m.Counter.GetValue())
	case m.Gauge != nil:
		set("", m.Gauge.GetValue())
	case m.Untyped != nil:
		set("", m.Untyped.GetValue())
	case m.Histogram != nil && m.Histogram.GetSampleCount() > 0:
		h := m.Histogram
		for _, b := range h.Bucket {
			if !math.IsInf(b.GetUpperBound(), 1) { // That is the count.
				set("_bucket", float64(b.GetCumulativeCount()), pair("le", number(b.GetUpperBound())))
			}
		}
		set("_sum", h.GetSampleSum())
		set("_count", float64(h.GetSampleCount()))
	case m.Summary != nil && m.Summary.GetSampleCount() > 0:
		set("_sum", m.Summary.GetSampleSum())
		set("_count", float64(m.Summary.GetSampleCount()))
	}
}

func series(name string, labels []string) string {
	if len(labels) == 0 {
		return name
	}
	return name + "{" + strings.Join(labels, ",") + "}"
}

var escapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func pair(name, value string) string { return name + `="` + escapes.Replace(value) + `"` }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
