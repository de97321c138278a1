package informer_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/informer"
)

// survive keeps panics from ending the process, as a user may choose to.
func survive(t *testing.T) {
	was := utilruntime.ReallyCrash
	utilruntime.ReallyCrash = false
	t.Cleanup(func() { utilruntime.ReallyCrash = was })
}

// panicker panics at additions and records their times.
type panicker struct {
	clock
	recorder
}

func (p *panicker) OnAdd(any, bool) {
	p.clock.OnUpdate(nil, nil)
	panic("no additions, please")
}

func (p *panicker) OnUpdate(old, obj any) { p.recorder.OnUpdate(old, obj) }
func (p *panicker) OnDelete(obj any)      { p.recorder.OnDelete(obj) }

func TestPanic(t *testing.T) {
	survive(t)
	eachQueueInBubble(t, func(t *testing.T, opts informer.Options) {
		src := newSource(t)
		src.Add(pod("a"))
		src.Add(pod("b"))
		inf := newInformer(t, src, opts)
		l := &logs{}
		bad, good := &panicker{clock: clock{start: time.Now()}}, &recorder{}
		badHandle, err := inf.AddEventHandlerWithOptions(bad, cache.HandlerOptions{Logger: l.logger()})
		if err != nil {
			t.Fatal(err)
		}
		goodHandle := addHandler(t, inf, good)
		run(t, inf)
		wait(t, goodHandle.HasSyncedChecker())
		src.Add(pod("c"))
		src.Delete(pod("c"))
		time.Sleep(time.Minute)
		if got := bad.times(); !slices.Equal(got, []float64{0, 1, 2}) {
			t.Errorf("panicked at seconds %v, want 0, 1 and 2", got)
		}
		if got := bad.take(); len(got) != 1 || got[0].kind != "delete" {
			t.Errorf("the handler otherwise received %v, want a deletion", got)
		}
		if badHandle.HasSynced() {
			t.Error("a handler that panicked amid the initial list has synced")
		}
		if got := good.take(); len(got) != 4 {
			t.Errorf("the other handler received %v", got)
		}
		if got := l.count("Observed a panic", "no additions, please"); got != 3 {
			t.Errorf("%d panics were logged to the handler's logger: %v", got, l.lines)
		}
	})
}

// TestStopAfterPanic doesn't wait for the handler to recover.
func TestStopAfterPanic(t *testing.T) {
	survive(t)
	synctest.Test(t, func(t *testing.T) {
		src := newSource(t)
		src.Add(pod("a"))
		src.Add(pod("b"))
		inf := newInformer(t, src, informer.Options{})
		bad := &panicker{clock: clock{start: time.Now()}}
		addHandler(t, inf, bad)
		stop := run(t, inf)
		synctest.Wait()
		stop()
		if took, calls := time.Since(bad.start), bad.times(); took > 0 || len(calls) != 1 {
			t.Errorf("stopped after %v and %d calls, want 0 and 1", took, len(calls))
		}
	})
}

// inProcess runs a test of this package in its own process, and returns the output.
func inProcess(t *testing.T, test string, env ...string) (string, error) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), append(env, "WATCHLAB_INNER=1")...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func inner() bool { return os.Getenv("WATCHLAB_INNER") != "" }

// TestPanicEndsProcess has upstream's default.
func TestPanicEndsProcess(t *testing.T) {
	if inner() {
		src := newSource(t)
		src.Add(pod("a"))
		inf := newInformer(t, src, informer.Options{})
		addHandler(t, inf, &panicker{})
		run(t, inf)
		<-t.Context().Done()
	}
	out, err := inProcess(t, t.Name())
	if err == nil || !strings.Contains(out, "panic: no additions, please") {
		t.Errorf("the process ended with %v and wrote %s", err, out)
	}
}

// TestMutationDetector: a handler changes an object, and the enabled detector ends the process.
func TestMutationDetector(t *testing.T) {
	if inner() {
		src := newSource(t)
		src.Add(pod("a"))
		inf := newInformer(t, src, informer.Options{})
		var changed sync.WaitGroup
		changed.Add(1)
		addHandler(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			obj.(*v1.Pod).Labels = map[string]string{"changed": "here"}
			changed.Done()
		}})
		stop := run(t, inf)
		changed.Wait()
		if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") == "" {
			stop()
			return
		}
		<-t.Context().Done()
	}
	if out, err := inProcess(t, t.Name()); err != nil {
		t.Errorf("without a detector: %v: %s", err, out)
	}
	out, err := inProcess(t, t.Name(), "KUBE_CACHE_MUTATION_DETECTOR=true")
	if err == nil || !strings.Contains(out, "ALTERED") {
		t.Errorf("the process ended with %v and wrote %s", err, out)
	}
}
