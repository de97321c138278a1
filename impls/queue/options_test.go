package queue_test

import (
	"errors"
	"strings"
	"testing"

	"watchlab/impls"
	"watchlab/impls/queue"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		impl string
		opts queue.Options
		is   error
		says string
	}{
		{"nobody", queue.Options{}, impls.ErrUnknownVariant, `queue: unknown variant "nobody" (have clientgo-fifo, cond`},
		{"clientgo-fifo", queue.Options{Shards: 4}, impls.ErrOptions, "Shards 4: this variant has one part (allowed: 0, 1)"},
		{"channel", queue.Options{Shards: 2}, impls.ErrOptions, "Shards 2: this variant has one part (allowed: 0, 1)"},
		{"sharded", queue.Options{Shards: 65}, impls.ErrOptions, "Shards 65 is too large (allowed: 0 to 64)"},
		{"sharded", queue.Options{Shards: -4}, impls.ErrOptions, "Shards -4 is negative"},
	} {
		q, err := queue.New(c.impl, c.opts)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || q != nil {
			t.Errorf("New(%q, %+v) returned %v, %v; want an error that says %q", c.impl, c.opts, q, err, c.says)
		}
	}
}
