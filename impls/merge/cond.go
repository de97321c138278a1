package merge

import (
	"context"

	v1 "k8s.io/api/core/v1"
)

// cond merges under a mutex, at a cost that depends on the number of changes, and
// sends without it (see outbox).
//
// In a SET, a pod with an unchanged pointer costs one lookup in a small table (see source). If all
// pointers are unchanged, the SET does not allocate. ADD, UPDATE, DELETE and REMOVE cost the same
// for any number of held pods. Changed pods are copied in two steps: a shallow copy under the lock,
// and a deep copy by the sender, unless receivers share. While one caller sends, updates of other
// callers take effect.
type cond struct {
	mux
	out    outbox // the unsent notifications; its mutex also guards states
	states states
}

func newCond(opts Options) Merger {
	c := &cond{}
	c.mux.init(opts)
	c.mux.run, c.mux.stop = c.run, c.out.wake
	c.out.init(&c.mux)
	c.states.mux = &c.mux
	return c
}

func (c *cond) run(ctx context.Context, cmd command) ([]*v1.Pod, error) {
	c.out.mu.Lock()
	duplicates := c.states.execute(cmd, &c.out.backlog)
	return duplicates, c.out.flush(ctx)
}
