package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/bench/profile"
	"watchlab/impls/merge"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// Parameters of the static pods.
const (
	// staticEvery is the time between two changes of a source.
	staticEvery = 5 * time.Millisecond
	// staticPeriod is the interval at which the sources read all pods. kubelet's is 20
	// s, longer than a round.
	staticPeriod = 20 * time.Millisecond
	// versionLabel holds the version of a static pod.
	versionLabel = "watchlab-version"
)

// staticPods are kubelet's file and http sources: a directory and a URL, whose pods
// change periodically. The UID of a static pod is a hash of its manifest, so a change is
// a REMOVE and an ADD.
type staticPods struct {
	// pods in each source.
	pods int
	// dir is the directory of the file source.
	dir string
	// server serves body, the pod list of the http source; served has its result.
	server   *http.Server
	listener net.Listener
	served   chan error
	client   *http.Client
	body     atomic.Pointer[[]byte]
	// versions are the written versions by source and name; changes is the number of
	// calls of change. One goroutine writes; others read after over is set.
	versions map[string]map[string]int
	changes  int
	// problems has the first error that a source reported.
	problems atomic.Pointer[error]
	// progress counts updates, for await.
	progress atomic.Uint64
	// settled is closed when the notifications show all final versions.
	settled chan struct{}
	// mu guards the fields below.
	mu sync.Mutex
	// current has the running pods by source and UID; newest the last notified version
	// by source and name.
	current map[string]map[types.UID]staticPod
	newest  map[string]map[string]int
	// over: versions is final.
	over   bool
	broken violations
}

type staticPod struct {
	name    string
	version int
}

// maxStatic is the largest [Config].Static. A change rewrites all pods of the URL.
const maxStatic = 1000

// staticNames are the sources.
var staticNames = []string{merge.FileSource, merge.HTTPSource}

// newStaticPods writes the first version of each pod.
func newStaticPods(pods int) (s *staticPods, err error) {
	s = &staticPods{
		pods: pods, served: make(chan error, 1), settled: make(chan struct{}),
		client:   &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second},
		versions: map[string]map[string]int{}, current: map[string]map[types.UID]staticPod{}, newest: map[string]map[string]int{},
	}
	for _, source := range staticNames {
		s.versions[source], s.current[source], s.newest[source] = map[string]int{}, map[types.UID]staticPod{}, map[string]int{}
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
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return s, err
	}
	s.server = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(*s.body.Load()) // Where it fails, the client asks again.
	})}
	go func() { s.served <- s.server.Serve(s.listener) }()
	return s, nil
}

// manifestOf returns a version of a static pod.
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
	s.changes++
	name := fmt.Sprintf("file-%d", i%s.pods)
	s.versions[merge.FileSource][name]++
	pod := manifestOf(name, s.versions[merge.FileSource][name])
	text, err := json.Marshal(&pod)
	if err != nil {
		return err
	}
	// A rename is atomic: no reader sees half a file.
	path := filepath.Join(s.dir, "."+name+".json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(s.dir, name+".json")); err != nil {
		return err
	}

	s.versions[merge.HTTPSource][fmt.Sprintf("http-%d", i%s.pods)]++
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}}
	for i := range s.pods {
		name := fmt.Sprintf("http-%d", i)
		if v := s.versions[merge.HTTPSource][name]; v > 0 {
			list.Items = append(list.Items, manifestOf(name, v))
		}
	}
	if text, err = json.Marshal(&list); err != nil {
		return err
	}
	s.body.Store(&text)
	return nil
}

// run starts the sources; they end with ctx.
func (s *staticPods) run(ctx context.Context, wg *sync.WaitGroup, merger merge.Merger) error {
	opts := source.StaticOptions{NodeName: storm.NodeName, Period: staticPeriod, Client: s.client, Report: func(err error) {
		s.problems.CompareAndSwap(nil, &err)
	}}
	file, err := source.StaticFile(s.dir, opts)
	if err != nil {
		return err
	}
	url, err := source.StaticURL("http://"+s.listener.Addr().String()+"/", opts)
	if err != nil {
		return err
	}
	for name, src := range map[string]source.StaticPods{merge.FileSource: file, merge.HTTPSource: url} {
		ch, err := channelOf(ctx, merger, name)
		if err != nil {
			return err
		}
		wg.Go(func() { profile.Do(ctx, stageSource, func(ctx context.Context) { src.Run(ctx, ch) }) })
	}
	return nil
}

// churn changes a pod of each source periodically. stop ends that and returns the
// error.
func (s *staticPods) churn() (stop func() error) {
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		tick := time.NewTicker(staticEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-done:
				result <- nil
				return
			case <-tick.C:
			}
			if err := s.change(i); err != nil {
				result <- err
				return
			}
		}
	}()
	return sync.OnceValue(func() error {
		close(done)
		return <-result
	})
}

// finish marks the written versions as final. settled is closed when the notifications
// show them all.
func (s *staticPods) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.settle()
}

// settle closes settled when nothing is missing. The caller holds mu.
func (s *staticPods) settle() {
	if !s.over || len(s.missing()) > 0 {
		return
	}
	select {
	case <-s.settled:
	default:
		close(s.settled)
	}
}

// missing lists the sources whose last notifications differ from the written versions.
// The caller holds mu.
func (s *staticPods) missing() []string {
	var missing []string
	for _, source := range staticNames {
		have := map[string]int{}
		for _, p := range s.current[source] {
			have[p.name] = p.version
		}
		if maps.Equal(have, s.versions[source]) && len(have) == len(s.current[source]) {
			continue
		}
		missing = append(missing, fmt.Sprintf("source %s has %d pods in the end, not as they were written last", source, len(s.current[source])))
	}
	return missing
}

// take checks an update: the version of a pod only grows, and no version comes twice.
func (s *staticPods) take(u merge.PodUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.Add(1)
	current, newest := s.current[u.Source], s.newest[u.Source]
	if current == nil {
		s.broken.diverged.add("%v of source %q, which there isn't", u.Op, u.Source)
		return
	}
	suffix := "-" + storm.NodeName
	for _, pod := range u.Pods {
		name := pod.Name[:max(0, len(pod.Name)-len(suffix))]
		version, err := strconv.Atoi(pod.Labels[versionLabel])
		if err != nil || name == "" {
			s.broken.diverged.add("%v of pod %s of source %s, which never went in", u.Op, pod.Name, u.Source)
			continue
		}
		_, there := current[pod.UID]
		switch u.Op {
		case merge.REMOVE:
			if !there {
				s.broken.duplicated.add("REMOVE of pod %s version %d of source %s, which is not there", pod.Name, version, u.Source)
			}
			delete(current, pod.UID)
			continue
		case merge.ADD:
			switch {
			case there || version == newest[name]:
				s.broken.duplicated.add("ADD of pod %s version %d of source %s", pod.Name, version, u.Source)
			case version < newest[name]:
				s.broken.reordered.add("pod %s version %d of source %s after version %d", pod.Name, version, u.Source, newest[name])
			}
		default:
			// Each version has its own UID, so no pod is updated.
			s.broken.diverged.add("%v of pod %s of source %s", u.Op, pod.Name, u.Source)
		}
		current[pod.UID] = staticPod{name, version}
		newest[name] = max(newest[name], version)
	}
	s.settle()
}

// check adds the violations. It is called when all goroutines have ended.
func (s *staticPods) check(v *violations) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.missing() {
		s.broken.lost.add("%s", m)
	}
	v.join(&s.broken)
	if p := s.problems.Load(); p != nil {
		v.diverged.add("a static source: %v", *p)
	}
}

// close stops the server and removes the directory.
func (s *staticPods) close() error {
	var errs []error
	if s.server != nil {
		errs = append(errs, s.server.Close())
		if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
		}
		s.server = nil
	}
	s.client.CloseIdleConnections()
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
		s.dir = ""
	}
	return errors.Join(errs...)
}
