package lab

import "time"

// Shard is what one of several processes did that play one storm together, each its
// own part of it. [Merge] makes one run of all of them.
type Shard struct {
	Index   int      `json:"index"`
	Of      int      `json:"of"`
	Pod     string   `json:"pod,omitempty"`
	Node    string   `json:"node,omitempty"`
	Attempt int      `json:"attempt,omitempty"`
	Whole   []string `json:"whole,omitempty"`
	Outcome *Outcome `json:"outcome"`
	Starts  []Start  `json:"starts,omitempty"`
}

// Start is how a shard began a play that all were to begin at the same time.
type Start struct {
	Comparison int           `json:"comparison"`
	Cell       string        `json:"cell"`
	Round      int           `json:"round"`
	Late       time.Duration `json:"lateNs,omitempty"`
	Absent     []int         `json:"absent,omitempty"`
}
