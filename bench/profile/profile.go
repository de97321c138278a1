// Package profile takes pprof profiles of cells, labels them by stage, and compares
// them.
//
//  1. [With] labels a workload's goroutines with family, variant and storm; [Do] and
//     [Switch] add the stage. Without a profiler, labels cost almost nothing.
//  2. A [Profiler] starts the requested kinds. After the cell it writes one file per
//     kind. Profiling disturbs, so a profiled round yields no figures.
//  3. [Read] reads a file, and [Compare] makes a table of one file or of two.
//  4. [Source.WritePerEvent] writes a profile whose values are per event, so that
//     go tool pprof -diff_base can subtract runs of different lengths.
//
// Files have pprof's format; execution traces are for go tool trace. Only CPU and
// goroutine profiles have labels: the runtime records none for memory and locks.
package profile
