package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/prompb"
)

// ErrPushURL is returned for an invalid URL of a remote-write receiver.
var ErrPushURL = errors.New("no URL of a remote-write receiver")

// errNative: the receiver, such as a Prometheus without the feature, refuses native histograms only.
var errNative = errors.New("native histograms were not accepted")

const (
	seriesPerRequest = 2000            // bounds a remote-write request
	serverTimeout    = 5 * time.Second // bounds one request to a server
	maxAnswer        = 4 << 10         // number of bytes of a server's answer that are read
	writePath        = "/api/v1/write" // Prometheus's path for remote write
)

// pushRetry is the policy for attempts after the first.
var pushRetry = remote.BackoffConfig{Min: 200 * time.Millisecond, Max: 2 * time.Second, MaxRetries: 3}

// serverURL parses a URL. The error wraps bad.
func serverURL(raw, example string, bad error) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%w, such as %s", bad, example) // raw may hold a password.
	}
	return u, nil
}

// cappedTransport truncates answers, for clients that read them whole. Its connections are its
// own, so that CloseIdleConnections closes no others.
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

// pusher sends metrics by remote write 1.0, which all receivers accept; 2.0 needs Prometheus 3.
type pusher struct {
	api    *remote.API
	client *http.Client
	extra  labels.Labels
}

// newPusher adds the labels job and instance, as a scrape does. The error wraps [ErrPushURL].
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
	return &pusher{api: api, client: client, extra: labels.FromStrings("job", job, "instance", instance)}, nil
}

// push sends first all numbers, then the native histograms. An error for these wraps errNative.
func (p *pusher) push(ctx context.Context, from prometheus.Gatherer) error {
	families, err := from.Gather()
	if err != nil {
		return err
	}
	numbers, natives, err := p.series(families, time.Now().UnixMilli())
	if err != nil {
		return err
	}
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

// series converts families to time series of one sample, as Prometheus does with a scrape: a
// histogram becomes series of its buckets, sum and count, and maybe a native histogram.
func (p *pusher) series(families []*dto.MetricFamily, at int64) (numbers, natives []prompb.TimeSeries, err error) {
	var scrape bytes.Buffer
	encoder := expfmt.NewEncoder(&scrape, expfmt.NewFormat(expfmt.TypeProtoDelim))
	for _, f := range families {
		if err := encoder.Encode(f); err != nil {
			return nil, nil, err
		}
	}
	parser := textparse.NewProtobufParser(scrape.Bytes(), false, true, false, false, labels.NewSymbolTable())
	for {
		entry, err := parser.Next()
		switch {
		case errors.Is(err, io.EOF):
			return numbers, natives, nil
		case err != nil:
			return nil, nil, err
		case entry != textparse.EntrySeries && entry != textparse.EntryHistogram:
			continue
		}
		var own labels.Labels
		parser.Labels(&own)
		series := prompb.TimeSeries{Labels: prompb.FromLabels(p.with(own), nil)}
		for x := (exemplar.Exemplar{}); parser.Exemplar(&x); {
			series.Exemplars = append(series.Exemplars, prompb.Exemplar{Labels: prompb.FromLabels(x.Labels, nil), Value: x.Value, Timestamp: x.Ts})
		}
		if entry == textparse.EntrySeries {
			_, _, v := parser.Series()
			series.Samples = []prompb.Sample{{Value: v, Timestamp: at}}
			numbers = append(numbers, series)
		} else if _, _, h, _ := parser.Histogram(); h != nil {
			series.Histograms = []prompb.Histogram{prompb.FromIntHistogram(at, h)}
			natives = append(natives, series)
		}
	}
}

// with adds the extra labels. The series' own win over those of the same name.
func (p *pusher) with(own labels.Labels) labels.Labels {
	b := labels.NewBuilder(p.extra)
	own.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	return b.Labels()
}
