package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/prompb"
)

// ErrPushURL is returned for an invalid URL of a remote-write receiver.
var ErrPushURL = errors.New("no URL of a remote-write receiver")

// errNative is wrapped by the error of a receiver that refuses native histograms only,
// such as a Prometheus without that feature.
var errNative = errors.New("native histograms were not accepted")

const (
	// seriesPerRequest bounds a remote-write request.
	seriesPerRequest = 2000
	// serverTimeout bounds one request to a server.
	serverTimeout = 5 * time.Second
	// maxAnswer is the number of bytes of a server's answer that are read.
	maxAnswer = 4 << 10
	// writePath is Prometheus's path for remote write.
	writePath = "/api/v1/write"
)

// pushRetry is the policy for attempts after the first.
var pushRetry = remote.BackoffConfig{Min: 200 * time.Millisecond, Max: 2 * time.Second, MaxRetries: 3}

// serverURL parses the URL of an HTTP server. The error wraps bad.
func serverURL(raw, example string, bad error) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", bad, err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("%w: %q (as in %s)", bad, raw, example)
	}
	return u, nil
}

// cappedTransport truncates answers, for clients that read them whole. It has its own
// connections, so that CloseIdleConnections closes no others.
type cappedTransport struct{ *http.Transport }

func newClient() *http.Client {
	return &http.Client{Transport: cappedTransport{&http.Transport{Proxy: http.ProxyFromEnvironment}}, Timeout: serverTimeout}
}

// RoundTrip implements [http.RoundTripper].
func (t cappedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
	}
	return res, err
}

// pusher sends metrics to a Prometheus by remote write 1.0, which Prometheus 2 and all
// other receivers accept; 2.0 needs Prometheus 3.
type pusher struct {
	api    *remote.API
	client *http.Client
	extra  []prompb.Label
}

// newPusher returns a pusher to the receiver at a URL; the default path is
// /api/v1/write. It adds the labels job and instance, as a scrape does. The error wraps
// [ErrPushURL].
func newPusher(receiver, job, instance string) (*pusher, error) {
	u, err := serverURL(receiver, "http://localhost:9090"+writePath, ErrPushURL)
	if err != nil {
		return nil, err
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = writePath
	}
	client := newClient()
	api, err := remote.NewAPI(u.String(), remote.WithAPIPath(""), remote.WithAPIHTTPClient(client), remote.WithAPIBackoff(pushRetry))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPushURL, err)
	}
	return &pusher{api: api, client: client, extra: []prompb.Label{{Name: "job", Value: job}, {Name: "instance", Value: instance}}}, nil
}

// push gathers and sends the present values: first all numbers, then the native
// histograms. An error for the latter alone wraps errNative.
func (p *pusher) push(ctx context.Context, from prometheus.Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return err
	}
	numbers, natives := p.series(families, time.Now().UnixMilli())
	if err := p.send(ctx, numbers); err != nil {
		return err
	}
	if err := p.send(ctx, natives); err != nil {
		return fmt.Errorf("%w: %w", errNative, err)
	}
	return nil
}

func (p *pusher) send(ctx context.Context, all []prompb.TimeSeries) error {
	for part := range slices.Chunk(all, seriesPerRequest) {
		if _, err := p.api.Write(ctx, remote.WriteV1MessageType, &prompb.WriteRequest{Timeseries: part}); err != nil {
			// The API's error does not wrap that of the context.
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}

// series converts families to time series of one sample. A histogram becomes series of
// its buckets, sum and count, and a native histogram if it has one.
func (p *pusher) series(families []*dto.MetricFamily, at int64) (numbers, natives []prompb.TimeSeries) {
	for _, f := range families {
		name := f.GetName()
		for _, m := range f.GetMetric() {
			add := func(name string, v float64, more ...prompb.Label) *prompb.TimeSeries {
				numbers = append(numbers, prompb.TimeSeries{
					Labels: p.labels(name, m, more...), Samples: []prompb.Sample{{Value: v, Timestamp: at}},
				})
				return &numbers[len(numbers)-1]
			}
			switch h, s := m.GetHistogram(), m.GetSummary(); {
			case h != nil:
				for _, b := range h.GetBucket() {
					if !math.IsInf(b.GetUpperBound(), 1) {
						series := add(name+"_bucket", float64(b.GetCumulativeCount()), number("le", b.GetUpperBound()))
						series.Exemplars = exemplars(b.GetExemplar())
					}
				}
				if len(h.GetBucket()) > 0 || h.Schema == nil {
					add(name+"_bucket", float64(h.GetSampleCount()), prompb.Label{Name: "le", Value: "+Inf"})
					add(name+"_sum", h.GetSampleSum())
					add(name+"_count", float64(h.GetSampleCount()))
				}
				if h.Schema != nil && h.GetSampleCountFloat() == 0 {
					natives = append(natives, prompb.TimeSeries{
						Labels: p.labels(name, m), Histograms: []prompb.Histogram{native(h, at)}, Exemplars: exemplars(h.GetExemplars()...),
					})
				}
			case s != nil:
				for _, q := range s.GetQuantile() {
					add(name, q.GetValue(), number("quantile", q.GetQuantile()))
				}
				add(name+"_sum", s.GetSampleSum())
				add(name+"_count", float64(s.GetSampleCount()))
			default:
				// Only one of them is set.
				add(name, m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetUntyped().GetValue())
			}
		}
	}
	return numbers, natives
}

// labels returns the sorted labels of a series. The metric's own labels win over extra
// ones of the same name.
func (p *pusher) labels(name string, m *dto.Metric, more ...prompb.Label) []prompb.Label {
	out := []prompb.Label{{Name: "__name__", Value: name}}
	for _, l := range m.GetLabel() {
		out = append(out, prompb.Label{Name: l.GetName(), Value: l.GetValue()})
	}
	out = append(append(out, p.extra...), more...)
	slices.SortStableFunc(out, func(a, b prompb.Label) int { return strings.Compare(a.Name, b.Name) })
	out = slices.CompactFunc(out, func(a, b prompb.Label) bool { return a.Name == b.Name })
	return slices.DeleteFunc(out, func(l prompb.Label) bool { return l.Value == "" })
}

// number formats a bound as Prometheus does.
func number(name string, v float64) prompb.Label {
	format, precision := byte('g'), -1
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		format, precision = 'f', 1
	}
	return prompb.Label{Name: name, Value: strconv.FormatFloat(v, format, precision, 64)}
}

func native(h *dto.Histogram, at int64) prompb.Histogram {
	spans := func(in []*dto.BucketSpan) (out []prompb.BucketSpan) {
		for _, s := range in {
			out = append(out, prompb.BucketSpan{Offset: s.GetOffset(), Length: s.GetLength()})
		}
		return out
	}
	return prompb.Histogram{
		Count: &prompb.Histogram_CountInt{CountInt: h.GetSampleCount()}, Sum: h.GetSampleSum(),
		Schema: h.GetSchema(), ZeroThreshold: h.GetZeroThreshold(),
		ZeroCount:     &prompb.Histogram_ZeroCountInt{ZeroCountInt: h.GetZeroCount()},
		PositiveSpans: spans(h.GetPositiveSpan()), PositiveDeltas: h.GetPositiveDelta(),
		NegativeSpans: spans(h.GetNegativeSpan()), NegativeDeltas: h.GetNegativeDelta(),
		Timestamp: at,
	}
}

func exemplars(all ...*dto.Exemplar) (out []prompb.Exemplar) {
	for _, x := range all {
		if x == nil {
			continue
		}
		e := prompb.Exemplar{Value: x.GetValue(), Timestamp: x.GetTimestamp().AsTime().UnixMilli()}
		for _, l := range x.GetLabel() {
			e.Labels = append(e.Labels, prompb.Label{Name: l.GetName(), Value: l.GetValue()})
		}
		out = append(out, e)
	}
	return out
}
