package deltafifo

import "sync"

// readyShards is the FIFO of shards that have events and are not in process.
// Consumers sleep on it. The padding keeps its lock on cache lines of its own.
type readyShards struct {
	_           [128]byte
	mu          sync.Mutex // guards all fields
	first, last *shard
	arrival     sync.Cond // where consumers sleep
	asleep      int       // counts sleeping consumers without a wake-up
	closed      bool
	waiting     int // after Close, the number of shards with events, including those in process
	_           [128]byte
}

// push appends a shard, which is not queued.
func (r *readyShards) push(s *shard) {
	r.mu.Lock()
	if r.first == nil {
		r.first = s
	} else {
		r.last.next = s
	}
	r.last = s
	wake := r.asleep > 0
	if wake {
		r.asleep--
	}
	r.mu.Unlock()
	if wake {
		r.arrival.Signal()
	}
}

// pop removes the first shard, and waits for one. It returns nil when the queue is
// closed and empty.
func (r *readyShards) pop() *shard {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.first == nil {
		if r.closed && r.waiting == 0 {
			return nil
		}
		r.asleep++
		r.arrival.Wait()
	}
	s := r.first
	r.first, s.next = s.next, nil
	return s
}

// close sets how many shards still have events. Producers add none afterwards.
func (r *readyShards) close(waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.waiting = true, waiting
	r.dismiss()
}

// drained counts a shard of a closed queue that has become empty.
func (r *readyShards) drained() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting--
	r.dismiss()
}

// dismiss wakes all consumers if no shard has events. The caller holds mu.
func (r *readyShards) dismiss() {
	if r.waiting == 0 {
		r.asleep = 0
		r.arrival.Broadcast()
	}
}
