package queue_test

import (
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"watchlab/impls"
	"watchlab/impls/conformance/queuetest"
	"watchlab/impls/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for _, v := range queue.Variants() {
		t.Run("impl="+v.Name, func(t *testing.T) { queuetest.Run(t, v) })
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		impl string
		opts queue.Options
		is   error
		says string
	}{
		{"nobody", queue.Options{}, impls.ErrUnknownVariant, `queue: unknown variant "nobody" (have clientgo-fifo, cond`},
		{"cond", queue.Options{Capacity: -1}, impls.ErrOptions, "queue cond: invalid options: Capacity -1 is negative (0 means unbounded)"},
		{"cond", queue.Options{Capacity: 10}, impls.ErrOptions, "Capacity 10: this variant is unbounded (allowed: 0)"},
		{"clientgo-fifo", queue.Options{Shards: 4}, impls.ErrOptions, "Shards 4: this variant has one part (allowed: 0, 1)"},
		{"clientgo-fifo", queue.Options{Shards: -4}, impls.ErrOptions, "Shards -4 is negative"},
	} {
		q, err := queue.New(c.impl, c.opts)
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || q != nil {
			t.Errorf("New(%q, %+v) returned %v, %v; want an error that says %q", c.impl, c.opts, q, err, c.says)
		}
	}
}
