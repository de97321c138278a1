package static

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"watchlab/impls/merge"
)

// clientTimeout is the kubelet's, for one request.
const clientTimeout = 10 * time.Second

// HTTPOptions are those of [HTTP].
type HTTPOptions struct {
	Options

	Header http.Header

	Client *http.Client
}

// HTTPSource reads static pods from a URL: a pod, or a list of pods, as JSON or
// YAML. It asks when it starts, and again a Period after the answer was dealt
// with. An answer with the same bytes as the last says nothing new and is not
// sent; one that can't be used, or isn't 200, changes nothing. An answer without
// bytes is the empty state.
type HTTPSource struct {
	url  string
	opts HTTPOptions

	last []byte
}

var _ Source = (*HTTPSource)(nil)

// HTTP returns the source of a URL. The error wraps [ErrOptions].
func HTTP(address string, opts HTTPOptions) (*HTTPSource, error) {
	var err error
	if opts.Options, err = opts.complete(); err != nil {
		return nil, err
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("static: %w: %q is not an http or https URL", ErrOptions, address)
	}
	if opts.Client == nil {
		opts.Client = &http.Client{Timeout: clientTimeout}
	}
	return &HTTPSource{url: address, opts: opts}, nil
}

// Run is [Source]'s.
func (s *HTTPSource) Run(ctx context.Context, updates chan<- merge.PodUpdate) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := s.read(ctx, updates); err != nil && ctx.Err() == nil {
			s.opts.Report(err)
		}
		t.Reset(s.opts.Period)
	}
}

// read asks once.
func (s *HTTPSource) read(ctx context.Context, updates chan<- merge.PodUpdate) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return err
	}
	if s.opts.Header != nil {
		req.Header = s.opts.Header.Clone()
	}
	res, err := s.opts.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // It was read only.
	data, err := readAtMost(res.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.url, err)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: the server says %s", s.url, res.Status)
	case len(data) == 0:
		send(ctx, updates, merge.HTTPSource, nil)
		// What comes next is new, even if it is what was there before.
		s.last = nil
		return fmt.Errorf("%s: it is empty", s.url)
	case bytes.Equal(data, s.last):
		return nil
	}
	s.last = data
	pods, err := s.opts.Options.read(s.url, data, false)
	if err != nil {
		return err
	}
	if len(pods) == 0 && !isList(data) {
		return fmt.Errorf("%s: %w: neither a pod nor a list of pods", s.url, ErrPod)
	}
	send(ctx, updates, merge.HTTPSource, pods)
	return nil
}

// isList reports whether the answer is a list, which may well be empty.
func isList(data []byte) bool {
	var t metav1.TypeMeta
	return yaml.Unmarshal(data, &t) == nil && strings.HasSuffix(t.Kind, "List")
}
