package informer_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
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
		badHandle := must(inf.AddEventHandlerWithOptions(bad, cache.HandlerOptions{Logger: l.logger()}))(t)
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

// TestEndsProcess runs informers in processes of their own. By default a panic of a handler ends the
// process, and so does the detector, if it is enabled, when a handler changes an object.
func TestEndsProcess(t *testing.T) {
	const variable, detector = "WATCHLAB_HANDLER", "KUBE_CACHE_MUTATION_DETECTOR"
	if does := os.Getenv(variable); does != "" {
		src := newSource(t)
		src.Add(pod("a"))
		inf := newInformer(t, src, informer.Options{})
		called := make(chan struct{})
		addHandler(t, inf, cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			if does == "panics" {
				panic("no additions, please")
			}
			obj.(*v1.Pod).Labels = map[string]string{"changed": "here"}
			close(called)
		}})
		run(t, inf)
		if <-called; os.Getenv(detector) != "" {
			<-t.Context().Done()
		}
		return
	}
	for _, c := range []struct{ does, detects, says string }{
		{"panics", "", "panic: no additions, please"}, {"changes", "true", "ALTERED"}, {"changes", "", ""},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndsProcess$", "-test.timeout=1m")
		cmd.Env = append(os.Environ(), variable+"="+c.does, detector+"="+c.detects)
		out, err := cmd.CombinedOutput()
		if (err != nil) != (c.says != "") || !strings.Contains(string(out), c.says) {
			t.Errorf("%+v: the process ended with %v and wrote %s", c, err, out)
		}
	}
}
