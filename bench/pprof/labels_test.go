package pprof_test

import (
	"context"
	runtimepprof "runtime/pprof"
	"strings"
	"testing"

	"watchlab/bench/lab"
	"watchlab/bench/pprof"
)

// labelsHere returns the labels of the calling goroutine. It finds them in the
// goroutine profile, by its own name on the stack.
func labelsHere(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	if err := runtimepprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(b.String(), "\n\n") {
		if !strings.Contains(block, "labelsHere") {
			continue
		}
		for line := range strings.Lines(block) {
			if labels, ok := strings.CutPrefix(line, "# labels: "); ok {
				return strings.TrimSpace(labels)
			}
		}
		return ""
	}
	t.Fatal("this goroutine isn't in the profile")
	return ""
}

var cellLabels = lab.Labels{{Key: "impl", Value: "ring"}, {Key: "pipeline", Value: "informer"}, {Key: "storm", Value: "gang"}}

func TestDo(t *testing.T) {
	ctx := pprof.With(t.Context(), "queue", cellLabels)
	var inside, child, bare string
	pprof.Do(ctx, "", func(ctx context.Context) {
		bare = labelsHere(t)
		pprof.Do(ctx, "pop", func(context.Context) {
			inside = labelsHere(t)
			done := make(chan struct{})
			go func() { defer close(done); child = labelsHere(t) }()
			<-done
		})
		if after := labelsHere(t); after != bare {
			t.Errorf("after a stage: %s", after)
		}
	})
	const want = `{"family":"queue", "pipeline":"informer", "rate":"max", "stage":"pop", "storm":"gang", "variant":"ring"}`
	if inside != want || child != want {
		t.Errorf("labels %s, of a goroutine that it started %s; want %s", inside, child, want)
	}
	if bare != `{"family":"queue", "pipeline":"informer", "rate":"max", "storm":"gang", "variant":"ring"}` {
		t.Errorf("without a stage: %s", bare)
	}
	if after := labelsHere(t); after != "" {
		t.Errorf("labels stay after Do: %s", after)
	}
}

func TestSwitch(t *testing.T) {
	ctx := pprof.With(t.Context(), "queue", nil)
	s := pprof.Switch(ctx, "pop", "store")
	pprof.Do(ctx, "", func(context.Context) {
		s.To(1)
		if got := labelsHere(t); got != `{"family":"queue", "rate":"max", "stage":"store"}` {
			t.Errorf("To(1): %s", got)
		}
		s.To(0)
		if got := labelsHere(t); got != `{"family":"queue", "rate":"max", "stage":"pop"}` {
			t.Errorf("To(0): %s", got)
		}
		s.End()
		if got := labelsHere(t); got != `{"family":"queue", "rate":"max"}` {
			t.Errorf("End: %s", got)
		}
	})
}

// TestUnlabelled checks that unlabelled contexts set no labels and allocate nothing.
func TestUnlabelled(t *testing.T) {
	ctx := t.Context()
	var got string
	pprof.Do(ctx, "pop", func(context.Context) { got = labelsHere(t) })
	s := pprof.Switch(ctx, "pop", "store")
	s.To(1)
	if got += labelsHere(t); got != "" {
		t.Errorf("labels %s, want none", got)
	}
	s.End()
	if n := testing.AllocsPerRun(100, func() {
		s := pprof.Switch(ctx, "pop", "store")
		s.To(0)
		s.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if pprof.Labelled(ctx) || !pprof.Labelled(pprof.With(ctx, "queue", cellLabels)) {
		t.Error("Labelled does not distinguish them")
	}
}

func BenchmarkSwitch(b *testing.B) {
	for name, ctx := range map[string]context.Context{
		"labelled=yes": pprof.With(b.Context(), "queue", cellLabels), "labelled=no": b.Context(),
	} {
		b.Run(name, func(b *testing.B) {
			s := pprof.Switch(ctx, "pop", "store")
			defer s.End()
			for i := 0; b.Loop(); i++ {
				s.To(i & 1)
			}
		})
	}
}
