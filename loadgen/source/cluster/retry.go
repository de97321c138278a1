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
	// retryLimit is the time after which a request is not repeated. An API server
	// takes some seconds to start.
	retryLimit = time.Minute
	// settling is the time after an outage in which an API server may still forbid
	// what it allows: it answers before it has read its rules and accounts.
	settling = 30 * time.Second
	// The pause between two attempts grows from the shortest to the longest.
	shortestPause = 50 * time.Millisecond
	longestPause  = time.Second
)

// retrier repeats requests during an outage of the API server. Its zero value is
// ready, and it is safe for concurrent use.
type retrier struct {
	outage atomic.Int64 // the last time without an answer
}

// do calls an idempotent function again while the API server is unreachable or
// temporarily unable, up to [retryLimit]. It returns the time that took; 0 where
// there was one attempt.
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
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return took, context.Cause(ctx)
		}
		pause = min(2*pause, longestPause)
	}
}

// temporary reports whether a later attempt may succeed.
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
		// Admission has no code for it (kube-apiserver v1.36.3).
		if strings.Contains(err.Error(), "not yet ready to handle request") {
			return true
		}
		at := p.outage.Load()
		return at != 0 && time.Since(time.Unix(0, at)) < settling
	}
	return false
}
