package static

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"watchlab/impls/merge"
)

// How long the kubelet waits before it tries to watch a path again: at first,
// and at most.
const (
	retryPeriod    = time.Second
	maxRetryPeriod = 20 * time.Second
)

// FileOptions are those of [File].
type FileOptions struct {
	Options

	Poll bool
}

// FileSource reads static pods from a file, or from the files of a folder: those
// whose names don't begin with a dot, one pod in each, no matter what their
// names end in. Folders in it are not read.
//
// It reads all when it starts and every Period; in between the system tells of
// changes, after each of which the file that changed is read. Each of this is
// followed by a SET of all the pods: the store is client-go's UndeltaStore. A
// change that can't be used leaves the pod of before until all is read again.
type FileSource struct {
	path string
	opts FileOptions

	store *cache.UndeltaStore
	keys  map[string]string

	dead bool
}

var _ Source = (*FileSource)(nil)

// File returns the source of a path, which may come to be later. The error wraps
// [ErrOptions].
func File(path string, opts FileOptions) (*FileSource, error) {
	var err error
	if opts.Options, err = opts.complete(); err != nil {
		return nil, err
	}
	if path == "" {
		return nil, fmt.Errorf("static: %w: no path", ErrOptions)
	}
	return &FileSource{path: filepath.Clean(path), opts: opts, keys: map[string]string{}}, nil
}

// Run is [Source]'s.
func (s *FileSource) Run(ctx context.Context, updates chan<- merge.PodUpdate) {
	s.store = cache.NewUndeltaStore(func(objs []any) {
		pods := make([]*v1.Pod, 0, len(objs))
		for _, o := range objs {
			pods = append(pods, o.(*v1.Pod))
		}

		slices.SortFunc(pods, func(a, b *v1.Pod) int {
			return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
		})
		s.dead = !send(ctx, updates, merge.FileSource, pods)
	}, cache.MetaNamespaceKeyFunc)

	list := time.NewTicker(s.opts.Period)
	defer list.Stop()
	var w watching
	defer w.close()
	// The watch is begun before the path is read, so that no change gets lost
	// between them.
	retry := s.watch(&w)
	s.report(s.list())
	for ctx.Err() == nil && !s.dead {
		select {
		case <-ctx.Done():
		case <-list.C:
			s.report(s.list())
		case e, ok := <-w.events():
			switch {
			case !ok:
				retry = s.watch(&w)
			case e.Name == s.path && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
				// What was watched is gone; there may be another in its place.
				retry = s.watch(&w)
				s.report(s.list())
			default:
				s.report(s.changed(e))
			}
		case err := <-w.errors():
			s.report(fmt.Errorf("%s: watching it: %w", s.path, err))
			w.close()
			retry = s.watch(&w)
		case <-retry:
			if retry = s.watch(&w); retry == nil {
				// What happened before is found by reading.
				s.report(s.list())
			}
		}
	}
}

func (s *FileSource) report(err error) {
	if err != nil && !s.dead {
		s.opts.Report(err)
	}
}

// watching is what tells of changes, while it does.
type watching struct {
	w     *fsnotify.Watcher
	pause time.Duration
}

func (w *watching) events() <-chan fsnotify.Event {
	if w.w == nil {
		return nil
	}
	return w.w.Events
}

func (w *watching) errors() <-chan error {
	if w.w == nil {
		return nil
	}
	return w.w.Errors
}

func (w *watching) close() {
	if w.w != nil {
		_ = w.w.Close() // Nothing is left to be lost.
		w.w = nil
	}
}

// watch has the system tell of changes. Where it can't, a channel that is not
// nil says when to try again.
func (s *FileSource) watch(w *watching) <-chan time.Time {
	if s.opts.Poll {
		return nil
	}
	w.close()
	again := func() <-chan time.Time {
		w.pause = min(max(2*w.pause, retryPeriod), maxRetryPeriod)
		return time.After(w.pause)
	}
	if _, err := os.Stat(s.path); err != nil {
		// It may come to be, at any time; list says that it isn't there.
		w.pause = 0
		return again()
	}
	fw, err := fsnotify.NewWatcher()
	if err == nil {
		if err = fw.Add(s.path); err == nil {
			w.w, w.pause = fw, 0
			return nil
		}
		_ = fw.Close()
	}
	s.report(fmt.Errorf("%s: watching it: %w", s.path, err))
	return again()
}

// list reads the whole path.
func (s *FileSource) list() error {
	info, err := os.Stat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.replace(nil)
		return fmt.Errorf("%s: it doesn't exist", s.path)
	case err != nil:
		return err
	case info.IsDir():
		return s.listFolder()
	case info.Mode().IsRegular():
		pod, err := s.file(s.path)
		if err != nil {
			return err
		}
		s.replace([]*v1.Pod{pod})
		return nil
	default:
		return fmt.Errorf("%s: it is neither a folder nor a file", s.path)
	}
}

func (s *FileSource) listFolder() error {
	entries, err := os.ReadDir(s.path) // In the order of their names.
	if err != nil {
		return err
	}
	var pods []*v1.Pod
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path := filepath.Join(s.path, e.Name())
		pod, err := s.file(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// It has gone since.
		case err != nil:
			errs = append(errs, err)
		default:
			pods = append(pods, pod)
		}
	}
	s.replace(pods)
	return errors.Join(errs...)
}

// replace puts the pods in place of all others.
func (s *FileSource) replace(pods []*v1.Pod) {
	objs := make([]any, len(pods))
	for i, p := range pods {
		objs[i] = p
	}
	// The only error is that of the key function, which file has tried.
	_ = s.store.Replace(objs, "")
}

// file reads the pod of a file.
func (s *FileSource) file(path string) (*v1.Pod, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: it is not a file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // It was read only.
	data, err := readAtMost(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pods, err := s.opts.read(path, data, true)
	if err != nil {
		return nil, err
	}
	if len(pods) != 1 {
		return nil, fmt.Errorf("%s: %w: it has %d pods, not one", path, ErrPod, len(pods))
	}
	key, err := cache.MetaNamespaceKeyFunc(pods[0])
	if err != nil {
		return nil, err
	}
	s.keys[path] = key
	return pods[0], nil
}

// changed reads what the system tells of.
func (s *FileSource) changed(e fsnotify.Event) error {
	if strings.HasPrefix(filepath.Base(e.Name), ".") {
		return nil
	}
	switch {
	case e.Has(fsnotify.Create), e.Has(fsnotify.Write), e.Has(fsnotify.Chmod):
		pod, err := s.file(e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // The news of that is on its way.
		}
		if err != nil {
			return err
		}
		return s.store.Add(pod)
	case e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
		return s.removed(e.Name)
	default:
		return nil
	}
}

func (s *FileSource) removed(path string) error {
	key, known := s.keys[path]
	if !known {
		return nil
	}
	delete(s.keys, path)
	pod, there, err := s.store.GetByKey(key)
	if err != nil || !there {
		return err
	}
	return s.store.Delete(pod)
}
