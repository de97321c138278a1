// Package profile takes profiles of what is measured, labels them by stage, and
// compares them.
//
// The way of a profile:
//
//  1. The workload's goroutines are labelled: [With] says what is played, [Do]
//     and [Switch] at which stage. Where nobody profiles, that costs nothing.
//  2. A [Profiler] starts the kinds that were asked for, and writes a file for
//     each when the cell has been played. Profiling disturbs, so that no figure is
//     taken from such a round.
//  3. [Read] reads a file back, [Source.Top] and [Compare] make tables of it, and
//     [Flame] a flame graph that shows two at once.
//
// Files are in pprof's format, and go tool pprof reads them; execution traces are
// for go tool trace.
//
// Labels stand in CPU and goroutine profiles only: the runtime doesn't keep them for
// memory and locks.
package profile
