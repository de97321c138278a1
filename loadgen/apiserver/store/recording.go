package store

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

// Recording is a storm that any number of logs play. They share its encoded events. It is
// safe for concurrent use.
type Recording struct {
	storm  *storm.Storm
	maker  maker
	blocks []block
	// before returns, for each event, the index of the key's previous event, or -1.
	// All four functions compute once, at the first call.
	before func() []int32
	// names returns the keys by index, sorted the indexes in the order of keys, and
	// index the indexes by key.
	names  func() []string
	sorted func() []int32
	index  func() map[string]int32
}

// NewRecording returns the recording of a valid storm (see
// [storm.Storm.Validate]). Nothing is encoded yet. O(1).
func NewRecording(s *storm.Storm, kind *wire.Kind, budget *Budget) *Recording {
	r := &Recording{
		storm:  s,
		maker:  maker{kind, budget},
		blocks: make([]block, (len(s.Events)+blockSize-1)/blockSize),
		before: sync.OnceValue(func() []int32 { return before(s) }),
	}
	r.names = sync.OnceValue(func() []string {
		names := make([]string, s.Keys)
		for i := range s.Events {
			names[s.Events[i].KeyIndex] = s.Events[i].Key
		}
		return names
	})
	r.sorted = sync.OnceValue(func() []int32 {
		names := r.names()
		sorted := make([]int32, len(names))
		for i := range sorted {
			sorted[i] = int32(i)
		}
		slices.SortFunc(sorted, func(a, b int32) int { return strings.Compare(names[a], names[b]) })
		return sorted
	})
	r.index = sync.OnceValue(func() map[string]int32 {
		index := make(map[string]int32, s.Keys)
		for i, name := range r.names() {
			index[name] = int32(i)
		}
		return index
	})
	return r
}

// Encode encodes events in advance, up to three quarters of the budget. The error is that
// of an event that cannot be encoded. O(bytes).
func (r *Recording) Encode(form wire.Form) error {
	for b := range r.blocks {
		if !r.maker.budget.keeps() {
			return nil
		}
		s := &r.blocks[b].slots[form]
		s.mu.Lock()
		s.stays = s.frames.Load() == nil
		s.mu.Unlock()
		events := r.storm.Events[b*blockSize : min((b+1)*blockSize, len(r.storm.Events))]
		if _, err := s.make(r.maker, form, len(events), func(i int) *storm.Event { return &events[i] }); err != nil {
			return fmt.Errorf("storm %s: %w", r.storm.Name, err)
		}
	}
	return nil
}

func before(s *storm.Storm) []int32 {
	last := slices.Repeat([]int32{-1}, s.Keys)
	all := make([]int32, len(s.Events))
	for i := range s.Events {
		k := s.Events[i].KeyIndex
		all[i] = last[k]
		last[k] = int32(i)
	}
	return all
}
