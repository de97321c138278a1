package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"watchlab/bench/telemetry/live"
)

// pageAddress is the address of --page without a value.
const pageAddress = "127.0.0.1:0"

// closing is the time that requests of a page have to end.
const closing = time.Second

// startPage serves a page until stop is called. It says where, what the page does, and the token if the user does
// not have it. Without an address it does nothing.
func startPage(opts live.StormOptions, does string, say func(string)) (stop func() error, err error) {
	if opts.Addr == "" {
		return func() error { return nil }, nil
	}
	s, err := live.StartStorm(opts)
	if errors.Is(err, live.ErrAddress) {
		return nil, badFlag("page", err)
	}
	if err != nil {
		return nil, err
	}
	say(fmt.Sprintf("%s %s; it opens once, in one browser", s.Link(), does))
	if opts.Token == "" {
		say("bearer token of the page, or password of any user: " + s.Token())
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		return s.Close(ctx)
	}, nil
}
