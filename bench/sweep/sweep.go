// Package sweep finds things out by going through cells: the highest rate at
// which a variant holds an objective, how throughput goes with a number of
// workers, how it lies over two knobs. It knows nothing of what is played.
//
//  1. [Knee] makes a comparison whose cells are chosen as the run goes on
//     ([lab.Comparison].More): the rate is doubled until it doesn't hold, and the
//     gap is halved until it is as narrow as asked for. The variants are searched
//     side by side, a rate of each in every step.
//  2. [Grid] makes comparisons of all combinations of one or two knobs' values,
//     all of them interleaved.
//  3. Package lab plays them. [Knee.Knees], [Scalings] and [Surfaces] read the
//     answer off what it measured.
//
// What is read off depends on the outcome alone, so that a run that was broken
// off and taken up again answers as one that wasn't.
package sweep

import "errors"

// ErrSweep is wrapped by the errors for sweeps that make no sense.
var ErrSweep = errors.New("invalid sweep")
