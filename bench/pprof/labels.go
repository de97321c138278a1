package pprof

import (
	"cmp"
	"context"
	"runtime/pprof"
	"runtime/trace"

	"watchlab/bench/lab"
)

const stageKey = "stage" // key of the label that [Do] and [Switch] add

// labelled is the context key under which [With] stores the original context.
type labelled struct{}

// With returns a context that labels the work of a cell: family, variant, pipeline, storm, rate. Empty values are left
// out. [Do] and [Switch] add stages only under such a context. Under any other they do nothing, so an unprofiled
// measurement does not pay for labels.
func With(ctx context.Context, family string, cell lab.Labels) context.Context {
	var pairs []string
	for _, p := range [][2]string{
		{"family", family}, {"variant", cell.Label("impl")}, {"pipeline", cell.Label("pipeline")}, {"storm", cell.Label("storm")},
		{"rate", cmp.Or(cell.Label("rate"), lab.Unpaced)},
	} {
		if p[1] != "" {
			pairs = append(pairs, p[0], p[1])
		}
	}
	return context.WithValue(pprof.WithLabels(ctx, pprof.Labels(pairs...)), labelled{}, ctx)
}

// Labelled reports whether ctx comes from [With].
func Labelled(ctx context.Context) bool { return ctx.Value(labelled{}) != nil }

// Do calls f with the labels of the context and of the stage. f's goroutine and those
// that it starts carry them. The execution trace gets a region with the stage's name.
// Afterwards the goroutine has the context's labels.
//
// An empty stage is for the outermost call: it sets only the context's labels. Afterwards the
// goroutine has the labels from before [With]. If the context is not labelled, Do only calls f.
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
		pprof.Do(ctx, pprof.Labels(stageKey, stage), func(ctx context.Context) {
			trace.WithRegion(ctx, stage, func() { f(ctx) })
		})
	}
}

// Stages changes the stage of the calling goroutine. It suits a loop that takes each
// event through several stages within microseconds, where [Do] has no function to call.
// [Switch] makes one; the zero value does nothing. It is safe for concurrent use.
type Stages struct {
	// contexts has one element per stage, then the one without a stage; empty if the
	// context is not labelled.
	contexts []context.Context
}

// Switch prepares the labels of the stages. If ctx is not labelled, it returns the zero value.
func Switch(ctx context.Context, stages ...string) Stages {
	if !Labelled(ctx) {
		return Stages{}
	}
	contexts := make([]context.Context, 0, len(stages)+1)
	for _, s := range stages {
		contexts = append(contexts, pprof.WithLabels(ctx, pprof.Labels(stageKey, s)))
	}
	return Stages{contexts: append(contexts, ctx)}
}

// To sets the label of stage i of [Switch] on the calling goroutine, until the next To
// or End. It costs about 10 ns under a labelled context, otherwise 1 ns.
func (s Stages) To(i int) {
	if s.contexts != nil {
		pprof.SetGoroutineLabels(s.contexts[i])
	}
}

// End restores the labels of the context that [Switch] received.
func (s Stages) End() {
	if n := len(s.contexts); n > 0 {
		pprof.SetGoroutineLabels(s.contexts[n-1])
	}
}
