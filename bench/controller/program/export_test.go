package program

import "net/http"

var Parse = parse

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// SetTransport answers the scraper's requests.
func SetTransport(s *Scraper, answer func(*http.Request) (*http.Response, error)) {
	s.client.Transport = roundTripper(answer)
}
