// Package push sends metrics to a Prometheus by remote write, for a run that may
// end between two scrapes: its last state, once.
package push

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"

	"watchlab/bench/telemetry/internal/capped"
)

var (
	// ErrURL is wrapped by the error for what is no address of a receiver.
	ErrURL = errors.New("no URL of a remote-write receiver")
	// ErrNative is wrapped by the error that all was taken but native histograms,
	// as by a Prometheus that has them switched off.
	ErrNative = errors.New("native histograms were not taken")
)

// perRequest is how many series are sent at once.
const perRequest = 2000

// tries beyond the first, and the pauses between them.
var retry = remote.BackoffConfig{Min: 200 * time.Millisecond, Max: 2 * time.Second, MaxRetries: 3}

// Pusher sends to one receiver.
type Pusher struct {
	api    *remote.API
	client *http.Client
	extra  []label
}

// defaultPath is where Prometheus takes remote writes.
const defaultPath = "/api/v1/write"

// New returns a pusher to the receiver at a URL; where that has no path, it gets
// /api/v1/write. All series get the labels job and instance, as scraping adds
// them. The error wraps [ErrURL].
func New(receiver, job, instance string) (*Pusher, error) {
	u, err := url.Parse(receiver)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return nil, fmt.Errorf("%w: %q (as in http://localhost:9090%s)", ErrURL, receiver, defaultPath)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = defaultPath
	}
	// Connections of its own, so that Close can end them.
	client := &http.Client{Transport: capped.New(longest), Timeout: patience}
	api, err := remote.NewAPI(u.String(), remote.WithAPIPath(""), remote.WithAPIHTTPClient(client), remote.WithAPIBackoff(retry))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return &Pusher{api: api, client: client, extra: []label{{"job", job}, {"instance", instance}}}, nil
}

// Push gathers and sends what there is now: every number, and then the native
// histograms, which not every receiver takes; an error for those alone wraps
// [ErrNative]. What fails is tried again three times, until ctx ends.
func (p *Pusher) Push(ctx context.Context, from prometheus.Gatherer) error {
	now := time.Now()
	families, err := from.Gather()
	if err != nil {
		return err
	}
	numbers, natives := seriesOf(families, now, p.extra)
	if err := p.send(ctx, numbers, now); err != nil {
		return err
	}
	if err := p.send(ctx, natives, now); err != nil {
		return fmt.Errorf("%w: %w", ErrNative, err)
	}
	return nil
}

func (p *Pusher) send(ctx context.Context, all []series, at time.Time) error {
	for part := range slices.Chunk(all, perRequest) {
		msg, err := encode(part, at)
		if err != nil {
			return err
		}
		if _, err := p.api.Write(ctx, remote.WriteV1MessageType, msg); err != nil {
			// The API's error hides what it wraps.
			return oneLine(err, ctx.Err())
		}
	}
	return nil
}

const (
	// longest is how much of a receiver's answer is read.
	longest = 300
	// patience is how long a receiver may take for one request.
	patience = 5 * time.Second
)

// oneLine folds what a receiver answered, which may be a page.
func oneLine(err, cause error) error {
	return folded{strings.ToValidUTF8(strings.Join(strings.Fields(err.Error()), " "), "?"), cause}
}

type folded struct {
	text  string
	cause error
}

func (f folded) Error() string { return f.text }
func (f folded) Unwrap() error { return f.cause }

// Close ends the pusher's connections.
func (p *Pusher) Close() { p.client.CloseIdleConnections() }
