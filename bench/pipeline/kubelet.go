package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/observe"
	"watchlab/bench/pprof"
	"watchlab/impls/merge"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// kubelet is the kubelet pipeline: source → Reflector → UndeltaStore → channel → merge → sync loop.
// With static pods, the file and http sources have channels to the merger too.
type kubelet struct {
	merging
	static *staticPods // kubelet's other sources; nil without static pods
	loop   *syncLoop
	listed uint64 // version of the last list
}

func (k *kubelet) setup(ctx context.Context, r *round) (err error) {
	if err := r.open(ctx); err != nil {
		return err
	}
	if err := k.start(ctx, r); err != nil {
		return err
	}
	k.loop = newSyncLoop(k.merger.Updates(), r.st, k.notices, r.storm.Peak())
	if r.prepared.Static > 0 {
		if k.static, err = newStaticPods(r.prepared.Static); err != nil {
			return err
		}
		k.loop.static = k.static
		r.cleanup(k.static.close)
	}
	return nil
}

func (k *kubelet) play(ctx context.Context, rec *cell.Recorder) (err error) {
	inner, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	ch, err := channelOf(inner, k.merger, merge.APISource)
	if err != nil {
		return err
	}
	wg.Go(func() { pprof.Do(inner, stageSync, k.loop.run) })
	if k.static != nil {
		if err := k.static.run(inner, &wg, k.merger); err != nil {
			return err
		}
	}

	store := newPushStore(inner, k.r.st, ch, uint64(len(k.r.storm.Events)))
	reflector := cache.NewReflectorWithOptions(k.r.source.ListerWatcher(), &v1.Pod{}, store, cache.ReflectorOptions{Name: "kubelet"})
	wg.Go(func() { pprof.Do(inner, stageSource, reflector.RunWithContext) })
	received := k.notices.Published
	if err := k.r.await(ctx, k.notices.First, received); err != nil {
		return err
	}

	p := pace.On(k.r.storm.schedule)
	defer func() { _ = p.Close() }()
	if err := k.r.source.Ready(p); err != nil {
		return err
	}
	rec.Begin()
	stopChurn := func() error { return nil }
	if k.static != nil {
		stopChurn = k.static.churn(inner)
	}
	p.Start(k.r.st.Begin())
	pprof.Do(inner, stageSource, func(ctx context.Context) {
		err = k.r.source.Play(ctx, p, uint64(len(k.r.storm.Events)), k.r.st.ReleaseAt)
	})
	if err == nil {
		err = k.r.await(ctx, store.pushedAll, store.progress.Load)
	}
	if err == nil {
		// The channel is unbuffered: the merger takes LastPod after it has merged the
		// previous list.
		if err = send(ctx, ch, merge.ADD, []*v1.Pod{observe.LastPod}); err == nil {
			err = k.r.await(ctx, k.notices.Last, received)
		}
	}
	rec.End()
	err = errors.Join(err, stopChurn())
	if err == nil && k.static != nil {
		err = await(ctx, nil, k.static.progress.Load, k.r.stall, k.static.settled)
	}
	cancel()
	wg.Wait()
	k.listed = store.listed
	return err
}

func (k *kubelet) check(rec *cell.Recorder) observe.Outcome {
	if k.r.source.Relists() == 0 {
		k.listed = 0
	}
	o := k.match(rec, k.listed)
	if n := k.loop.errors; n > 0 {
		o.Violations.Add(lab.ErrDiverged, "the sync loop could not dispatch %d updates", n)
	}
	if k.static != nil {
		k.static.check(&o.Violations)
		rec.Note("static-changes", float64(k.static.changes))
	}
	noteSource(rec, k.r.source, len(k.r.storm.Events))
	o.Boundaries = append(o.Boundaries, observe.MergedHandled)
	return o
}

// pushStore is the Reflector's store: client-go's UndeltaStore. It pushes the whole list to the
// merger's channel after every change, as kubelet's api source does (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/config/apiserver.go). Only the Reflector's goroutine writes.
type pushStore struct {
	*cache.UndeltaStore
	st        *observe.Stamps
	last      uint64        // the storm's last event
	pushedAll chan struct{} // closed when a list that includes it was pushed
	progress  atomic.Uint64 // newest pushed event; other goroutines read it
	listed    uint64        // version of the last list
	changing  uint64        // event whose list is pushed; 0 for a list
}

var _ cache.ReflectorStore = (*pushStore)(nil)

func newPushStore(ctx context.Context, st *observe.Stamps, ch chan<- merge.PodUpdate, last uint64) *pushStore {
	s := &pushStore{st: st, last: last, pushedAll: make(chan struct{})}
	push := func(objs []any) {
		pods := make([]*v1.Pod, 0, len(objs))
		for _, o := range objs {
			if pod, ok := o.(*v1.Pod); ok {
				pods = append(pods, pod)
			}
		}
		st.Call(s.changing)
		_ = send(ctx, ch, merge.SET, pods) // an error ends the round
	}
	s.UndeltaStore = cache.NewUndeltaStore(push, cache.MetaNamespaceKeyFunc)
	return s
}

// pushed records that a list with all events up to seq was pushed.
func (s *pushStore) pushed(seq uint64) {
	if before := s.progress.Swap(seq); seq >= s.last && before < s.last {
		close(s.pushedAll)
	}
}

func (s *pushStore) change(write func(any) error, obj any) error {
	seq := observe.Sequence(obj)
	s.changing = seq
	if err := write(obj); err != nil {
		return err
	}
	s.st.Enqueue(seq)
	s.pushed(seq)
	return nil
}

func (s *pushStore) Add(obj any) error    { return s.change(s.UndeltaStore.Add, obj) }
func (s *pushStore) Update(obj any) error { return s.change(s.UndeltaStore.Update, obj) }
func (s *pushStore) Delete(obj any) error { return s.change(s.UndeltaStore.Delete, obj) }

func (s *pushStore) Replace(list []any, resourceVersion string) error {
	s.changing = 0
	if err := s.UndeltaStore.Replace(list, resourceVersion); err != nil {
		return err
	}
	s.st.Replace(list)
	s.listed = observe.ParseSequence(resourceVersion)
	s.pushed(s.listed)
	return nil
}

// syncLoop is kubelet's main loop for pods: one goroutine reads the merger's updates and keeps
// the pods, as kubelet's pod manager does (k8s.io/kubernetes v1.31.14,
// pkg/kubelet/kubelet.go, syncLoopIteration). ADD, UPDATE and RECONCILE keep the pods, REMOVE forgets them.
// DELETE is handled as an update, as deletion is graceful. An unknown operation, and SET, is an error: it is
// counted and logged, and the loop goes on. Kubelet's other channels bring nothing here: no containers run, and
// no pod workers request a resync.
type syncLoop struct {
	updates <-chan merge.PodUpdate // run ends when it is closed
	st      *observe.Stamps
	notices *observe.Notices // logs the updates
	static  *staticPods      // checks those of the file and http sources; nil without static pods

	// Only run's goroutine uses the fields below until it ends.
	pods   map[types.UID]*v1.Pod
	errors int // updates with unknown operations
}

func newSyncLoop(updates <-chan merge.PodUpdate, st *observe.Stamps, notices *observe.Notices, pods int) *syncLoop {
	return &syncLoop{updates: updates, st: st, notices: notices, pods: make(map[types.UID]*v1.Pod, pods)}
}

// run loops until ctx ends or updates is closed. It is called once.
func (l *syncLoop) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case u, open := <-l.updates:
			if !open {
				return
			}
			l.dispatch(u)
		}
	}
}

func (l *syncLoop) dispatch(u merge.PodUpdate) {
	received := l.st.Now()
	switch u.Op {
	case merge.ADD, merge.UPDATE, merge.DELETE, merge.RECONCILE:
		for _, p := range u.Pods {
			l.pods[p.UID] = p
		}
	case merge.REMOVE:
		for _, p := range u.Pods {
			delete(l.pods, p.UID)
		}
	default:
		// SET is among these: a sync loop takes changes, not states.
		l.errors++
		klog.ErrorS(nil, "A pod update with this operation can't be dispatched",
			"operation", u.Op, "source", u.Source, "pods", len(u.Pods))
	}
	if l.static != nil && u.Source != merge.APISource {
		l.static.take(u)
		return
	}
	l.notices.Add(u, received, l.st.Now())
}

// Parameters of the static pods.
const (
	staticEvery  = 5 * time.Millisecond  // between two changes of a source
	staticPeriod = 20 * time.Millisecond // between two reads of a source; kubelet's 20 s exceed a round
	versionLabel = "watchlab-version"    // label of a pod's version
)

// staticPods are kubelet's file and http sources: a directory and a URL, whose pods
// change periodically. The UID of a static pod is a hash of its manifest, so a change is
// a REMOVE and an ADD.
type staticPods struct {
	pods     int          // pods in each source
	dir      string       // of the file source
	server   *http.Server // serves body
	url      string
	client   *http.Client
	body     atomic.Pointer[[]byte]    // pod list of the http source
	problem  atomic.Pointer[error]     // first error that a source reported
	progress atomic.Uint64             // number of updates, for await
	mu       sync.Mutex                // guards the fields below
	written  map[string]map[string]int // last written version of each pod, by source and name
	changes  int                       // number of calls of change
	updates  []merge.PodUpdate         // the notifications, in order
}

// newStaticPods writes the first version of each pod.
func newStaticPods(pods int) (s *staticPods, err error) {
	s = &staticPods{
		pods: pods, written: map[string]map[string]int{merge.FileSource: {}, merge.HTTPSource: {}},
		client: &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
			s = nil
		}
	}()
	if s.dir, err = os.MkdirTemp("", "watchlab-static-"); err != nil {
		return s, err
	}
	for i := range pods {
		if err = s.change(i); err != nil {
			return s, err
		}
	}
	s.changes = 0
	listener, err := apiserver.Access{}.Listen("127.0.0.1:0")
	if err != nil {
		return s, err
	}
	s.url = "http://" + listener.Addr().String() + "/"
	s.server = apiserver.HTTPServer(listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(*s.body.Load()) // Where it fails, the client asks again.
	}), 0)
	// Where Serve fails, the source reports it.
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

func manifestOf(name string, version int) v1.Pod {
	return v1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Labels: map[string]string{versionLabel: strconv.Itoa(version)}},
		Spec: v1.PodSpec{
			HostNetwork: true,
			Containers:  []v1.Container{{Name: name, Image: "registry.example/" + name + ":v" + strconv.Itoa(version)}},
		},
	}
}

// change writes the next version of one pod of each source.
func (s *staticPods) change(i int) error {
	file, url := fmt.Sprintf("file-%d", i%s.pods), fmt.Sprintf("http-%d", i%s.pods)
	// The sync loop takes mu too, so it is not held while a file is written.
	s.mu.Lock()
	s.changes++
	s.written[merge.FileSource][file]++
	s.written[merge.HTTPSource][url]++
	pod := manifestOf(file, s.written[merge.FileSource][file])
	versions := maps.Clone(s.written[merge.HTTPSource])
	s.mu.Unlock()
	text, err := json.Marshal(&pod)
	if err != nil {
		return err
	}
	// A rename is atomic: no reader sees half a file.
	path := filepath.Join(s.dir, "."+file+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(s.dir, file+".json")); err != nil {
		return err
	}
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for name, version := range versions {
		list.Items = append(list.Items, manifestOf(name, version))
	}
	if text, err = json.Marshal(&list); err == nil {
		s.body.Store(&text)
	}
	return err
}

// run starts the sources; they end with ctx.
func (s *staticPods) run(ctx context.Context, wg *sync.WaitGroup, merger merge.Merger) error {
	opts := source.StaticOptions{NodeName: storm.NodeName, Period: staticPeriod, Client: s.client, Report: func(err error) {
		s.problem.CompareAndSwap(nil, &err)
	}}
	for name, src := range map[string]source.StaticPods{
		merge.FileSource: source.StaticFile(s.dir, opts),
		merge.HTTPSource: source.StaticURL(s.url, opts),
	} {
		ch, err := channelOf(ctx, merger, name)
		if err != nil {
			return err
		}
		wg.Go(func() { pprof.Do(ctx, stageSource, func(ctx context.Context) { src.Run(ctx, ch) }) })
	}
	return nil
}

// churn changes a pod of each source at once, and then periodically until its first error. stop ends that, waits
// for the last change, and returns the error.
func (s *staticPods) churn(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var changes errgroup.Group
	changes.Go(func() error {
		tick := time.NewTicker(staticEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			if err := s.change(i); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	})
	return func() error {
		cancel()
		return changes.Wait()
	}
}

func (s *staticPods) take(u merge.PodUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = append(s.updates, u)
	s.progress.Add(1)
}

// settled reports whether the notifications show the last written versions.
func (s *staticPods) settled() bool {
	var v observe.Violations
	s.check(&v)
	return !errors.Is(v.Err(), lab.ErrLost)
}

// check adds the violations so far: the version of a pod only grows, no version comes
// twice, and the last written ones are there.
func (s *staticPods) check(v *observe.Violations) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type pod struct {
		source, name string
		version      int
	}
	running, newest := map[types.UID]pod{}, map[string]int{}
	for _, u := range s.updates {
		for _, p := range u.Pods {
			name := strings.TrimSuffix(p.Name, "-"+storm.NodeName)
			version, err := strconv.Atoi(p.Labels[versionLabel])
			_, runs := running[p.UID]
			last := newest[u.Source+name]
			switch {
			case err != nil || s.written[u.Source][name] == 0:
				v.Add(lab.ErrDiverged, "%v of pod %s of source %s, which never went in", u.Op, p.Name, u.Source)
			case u.Op == merge.REMOVE && runs:
				delete(running, p.UID)
			case u.Op != merge.ADD && u.Op != merge.REMOVE:
				// Each version has its own UID, so no pod is updated.
				v.Add(lab.ErrDiverged, "%v of pod %s of source %s", u.Op, p.Name, u.Source)
			case u.Op == merge.REMOVE || runs || version == last:
				v.Add(lab.ErrDuplicated, "%v of pod %s version %d of source %s", u.Op, p.Name, version, u.Source)
			default:
				if version < last {
					v.Add(lab.ErrReordered, "pod %s version %d of source %s after version %d", p.Name, version, u.Source, last)
				}
				running[p.UID], newest[u.Source+name] = pod{u.Source, name, version}, max(last, version)
			}
		}
	}
	for source, written := range s.written {
		have, pods := map[string]int{}, 0
		for _, p := range running {
			if p.source == source {
				have[p.name] = p.version
				pods++
			}
		}
		if !maps.Equal(have, written) || len(have) != pods {
			v.Add(lab.ErrLost, "source %s has %d pods in the end, not as they were written last", source, pods)
		}
	}
	if p := s.problem.Load(); p != nil {
		v.Add(lab.ErrDiverged, "a static source: %v", *p)
	}
}

func (s *staticPods) close() (err error) {
	if s.server != nil {
		err = s.server.Close()
	}
	s.client.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(s.dir))
}
