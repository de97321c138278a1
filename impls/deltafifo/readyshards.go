package deltafifo

import "sync"

// readyShards is the line of the shards with something to take, first in first
// out, and where consumers sleep.
type readyShards struct {
	_           [128]byte
	mu          sync.Mutex
	first, last *shard

	arrival sync.Cond
	asleep  int
	closed  bool

	waiting int
	_       [128]byte
}

func (r *readyShards) init() { r.arrival.L = &r.mu }

// push appends a shard, which isn't in line.
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

// pop takes the first shard off, waiting for one. It returns nil when the queue
// is closed and drained.
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

// close notes how many shards have something waiting, after which nothing comes.
func (r *readyShards) close(waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.waiting = true, waiting
	r.dismiss()
}

// drained notes that a shard of a closed queue has become empty.
func (r *readyShards) drained() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting--
	r.dismiss()
}

// dismiss wakes all consumers if nothing will come.
func (r *readyShards) dismiss() {
	if r.waiting == 0 {
		r.asleep = 0
		r.arrival.Broadcast()
	}
}
