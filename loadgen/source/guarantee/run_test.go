package guarantee_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/source/guarantee"
	"watchlab/loadgen/storm"
)

// run plays a storm to a reflector until the checker has received all events.
func run(t *testing.T, s *storm.Storm, src source.Source, c *guarantee.Checker, lw cache.ListerWatcher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := cache.NewReflectorWithOptions(lw, &v1.Pod{}, cache.NewStore(cache.MetaNamespaceKeyFunc), cache.ReflectorOptions{})
	var wg sync.WaitGroup
	inner, stop := context.WithCancel(ctx)
	wg.Go(func() { r.RunWithContext(inner) })
	defer wg.Wait()
	defer stop()
	if err := c.Reach(ctx, uint64(s.Initial)); err != nil {
		t.Fatal(err)
	}
	p := pace.New(pace.Rate(100_000))
	defer func() { _ = p.Close() }()
	p.Start(time.Now())
	if err := src.Play(ctx, p, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Reach(ctx, uint64(len(s.Events))); err != nil {
		t.Error(err)
	}
}

func listen() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }
