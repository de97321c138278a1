package profile

import (
	"context"
	"runtime/pprof"
	"runtime/trace"
)

// The labels' keys.
const (
	LabelFamily  = "family"
	LabelVariant = "variant"
	LabelStorm   = "storm"
	LabelStage   = "stage"
)

// labelled is the key under which a context made by With holds the one that it
// was made from.
type labelled struct{}

// With returns a context whose work is labelled with what is played, and under
// which [Do] and [Switch] tell stages apart. Under any other context they do
// nothing, so that a measurement that isn't profiled doesn't pay for labels.
// Empty values are left out.
func With(ctx context.Context, family, variant, storm string) context.Context {
	var pairs []string
	for _, p := range [][2]string{{LabelFamily, family}, {LabelVariant, variant}, {LabelStorm, storm}} {
		if p[1] != "" {
			pairs = append(pairs, p[0], p[1])
		}
	}
	return context.WithValue(pprof.WithLabels(ctx, pprof.Labels(pairs...)), labelled{}, ctx)
}

// Labelled reports whether ctx comes from [With].
func Labelled(ctx context.Context) bool { return ctx.Value(labelled{}) != nil }

// Do calls f with the context's labels and the stage's on the goroutine, and on
// those that f starts. The execution trace gets a region of the stage's name.
// Afterwards the goroutine has the context's labels. An empty stage is the
// outermost call: it sets the context's labels alone, and leaves the goroutine
// with those that the context had before [With]. Where the context isn't labelled,
// f is just called.
func Do(ctx context.Context, stage string, f func(context.Context)) {
	before, ok := ctx.Value(labelled{}).(context.Context)
	switch {
	case !ok:
		f(ctx)
	case stage == "":
		defer pprof.SetGoroutineLabels(before)
		pprof.SetGoroutineLabels(ctx)
		f(ctx)
	default:
		pprof.Do(ctx, pprof.Labels(LabelStage, stage), func(ctx context.Context) {
			trace.WithRegion(ctx, stage, func() { f(ctx) })
		})
	}
}

// Stages changes the stage of the goroutine that calls it, many times a
// millisecond: what takes an event through several stages in one loop has no
// function that [Do] could call. Make one with [Switch]; the zero value does
// nothing. It may be used from several goroutines.
type Stages struct {
	// contexts holds the labels of each stage, and last those outside of all;
	// empty where nothing is labelled.
	contexts []context.Context
}

// Switch prepares the labels of the stages.
func Switch(ctx context.Context, stages ...string) Stages {
	if !Labelled(ctx) {
		return Stages{}
	}
	contexts := make([]context.Context, 0, len(stages)+1)
	for _, s := range stages {
		contexts = append(contexts, pprof.WithLabels(ctx, pprof.Labels(LabelStage, s)))
	}
	return Stages{contexts: append(contexts, ctx)}
}

// To puts the goroutine into stage i of those given to [Switch]. It costs about
// ten nanoseconds where the context was labelled, one where it wasn't. The label
// stays until the next To or End.
func (s Stages) To(i int) {
	if s.contexts != nil {
		pprof.SetGoroutineLabels(s.contexts[i])
	}
}

// End puts the goroutine back to the labels of the context that [Switch] was
// given.
func (s Stages) End() {
	if n := len(s.contexts); n > 0 {
		pprof.SetGoroutineLabels(s.contexts[n-1])
	}
}
