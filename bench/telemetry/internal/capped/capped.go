// Package capped keeps what servers answer from filling memory.
package capped

import (
	"io"
	"net/http"
)

// Transport is for clients that read answers whole: it cuts each after Most bytes.
// Its connections are its own, so that CloseIdleConnections ends no other's.
type Transport struct {
	*http.Transport

	Most int64
}

// New returns a transport that goes by the environment's proxies.
func New(most int64) Transport {
	return Transport{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}, Most: most}
}

// RoundTrip implements [http.RoundTripper].
func (t Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.Transport.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, t.Most), res.Body}
	}
	return res, err
}
