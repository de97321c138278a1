// Package probe counts and times events inside a pipeline while it runs, so that
// they can be looked at from outside.
//
//   - A [Set] is what is known of one variant: counters, histograms, how deep its
//     queue is, its phase and verdict. Pipelines find theirs by [From]; where there
//     is none, all methods do nothing.
//   - A [Probe] belongs to one goroutine of a pipeline, which tells it what
//     happens. Telling costs a store or two: a probe writes records into a ring of
//     its own, and somebody else folds them into the set.
//   - [Set.Snapshot] folds what is new and returns a copy.
//
// # The ring
//
// A probe's goroutine appends records of 8 bytes by plain stores, and makes them
// visible by one atomic store of the ring's head, once in 64 events, or at the next
// event when a millisecond has passed. Who folds reads up to that head
// under the set's lock, and hands the room back by an atomic store of the tail. So
// every record is read after it was written, and overwritten after it was read.
// Turned down: an atomic counter a figure, as an atomic store costs 5 ns and an
// event of a paced cell has a dozen figures; a lock an event, for the same
// reason; reading the pipelines' own logs, as these are written to be judged
// afterwards.
//
// Nothing is ever dropped: a probe whose ring is full folds it itself, which costs
// some 5 ns a record. [Set.Fold], called now and then, keeps it from that.
package probe
