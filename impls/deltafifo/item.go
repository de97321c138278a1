package deltafifo

import (
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/ring"
)

// inbox carries calls of producers to the owner of the backlog, in one order. The
// variants cond and ring have different ones.
type inbox = ring.Queue[item]

// item is one call of a producer.
type item struct {
	obj       any
	kind      kind
	placeless bool // it does not count against Capacity
}

func (i item) delta() cache.Delta { return cache.Delta{Type: types[i.kind], Object: i.obj} }

// kind is the type of a delta in one byte, or a command.
type kind uint8

const (
	added kind = iota
	updated
	deleted
	replaced
	synced
	// From here on: deltas without a single object, which are popped alone.
	replacedAll
	syncAll
	bookmark
	// From here on: commands, which never reach the consumer.
	replaceCommand
	resyncCommand
)

// types are the deltas' types by kind.
var types = [...]cache.DeltaType{
	added: cache.Added, updated: cache.Updated, deleted: cache.Deleted, replaced: cache.Replaced, synced: cache.Sync,
	replacedAll: cache.ReplacedAll, syncAll: cache.SyncAll, bookmark: cache.Bookmark,
}

// alone reports whether a delta of the kind cannot share a batch (client-go
// v0.37, the_real_fifo.go).
func (k kind) alone() bool { return k >= replacedAll }

// command is the object of a replaceCommand or a resyncCommand. Its caller waits
// until it is executed.
type command struct {
	list     []any
	executed atomic.Bool
	panicked any // of KnownObjects, for the caller
}

func (c *command) execute(do func()) {
	defer func() {
		c.panicked = recover()
		c.executed.Store(true)
	}()
	do()
}
