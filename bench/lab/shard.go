package lab

import "time"

// Shard is what one of several processes did that play one storm together, each its
// own part of it. [Merge] makes one run of all of them.
type Shard struct {
	// Index counts from 0; Of is how many shards there are.
	Index int `json:"index"`
	Of    int `json:"of"`
	// Pod and Node are where it ran, empty where that isn't known.
	Pod  string `json:"pod,omitempty"`
	Node string `json:"node,omitempty"`
	// Attempt counts from 0: how often the shard had been begun before.
	Attempt int `json:"attempt,omitempty"`
	// Whole are the digests of what all shards together play, one for each comparison,
	// of which the Input of the outcome's comparison is the shard's part: the same in all
	// shards. Empty where each shard plays what it finds, as from a live cluster.
	Whole []string `json:"whole,omitempty"`
	// Outcome is what it measured. Its environment is the shard's own.
	Outcome *Outcome `json:"outcome"`
	// Starts are the plays that it was to begin together with the others, in the
	// order in which they came. Empty where nobody waited for anybody.
	Starts []Start `json:"starts,omitempty"`
}

// Start is how a shard began a play that all were to begin at the same time.
type Start struct {
	// Comparison is the place of the play's comparison in the run, from 0; Cell the
	// cell's name as benchmarks have it, empty for all cells of the round, where they are
	// played together; Round the round, 0 for the warm-up.
	Comparison int    `json:"comparison"`
	Cell       string `json:"cell"`
	Round      int    `json:"round"`
	// Late is how long after the common start it began, by its own clock.
	Late time.Duration `json:"lateNs,omitempty"`
	// Absent are the shards that the start did not wait for, by index.
	Absent []int `json:"absent,omitempty"`
}
