// Package probe records what happens inside a pipeline while it runs, at a cost of one
// or two stores an event.
//
//  1. A pipeline takes its [Set] from the context ([From]). A Set is the state of one
//     variant: counters, histograms, queue depth, phase and verdict. Without a Set all
//     methods are no-ops.
//  2. Each goroutine of the pipeline takes a [Probe] from the Set and records events in
//     it. Each probe appends to its own ring.
//  3. Another goroutine calls [Set.Fold] periodically, which moves the records of all
//     probes into the Set.
//  4. [Set.Snapshot] folds and returns a copy, for a scrape or the live page.
//
// [Upstream] holds the metrics under client-go's own names.
//
// # The ring
//
// The probe's goroutine appends records of 8 bytes with plain stores. It publishes them
// with one atomic store of the ring's head, every 64 events, or at the next event after a
// millisecond. The folding goroutine holds the set's lock, reads up to that head, and
// returns the space with an atomic store of the tail. So a record is read only after it
// is written, and overwritten only after it is read.
//
// Rejected designs: one atomic counter for each figure (an atomic store costs 5 ns, and an
// event of a paced cell updates a dozen figures); one lock for each event (the same cost);
// reading the pipeline's delivery log (it is complete only after the run).
//
// No record is dropped: a probe with a full ring folds it itself, at about 5 ns a record.
// Periodic calls of [Set.Fold] prevent this.
package probe
