package cluster

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	retryLimit = time.Minute // of all retries; an API server takes some seconds to start
	// settling is the time after an outage in which 401 and 403 count as temporary. An API server
	// answers before it has loaded its authorization rules and accounts.
	settling = 30 * time.Second
	// The pause between two attempts grows from shortestPause to longestPause.
	shortestPause = 50 * time.Millisecond
	longestPause  = time.Second
)

// retrier repeats requests during an outage of the API server. The zero value is ready to use
// and safe for concurrent use.
type retrier struct {
	outage atomic.Int64 // last time without an answer, in Unix nanoseconds; 0 means never
}

// do calls an idempotent function and repeats it while the API server is unreachable or temporarily
// unable, up to [retryLimit]. It returns the duration of all attempts; 0 if there was one.
func (p *retrier) do(ctx context.Context, f func() error) (retried time.Duration, err error) {
	begin, pause := time.Now(), shortestPause
	for first := true; ; first = false {
		err := f()
		took := time.Since(begin)
		if err == nil || ctx.Err() != nil || took > retryLimit || !p.temporary(err) {
			if first {
				took = 0
			}
			return took, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return took, context.Cause(ctx)
		}
		pause = min(2*pause, longestPause)
	}
}

// temporary reports whether a retry may succeed.
func (p *retrier) temporary(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if errors.Is(err, ErrNotOurs) || errors.Is(err, ErrNotWritable) {
			return false
		}
		p.outage.Store(time.Now().UnixNano())
		return true
	}
	switch status.Status().Code {
	case http.StatusTooManyRequests:
		return true
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		p.outage.Store(time.Now().UnixNano())
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		// Admission has no status code for it (kube-apiserver v1.37.2).
		if strings.Contains(err.Error(), "not yet ready to handle request") {
			return true
		}
		at := p.outage.Load()
		return at != 0 && time.Since(time.Unix(0, at)) < settling
	}
	return false
}
