package source

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5" //nolint:gosec // As the kubelet: a name, not a secret.
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"watchlab/impls/merge"
	"watchlab/loadgen/manifest"
)

// Defaults of the kubelet: the time between two reads, the maximum size of a read, and the
// timeout of a request.
const (
	StaticPeriod   = 20 * time.Second
	staticMaxBytes = 10 << 20
	staticTimeout  = 10 * time.Second
)

// HashAnnotation is the annotation with the hash of a static pod's manifest.
const HashAnnotation = "kubernetes.io/config.hash"

// ErrStaticPod is wrapped by the error for a manifest that the kubelet cannot use.
var ErrStaticPod = errors.New("invalid static pod")

// StaticOptions are the options of [StaticFile] and [StaticURL].
type StaticOptions struct {
	NodeName string        // name of the node; it is required
	Period   time.Duration // time between two reads; 0 means StaticPeriod
	// Report receives every error, on the goroutine of Run, which continues; nil ignores errors.
	Report func(error)
	Poll   bool         // no file notifications: files are read once per Period only
	Client *http.Client // nil means a client with a timeout of 10 s
}

func (o StaticOptions) complete() StaticOptions {
	o.Period = cmp.Or(o.Period, StaticPeriod)
	o.Client = cmp.Or(o.Client, &http.Client{Timeout: staticTimeout})
	if o.Report == nil {
		o.Report = func(error) {}
	}
	return o
}

// StaticPods is one of the kubelet's other two sources of pods: manifests in a folder
// ([StaticFile]) or at a URL ([StaticURL]).
//
// The pods equal those of the kubelet (k8s.io/kubernetes v1.31.14, pkg/kubelet/config,
// common.go, file.go, file_linux.go and http.go):
//
//   - A pod is bound to the node. The node's name in lower case becomes a suffix of
//     the pod's name, which makes it unique among nodes. The default namespace is
//     default, and the phase is Pending.
//   - The default UID is a hash of the manifest, of the node (files), and of the path
//     or URL. Another manifest gives another pod, the same manifest the same pod. The
//     annotation kubernetes.io/config.hash has the UID. (The merger sets
//     kubernetes.io/config.source and .seen.)
//   - Pods of files tolerate every NoExecute taint.
//   - Invalid files are reported and skipped.
//   - An empty source and a missing path send an empty SET, so that the source counts
//     as seen.
//
// There are three differences. The kubelet converts to internal types, sets API defaults and runs
// the API server's validation, which cannot be imported. Here defaults are missing, so hashes
// differ, and the only checks are names and containers with names and images. A file or a URL may
// contain anything that kubectl reads, such as a List. Three bugs of the kubelet are fixed. A
// folder that becomes empty is forgotten; the kubelet sends an empty state, then all pods again
// with the next change. An answer after an empty one counts as new. A replaced path stays watched.
type StaticPods interface {
	// Run reads the source until ctx ends and sends each whole state as a SET to updates, the
	// channel of a merger. It must be called once. A send blocks further reads.
	Run(ctx context.Context, updates chan<- merge.PodUpdate)
}

// sendSet sends a state, unless ctx ends first.
func sendSet(ctx context.Context, updates chan<- merge.PodUpdate, source string, pods []*v1.Pod) {
	select {
	case updates <- merge.PodUpdate{Pods: pods, Op: merge.SET, Source: source}:
	case <-ctx.Done():
	}
}

// read decodes the pods of a manifest and binds them to the node.
func (o StaticOptions) read(source string, data []byte, isFile bool) ([]*v1.Pod, error) {
	objects, err := manifest.Decode(source, data, true)
	if err != nil {
		return nil, err
	}
	pods := make([]*v1.Pod, 0, len(objects))
	for _, obj := range objects {
		pod, ok := obj.Object.(*v1.Pod)
		if !ok {
			return nil, fmt.Errorf("%w: %s is not a pod", ErrStaticPod, obj)
		}
		at, err := obj.String(), errors.New("a name is needed")
		if pod.Name != "" {
			err = o.bind(pod, source, isFile)
		}
		if err == nil {
			err = checkStatic(pod)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrStaticPod, at, err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

// bind does the same as applyDefaults in the kubelet's common.go.
func (o StaticOptions) bind(pod *v1.Pod, source string, isFile bool) error {
	if pod.UID == "" {
		text, err := json.Marshal(pod) // json.Marshal sorts map keys.
		if err != nil {
			return err
		}
		if isFile {
			text = append(text, "host:"+o.NodeName+"file:"+source...)
		} else {
			text = append(text, "url:"+source...)
		}
		sum := md5.Sum(text) //nolint:gosec // As above.
		pod.UID = types.UID(hex.EncodeToString(sum[:]))
	}
	pod.Name += "-" + strings.ToLower(o.NodeName)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = o.NodeName
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, HashAnnotation, string(pod.UID))
	if isFile {
		tolerate := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
		i := slices.IndexFunc(pod.Spec.Tolerations, func(t v1.Toleration) bool { return t.MatchToleration(&tolerate) })
		if i < 0 {
			pod.Spec.Tolerations = append(pod.Spec.Tolerations, tolerate)
		} else {
			pod.Spec.Tolerations[i] = tolerate
		}
	}
	pod.Status.Phase = v1.PodPending
	return nil
}

// checkStatic rejects pods that no kubelet can run.
func checkStatic(pod *v1.Pod) error {
	var errs []error
	bad := func(field, value string, problems []string) {
		if len(problems) > 0 {
			errs = append(errs, fmt.Errorf("%s %q: %s", field, value, strings.Join(problems, ", ")))
		}
	}
	bad("metadata.name", pod.Name, validation.IsDNS1123Subdomain(pod.Name))
	bad("metadata.namespace", pod.Namespace, validation.IsDNS1123Label(pod.Namespace))
	if len(pod.Spec.Containers) == 0 {
		errs = append(errs, errors.New("spec.containers: there are none"))
	}
	seen := map[string]bool{}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		bad("the container's name", c.Name, validation.IsDNS1123Label(c.Name))
		if seen[c.Name] {
			errs = append(errs, fmt.Errorf("two containers are called %q", c.Name))
		}
		seen[c.Name] = true
		if c.Image == "" {
			errs = append(errs, fmt.Errorf("container %q has no image", c.Name))
		}
	}
	return errors.Join(errs...)
}

func readAtMost(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, staticMaxBytes+1))
	if err == nil && len(data) > staticMaxBytes {
		err = fmt.Errorf("%w: more than %d MiB", ErrStaticPod, staticMaxBytes>>20)
	}
	return data, err
}

// staticURL reads static pods from a URL.
type staticURL struct {
	url  string
	opts StaticOptions
	last []byte // bytes of the last answer; only Run's goroutine uses it
}

// StaticURL returns the source of a URL with a pod or a list of pods, as JSON or YAML. It sends a
// request at the start and one period after each answer. It sends no SET for an answer that equals
// the last one, has another status than 200, or is invalid. An empty answer is the empty state.
func StaticURL(address string, opts StaticOptions) StaticPods {
	return &staticURL{url: address, opts: opts.complete()}
}

func (s *staticURL) Run(ctx context.Context, updates chan<- merge.PodUpdate) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := s.read(ctx, updates); err != nil && ctx.Err() == nil {
			s.opts.Report(err)
		}
		t.Reset(s.opts.Period)
	}
}

func (s *staticURL) read(ctx context.Context, updates chan<- merge.PodUpdate) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return err
	}
	res, err := s.opts.Client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // Read only.
	data, err := readAtMost(res.Body)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", s.url, err)
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: the server answered %s", s.url, res.Status)
	case len(data) == 0:
		sendSet(ctx, updates, merge.HTTPSource, nil)
		s.last = nil // The next answer counts as new, even if it equals the last one.
		return fmt.Errorf("%s: it is empty", s.url)
	case bytes.Equal(data, s.last):
		return nil
	}
	s.last = data
	pods, err := s.opts.read(s.url, data, false)
	if err != nil {
		return err
	}
	var kind metav1.TypeMeta
	if len(pods) == 0 && (yaml.Unmarshal(data, &kind) != nil || !strings.HasSuffix(kind.Kind, "List")) {
		return fmt.Errorf("%s: %w: neither a pod nor a list of pods", s.url, ErrStaticPod)
	}
	sendSet(ctx, updates, merge.HTTPSource, pods)
	return nil
}

// staticFile reads static pods from files. Only Run's goroutine uses its fields.
type staticFile struct {
	path    string
	opts    StaticOptions
	pods    map[string]*v1.Pod // the last readable pod of each file, by path
	watcher *fsnotify.Watcher  // nil while the path cannot be watched
}

// StaticFile returns the source of a path: a file, or a folder with one pod per file. Of a file with several
// documents, the first counts, as in the kubelet. The path may be created later. Hidden files (with a
// leading dot) and subfolders are ignored. Of two files with the same pod, the last one by name counts.
//
// It reads everything at the start and once per period, and tries again to watch a path that
// could not be watched. In between it reads each changed file. After each read it sends a SET of all
// pods. After an invalid change, the old pod stays until the next full read.
func StaticFile(path string, opts StaticOptions) StaticPods {
	return &staticFile{path: filepath.Clean(path), opts: opts.complete(), pods: map[string]*v1.Pod{}}
}

func (s *staticFile) Run(ctx context.Context, updates chan<- merge.PodUpdate) {
	tell := func(changed bool, err error) {
		if changed {
			s.send(ctx, updates)
		}
		if err != nil && ctx.Err() == nil {
			s.opts.Report(err)
		}
	}
	list := func() {
		tell(false, s.watch())
		tell(s.list())
	}
	period := time.NewTicker(s.opts.Period)
	defer period.Stop()
	defer s.unwatch()
	list()
	for ctx.Err() == nil {
		var events chan fsnotify.Event
		var failures chan error
		if s.watcher != nil {
			events, failures = s.watcher.Events, s.watcher.Errors
		}
		select {
		case <-ctx.Done():
		case <-period.C:
			list()
		case e, ok := <-events:
			switch {
			case !ok:
				s.unwatch()
			case e.Name == s.path && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
				// Another file or folder may have replaced the path.
				s.unwatch()
				list()
			default:
				tell(s.change(e))
			}
		case err := <-failures:
			tell(false, fmt.Errorf("%s: watching it: %w", s.path, err))
			s.unwatch()
		}
	}
}

// send sends all pods, in order of key.
func (s *staticFile) send(ctx context.Context, updates chan<- merge.PodUpdate) {
	byKey := map[string]*v1.Pod{}
	for _, path := range slices.Sorted(maps.Keys(s.pods)) {
		byKey[s.pods[path].Namespace+"/"+s.pods[path].Name] = s.pods[path]
	}
	var pods []*v1.Pod
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		pods = append(pods, byKey[key])
	}
	sendSet(ctx, updates, merge.FileSource, pods)
}

func (s *staticFile) unwatch() {
	if s.watcher != nil {
		_ = s.watcher.Close() // No change is lost: a full read follows.
		s.watcher = nil
	}
}

// watch watches the path, before it is read, so that no change is lost.
func (s *staticFile) watch() error {
	if _, err := os.Stat(s.path); s.watcher != nil || s.opts.Poll || err != nil {
		return nil //nolint:nilerr // list returns it.
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		s.watcher, err = w, w.Add(s.path)
	}
	if err != nil {
		s.unwatch()
		return fmt.Errorf("%s: watching it: %w", s.path, err)
	}
	return nil
}

// list reads the whole path, and reports whether that succeeded.
func (s *staticFile) list() (read bool, err error) {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		clear(s.pods)
		return true, fmt.Errorf("%s: it does not exist", s.path)
	case err != nil:
		return false, err
	case info.Mode().IsRegular():
		pod, err := s.file(s.path)
		if err == nil {
			s.pods = map[string]*v1.Pod{s.path: pod}
		}
		return err == nil, err
	case !info.IsDir():
		return false, fmt.Errorf("%s: it is neither a folder nor a file", s.path)
	}
	entries, err := os.ReadDir(s.path)
	if err != nil {
		return false, err
	}
	clear(s.pods)
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(s.path, e.Name())
		if pod, err := s.file(path); err == nil {
			s.pods[path] = pod
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return true, errors.Join(errs...)
}

func (s *staticFile) file(path string) (*v1.Pod, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: it is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // Read only.
	data, err := readAtMost(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pods, err := s.opts.read(path, data, true)
	if err == nil && len(pods) == 0 {
		err = fmt.Errorf("%s: %w: it has no pod", path, ErrStaticPod)
	}
	if err != nil {
		return nil, err
	}
	return pods[0], nil
}

// change reads a file that has changed, and reports whether the pods have.
func (s *staticFile) change(e fsnotify.Event) (changed bool, err error) {
	if strings.HasPrefix(filepath.Base(e.Name), ".") {
		return false, nil
	}
	if e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename) {
		_, known := s.pods[e.Name]
		delete(s.pods, e.Name)
		return known, nil
	}
	pod, err := s.file(e.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // The event of its removal follows.
	}
	if err == nil {
		s.pods[e.Name] = pod
	}
	return err == nil, err
}
