package informer

import (
	"testing"

	"watchlab/impls"
	"watchlab/impls/deltafifo"
)

// TestLending has queues that lend what they hand over do so, unless the user
// wants it otherwise.
func TestLending(t *testing.T) {
	for _, c := range []struct {
		variant  string
		handOver impls.Ownership
		want     impls.Ownership
	}{
		{"cond", "", impls.Lent},
		{"cond", impls.Owned, impls.Owned},
		{"clientgo-realfifo-batch", "", ""},
		{"clientgo-deltafifo", "", ""},
	} {
		b, err := Options{Variant: c.variant, Queue: deltafifo.Options{HandOver: c.handOver}}.blueprint()
		if err != nil || b.opts.HandOver != c.want {
			t.Errorf("%s with HandOver %q: the queue gets %q, %v; want %q", c.variant, c.handOver, b.opts.HandOver, err, c.want)
		}
	}
}
