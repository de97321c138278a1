package informer_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"pgregory.net/rapid"

	"watchlab/impls/informer"
)

// step is something that happens to two informers of one source.
type step struct {
	do string
	// key is the number of an object, or of a handler.
	key int
	// period is the resync period of a handler, or how much time passes.
	period time.Duration
}

func (s step) String() string { return fmt.Sprintf("%s(%d, %v)", s.do, s.key, s.period) }

// What relists loses updates and breaks the watch, what resyncs lets time pass. Not both, because
// two informers relist at different times, which is when their resync checks begin anew.
var (
	relists = []string{"change", "change", "change", "delete", "recreate", "settle", "add handler", "remove handler", "relist"}
	resyncs = []string{"change", "change", "delete", "recreate", "settle", "add handler", "remove handler", "pass"}
)

func steps(of []string) *rapid.Generator[[]step] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			do:     rapid.SampledFrom(of).Draw(t, "do"),
			key:    rapid.IntRange(0, 4).Draw(t, "key"),
			period: time.Duration(rapid.IntRange(0, 5).Draw(t, "seconds")) * time.Second,
		}
	}), 10, 80)
}

// TestDifferential runs the same random steps on client-go's informer and on one per variant.
// Between two idle moments it compares the notifications of each handler: in total order if the
// queue guarantees that and there was no relist (a list has no order), otherwise per key. rapid
// prints the seed and shrinks a difference.
func TestDifferential(t *testing.T) {
	for name, of := range map[string][]string{"relists": relists, "resyncs": resyncs} {
		t.Run(name, func(t *testing.T) {
			eachQueue(t, func(t *testing.T, opts informer.Options) {
				total := totallyOrdered(t, opts)
				if name == "resyncs" {
					opts.ResyncPeriod = 2 * time.Second
				}
				rapid.Check(t, func(rt *rapid.T) {
					steps := steps(of).Draw(rt, "steps")
					var err error
					synctest.Test(t, func(t *testing.T) { err = compare(t, opts, total, steps) })
					if err != nil {
						rt.Fatal(err)
					}
				})
			})
		})
	}
}

// comparison is two informers of one source, and their handlers: pairs[i][0] is upstream's.
type comparison struct {
	source    source
	informers [2]cache.SharedIndexInformer
	recorders [][2]*recorder
	handles   [][2]cache.ResourceEventHandlerRegistration
	live      map[int]*v1.Pod
	uid       int
	// listed: something was listed since the last comparison.
	listed bool
	total  bool
}

func compare(t *testing.T, opts informer.Options, total bool, steps []step) error {
	c := &comparison{source: newSource(t), live: map[int]*v1.Pod{}, listed: true, total: total}
	c.informers = [2]cache.SharedIndexInformer{
		cache.NewSharedIndexInformer(c.source, &v1.Pod{}, opts.ResyncPeriod, cache.Indexers{}),
		newInformer(t, c.source, opts),
	}
	for k := range 3 {
		c.change(k)
	}
	if err := c.addHandler(opts.ResyncPeriod); err != nil {
		return err
	}
	for _, inf := range c.informers {
		run(t, inf)
	}
	// Resync checks are at whole seconds, all that we do is not.
	time.Sleep(500 * time.Millisecond)
	if err := c.settle(); err != nil {
		return err
	}
	for i, s := range steps {
		if err := c.play(s); err != nil {
			return fmt.Errorf("after step %d of %v: %w", i, steps, err)
		}
	}
	return c.settle()
}

func (c *comparison) play(s step) error {
	switch s.do {
	case "change":
		c.change(s.key)
	case "delete":
		c.delete(s.key)
	case "recreate":
		c.delete(s.key)
		c.change(s.key)
	case "settle":
		return c.settle()
	case "add handler":
		// Both must have come as far as each other for the initial list.
		if err := c.settle(); err != nil {
			return err
		}
		c.listed = true
		return c.addHandler(s.period)
	case "remove handler":
		if err := c.settle(); err != nil {
			return err
		}
		return c.removeHandler(s.key)
	case "relist":
		return c.relist(s.key)
	case "pass":
		if err := c.settle(); err != nil {
			return err
		}
		c.listed = true
		time.Sleep(s.period)
		return c.settle()
	}
	return nil
}

func (c *comparison) change(k int) {
	p := pod(fmt.Sprint("pod-", k))
	if was := c.live[k]; was != nil {
		p.UID = was.UID
		c.live[k] = p
		c.source.Modify(p)
		return
	}
	c.uid++
	p.UID = types.UID(fmt.Sprint(c.uid))
	c.live[k] = p
	c.source.Add(p)
}

func (c *comparison) delete(k int) {
	if p := c.live[k]; p != nil {
		delete(c.live, k)
		c.source.Delete(p.DeepCopy())
	}
}

// relist changes three objects without an event, and breaks the watches.
func (c *comparison) relist(k int) error {
	if err := c.settle(); err != nil {
		return err
	}
	for i := range 3 {
		k := (k + i) % 5
		was := c.live[k]
		p := pod(fmt.Sprint("pod-", k))
		switch {
		case was == nil:
			c.uid++
			p.UID = types.UID(fmt.Sprint(c.uid))
			c.live[k] = p
			c.source.AddDropWatch(p)
		case i == 1:
			delete(c.live, k)
			c.source.DeleteDropWatch(was.DeepCopy())
		default:
			p.UID = was.UID
			c.live[k] = p
			c.source.ModifyDropWatch(p)
		}
	}
	c.listed = true
	c.source.ResetWatch()
	// However long the Reflectors back off.
	time.Sleep(5 * time.Minute)
	return c.settle()
}

func (c *comparison) addHandler(period time.Duration) error {
	var recorders [2]*recorder
	var handles [2]cache.ResourceEventHandlerRegistration
	for i, inf := range c.informers {
		recorders[i] = &recorder{}
		var err error
		if handles[i], err = inf.AddEventHandlerWithResyncPeriod(recorders[i], period); err != nil {
			return err
		}
	}
	c.recorders, c.handles = append(c.recorders, recorders), append(c.handles, handles)
	return nil
}

func (c *comparison) removeHandler(n int) error {
	n %= len(c.handles)
	for i, inf := range c.informers {
		if err := inf.RemoveEventHandler(c.handles[n][i]); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until nothing is under way, and compares.
func (c *comparison) settle() error {
	synctest.Wait()
	defer func() { c.listed = false }()
	for i, r := range c.recorders {
		want, got := transcript(r[0].take(), c.total && !c.listed), transcript(r[1].take(), c.total && !c.listed)
		if want != got {
			return fmt.Errorf("handler %d received\n%s\nand by upstream\n%s", i, got, want)
		}
		if want, got := c.handles[i][0].HasSynced(), c.handles[i][1].HasSynced(); want != got {
			return fmt.Errorf("handler %d: HasSynced is %v, upstream's %v", i, got, want)
		}
		if want, got := c.handles[i][0].HasSyncedChecker().Name(), c.handles[i][1].HasSyncedChecker().Name(); want != got {
			return fmt.Errorf("handler %d is called %q, upstream %q", i, got, want)
		}
	}
	want, got := contents(c.informers[0].GetStore()), contents(c.informers[1].GetStore())
	if !maps.Equal(want, got) {
		return fmt.Errorf("the store holds %v, upstream's %v", got, want)
	}
	for _, inf := range c.informers {
		if !inf.HasSynced() {
			return fmt.Errorf("%T has not synced", inf)
		}
	}
	if want, got := c.informers[0].LastSyncResourceVersion(), c.informers[1].LastSyncResourceVersion(); want != got {
		return fmt.Errorf("LastSyncResourceVersion is %q, upstream's %q", got, want)
	}
	return nil
}

// transcript is one line a call: as they came, or by key.
func transcript(calls []call, inOrder bool) string {
	if !inOrder {
		calls = sorted(calls)
	}
	lines := make([]string, len(calls))
	for i, c := range calls {
		lines[i] = "  " + c.String()
	}
	return strings.Join(lines, "\n")
}

// contents is the version of each object.
func contents(s cache.Store) map[string]string {
	m := map[string]string{}
	for _, o := range s.List() {
		m[key(o)] = resourceVersion(o)
	}
	return m
}

// sorted orders calls by key, those of a key as they came.
func sorted(calls []call) []call {
	return slices.SortedStableFunc(slices.Values(calls), func(a, b call) int { return strings.Compare(a.key, b.key) })
}
