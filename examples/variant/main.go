// Command variant is the watchlab command with an additional variant of the family queue.
//
//	go run . run --family queue --impl clientgo-fifo,counting
package main

import (
	"os"
	"sync/atomic"

	"watchlab/cmd/watchlab/cli"
	"watchlab/impls"
	"watchlab/impls/queue"
)

func main() {
	queue.Register(counting)
	os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr))
}

// counting is the variant cond plus a counter of added objects.
var counting = queue.Variant{
	Name:    "counting",
	Summary: "cond with a counter of added objects",
	Guarantees: []impls.Guarantees{{
		Order: impls.OrderPerKey, Coalesces: impls.CoalesceLatest,
		Consumers: impls.OneConsumer, Unlocked: true, DropIn: "cache.Queue",
	}},
	New: func(o queue.Options) (queue.Queue, error) {
		q, err := queue.New("cond", o)
		return &counter{Queue: q}, err
	},
}

// counter is a queue with a counter of added objects.
type counter struct {
	queue.Queue
	added atomic.Int64
}

// Add implements cache.Queue.
func (c *counter) Add(obj any) error {
	c.added.Add(1)
	return c.Queue.Add(obj)
}
