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
	// patienceLimit is how long something is tried again that the API server doesn't
	// do: one takes some seconds to start.
	patienceLimit = time.Minute
	// settling is how long after it could not be reached an API server may still
	// forbid what it allows: it answers before it has read its rules and accounts.
	settling = 30 * time.Second
	// The pause between two attempts grows from the first to the second.
	shortestPause = 50 * time.Millisecond
	longestPause  = time.Second
)

// patience is what a writer has with an API server that is away, as while it starts
// again. Its zero value is ready for use, and it is safe for concurrent use.
type patience struct {
	away atomic.Int64
}

// with does something that may be done twice, and does it again while the API
// server can't be reached or says that it can't do it now, up to [patienceLimit]. It
// returns how long that took; 0 where the first attempt was the last.
func (p *patience) with(ctx context.Context, do func() error) (retried time.Duration, err error) {
	begin, pause := time.Now(), shortestPause
	for first := true; ; first = false {
		err := do()
		took := time.Since(begin)
		if err == nil || ctx.Err() != nil || took > patienceLimit || !p.mayPass(err) {
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

// mayPass reports whether an error may be another one, or none, in a while.
func (p *patience) mayPass(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if errors.Is(err, ErrNotOurs) || errors.Is(err, ErrNotWritable) {
			return false
		}
		// There was no answer.
		p.away.Store(time.Now().UnixNano())
		return true
	}
	switch status.Status().Code {
	case http.StatusTooManyRequests:
		return true
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		p.away.Store(time.Now().UnixNano())
		return true
	case http.StatusUnauthorized, http.StatusForbidden:
		// Admission says so in words only (kube-apiserver v1.36.3).
		if strings.Contains(err.Error(), "not yet ready to handle request") {
			return true
		}
		away := p.away.Load()
		return away != 0 && time.Since(time.Unix(0, away)) < settling
	}
	return false
}
