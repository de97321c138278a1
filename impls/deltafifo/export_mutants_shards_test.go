//go:build mutants

package deltafifo

import (
	"runtime"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
)

// shardMutants are those of sharded.
func shardMutants() []Mutant {
	return []Mutant{
		shardMutant("shards-by-turn", "reorders the events of a key across shards", "nothing lost, reordered or duplicated among producers", "././0/./none", func(q *sharded) Queue { return &byTurn{sharded: q} }),
		shardMutant("released-early", "releases a shard before process has returned", "concurrent consumers", "././0", func(q *sharded) Queue { return &releasedEarly{q} }),
		shardMutant("forgotten-shard", "forgets a shard that received events while it was in process", "nothing lost, reordered or duplicated among producers", "./true/0", func(q *sharded) Queue { return &forgottenShard{q} }),
		shardMutant("torn-over-shards", "replaces one shard after the other", "linearizable", "././0/./none", func(q *sharded) Queue { return &shardByShard{q} }),
	}
}

func shardMutant(name, broken, check, in string, replace func(*sharded) Queue) Mutant {
	v := shardedVariant()
	v.Name, v.Summary = name, broken
	v.New = func(o Options) (Queue, error) {
		q, err := shardedVariant().New(o)
		if err != nil {
			return nil, err
		}
		return replace(q.(*sharded)), nil
	}
	return Mutant{Variant: v, Broken: broken, Check: check, In: in}
}

type byTurn struct {
	*sharded
	turn atomic.Int64
}

func (q *byTurn) Update(obj any) error {
	key, hash, err := q.keys.Hashed(obj)
	if err != nil {
		return err
	}
	if err := q.slots.Take(q.ctx); err != nil {
		return err
	}
	q.slots.Give(q.put(&q.shards[int(q.turn.Add(1))%len(q.shards)], keyedItem{item{obj: obj, kind: updated}, key, hash}))
	return nil
}

type releasedEarly struct{ *sharded }

func (q *releasedEarly) Pop(process cache.PopProcessFunc) (any, error) {
	h, ok := q.take(false)
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	deltas := append(cache.Deltas(nil), h.deltas...)
	q.done(h)
	return nil, process(deltas, h.initial)
}

func (q *releasedEarly) PopBatch(_ cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	_, err := q.Pop(single)
	return err
}

type forgottenShard struct{ *sharded }

func (q *forgottenShard) Pop(process cache.PopProcessFunc) (any, error) {
	h, ok := q.take(false)
	if !ok {
		return nil, cache.ErrFIFOClosed
	}
	defer func() {
		h.shard.mu.Lock()
		defer h.shard.mu.Unlock()
		h.shard.backlog.done()
		h.shard.state = idle
	}()
	return nil, process(cache.Deltas(h.deltas), h.initial)
}

func (q *forgottenShard) PopBatch(_ cache.ProcessBatchFunc, single cache.PopProcessFunc) error {
	_, err := q.Pop(single)
	return err
}

type shardByShard struct{ *sharded }

func (q *shardByShard) Replace(list []any, _ string) error {
	parts := make([][]any, len(q.shards))
	for _, obj := range list {
		_, hash, err := q.keys.Hashed(obj)
		if err != nil {
			return err
		}
		p := &parts[q.number(hash)]
		*p = append(*p, obj)
	}
	for i := range q.shards {
		if err := q.command(new(command), func() { q.shards[i].backlog.replace(parts[i]) }); err != nil {
			return err
		}
		runtime.Gosched()
	}
	return nil
}
