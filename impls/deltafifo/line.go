package deltafifo

import (
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/internal/keys"
	"watchlab/impls/internal/ring"
)

// line carries what producers do to whoever owns the backlog, in one order. It
// is what the variants cond and ring differ by.
type line = ring.Queue[item]

// item is one call of a producer on its way.
type item struct {
	obj  any
	kind kind

	placeless bool
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
	// From here on, deltas that speak of no single object and travel alone.
	replacedAll
	syncAll
	bookmark
	// From here on, commands, which never reach the consumer.
	replaceCommand
	resyncCommand
)

// types are the deltas' types by kind.
var types = [...]cache.DeltaType{
	added: cache.Added, updated: cache.Updated, deleted: cache.Deleted, replaced: cache.Replaced, synced: cache.Sync,
	replacedAll: cache.ReplacedAll, syncAll: cache.SyncAll, bookmark: cache.Bookmark,
}

// alone reports whether a delta of the kind can't share a batch (client-go
// v0.37, the_real_fifo.go).
func (k kind) alone() bool { return k >= replacedAll }

// command reports whether it is one.
func (k kind) command() bool { return k >= replaceCommand }

// replaceItem is what a Replace puts into a line: one delta where the list goes
// to the consumer as a whole, else a command. The error is that of an object
// without a key, or of the transformer. O(list).
func replaceItem(whole bool, keys keys.Func, t cache.TransformFunc, list []any, resourceVersion string) (item, error) {
	if !whole {
		for _, obj := range list {
			if err := keys.Check(obj); err != nil {
				return item{}, err
			}
		}
	}
	objs, err := transformAll(t, list)
	switch {
	case err != nil:
		return item{}, err
	case whole:
		return item{obj: cache.ReplacedAllInfo{ResourceVersion: resourceVersion, Objects: objs}, kind: replacedAll}, nil
	default:
		return item{obj: &replacement{list: objs}, kind: replaceCommand}, nil
	}
}

// resyncItem is what a Resync puts into a line; false where that is nothing.
func resyncItem(whole bool, known cache.KeyListerGetter) (item, bool) {
	if whole {
		return item{obj: cache.SyncAllInfo{}, kind: syncAll}, true
	}
	return item{kind: resyncCommand}, known != nil
}

// replacement is the object of a replaceCommand.
type replacement struct{ list []any }
