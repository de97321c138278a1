package program

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// kept are the metrics that a scrape keeps, by name or prefix.
var kept = []string{"workqueue_", "controller_runtime_", "process_start_time_seconds", "go_goroutines"}

const (
	scrapeLimit   = 32 << 20 // bytes of one answer
	scrapeTimeout = 5 * time.Second
)

// Scraper reads the metrics of a program, in Prometheus' text format.
type Scraper struct {
	urls   []string // that are tried, until one succeeds
	token  string
	client *http.Client
}

// NewScraper returns a scraper of a URL; of one without a scheme, as in //127.0.0.1:8080/metrics, over HTTP or HTTPS as the
// program serves it. Over HTTPS it sends the token, and it does not verify the certificate: a program under test signs
// its own.
func NewScraper(address, token string) (*Scraper, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("metrics: %q is no URL, as in http://127.0.0.1:8080/metrics", address)
	}
	s := &Scraper{urls: []string{address}, token: token, client: &http.Client{Timeout: scrapeTimeout, Transport: &http.Transport{
		MaxIdleConnsPerHost: 1, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}}
	if u.Scheme == "" {
		s.urls = []string{"http:" + address, "https:" + address}
	}
	return s, nil
}

// Close closes the connection.
func (s *Scraper) Close() { s.client.CloseIdleConnections() }

// Scrape returns the values by metric, each the sum of its series. Histograms and summaries have a
// _sum and a _count.
func (s *Scraper) Scrape(ctx context.Context) (map[string]float64, error) {
	var failed []string
	for _, u := range s.urls {
		values, err := s.scrape(ctx, u)
		if err == nil {
			s.urls = []string{u}
			return values, nil
		}
		failed = append(failed, err.Error())
	}
	return nil, errors.New(strings.Join(failed, "; "))
}

func (s *Scraper) scrape(ctx context.Context, address string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	req.Header.Set("Accept", "text/plain;version="+expfmt.TextVersion)
	if req.URL.Scheme == "https" && s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s: %s", address, res.Status)
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, scrapeLimit+1))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	if len(body) > scrapeLimit {
		return nil, fmt.Errorf("metrics: %s: more than %d MiB", address, scrapeLimit>>20)
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
			// It has one of them. The values of the others are 0.
			if m.Histogram != nil || m.Summary != nil {
				values[name+"_sum"] += m.GetHistogram().GetSampleSum() + m.GetSummary().GetSampleSum()
				values[name+"_count"] += float64(m.GetHistogram().GetSampleCount() + m.GetSummary().GetSampleCount())
			} else {
				values[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			}
		}
	}
	return values, nil
}
