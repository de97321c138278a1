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

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"watchlab/bench/pprof"
	"watchlab/impls/merge"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

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

// maxStatic is the largest [Config].Static. A change rewrites all pods of the URL.
const maxStatic = 1000

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

// churn changes a pod of each source at once, and then periodically; see [every].
func (s *staticPods) churn() (stop func() error) {
	i, first := 0, s.change(0)
	stopRest := every(staticEvery, func() error {
		i++
		return s.change(i)
	})
	return func() error { return errors.Join(first, stopRest()) }
}

func (s *staticPods) take(u merge.PodUpdate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = append(s.updates, u)
	s.progress.Add(1)
}

// settled reports whether the notifications show the last written versions.
func (s *staticPods) settled() bool {
	var v violations
	s.check(&v)
	return v[lost].n == 0
}

// check adds the violations so far: the version of a pod only grows, no version comes
// twice, and the last written ones are there.
func (s *staticPods) check(v *violations) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type pod struct {
		source, name string
		version      int
	}
	running, newest := map[types.UID]pod{}, map[string]int{}
	for _, u := range s.updates {
		if s.written[u.Source] == nil {
			v[diverged].add("%v of source %q, which there isn't", u.Op, u.Source)
			continue
		}
		for _, p := range u.Pods {
			name, ours := strings.CutSuffix(p.Name, "-"+storm.NodeName)
			version, err := strconv.Atoi(p.Labels[versionLabel])
			if err != nil || !ours {
				v[diverged].add("%v of pod %s of source %s, which never went in", u.Op, p.Name, u.Source)
				continue
			}
			_, runs := running[p.UID]
			last := newest[u.Source+name]
			switch {
			case u.Op == merge.REMOVE && !runs:
				v[duplicated].add("REMOVE of pod %s version %d of source %s, which is not there", p.Name, version, u.Source)
			case u.Op == merge.REMOVE:
			case u.Op != merge.ADD:
				// Each version has its own UID, so no pod is updated.
				v[diverged].add("%v of pod %s of source %s", u.Op, p.Name, u.Source)
			case runs || version == last:
				v[duplicated].add("ADD of pod %s version %d of source %s", p.Name, version, u.Source)
			case version < last:
				v[reordered].add("pod %s version %d of source %s after version %d", p.Name, version, u.Source, last)
			}
			if u.Op == merge.REMOVE {
				delete(running, p.UID)
				continue
			}
			running[p.UID] = pod{u.Source, name, version}
			newest[u.Source+name] = max(last, version)
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
			v[lost].add("source %s has %d pods in the end, not as they were written last", source, pods)
		}
	}
	if p := s.problem.Load(); p != nil {
		v[diverged].add("a static source: %v", *p)
	}
}

func (s *staticPods) close() (err error) {
	if s.server != nil {
		err = s.server.Close()
	}
	s.client.CloseIdleConnections()
	return errors.Join(err, os.RemoveAll(s.dir))
}
