package record

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/apiserver"
)

// maxBody is the number of bytes of a body that are kept to read its metadata. It is the limit of
// an API server for a request. The metadata of longer answers stays unknown.
const maxBody = 3 << 20

// Recorder records the requests of controllers to an API server and the server's changes. It works on HTTP
// only: the handler is a simulated server or a reverse proxy of a real one. Its methods are safe for
// concurrent use.
//
// [Recorder.Wrap] belongs outside of the fault injector and inside of the check of tokens, which names the
// client. The recorder thus sees an injected answer as the client does.
type Recorder struct {
	base time.Time // all times are kept as the time since base, with its monotonic clock

	mu       sync.Mutex // guards all fields below
	zero     time.Duration
	accesses []Access
	changes  []Change
	watches  map[*flight]struct{} // open
	known    map[ID]uint64        // newest version that a change or an answer showed
	locks    map[ID]bool          // objects other than leases that leaders lock
	writers  map[writer]rhythm
	steps    map[step]bool        // those so far; see [Activity].Progress
	made     map[types.UID]string // client that has made an object
	leader   string               // client that has written a lock last
	activity Activity[time.Duration]
}

// Activity has the times from which it can be told whether clients are done. T is [time.Time] for a caller. What is
// [Access.Background] does not count.
type Activity[T any] struct {
	Changed T // last change by a client or the lifecycle
	// Progress is the last change by a client with which it came to another object that it has not made itself: the first
	// one of it, or of what that owns. A loop makes none, a client with a backlog does.
	Progress T
	Wrote    T // end of the last write by a client
	Useless  T // end of the last write without a change
	// Again is the time until which the next write is due of a client that writes an object at regular, short intervals:
	// its own write wakes it. Retry is that of the next try of a failed write, whose intervals
	// double, or which client-go's default rate limiter makes wait for as often as it has failed for a while.
	Again, Retry T
}

// writer is a client's part in an object.
type writer struct {
	client, subresource string
	ID
}

// rhythm is the last write of a writer.
type rhythm struct {
	at, gap time.Duration // gap to the write before it, 0 for the first one
	failed  bool
	tries   int           // in a row that failed in passing, as by a conflict
	retry   time.Duration // time of the next one, 0 for none
}

// The delays of client-go's default rate limiter (v0.37.2), the longest one cut. Regular writes are a timer's from heartbeat on.
const firstDelay, doublings, heartbeat = 5 * time.Millisecond, 13, 5 * time.Second

// NewRecorder returns a recorder whose time zero is now; see [Recorder.Start].
func NewRecorder() *Recorder {
	return &Recorder{
		base: time.Now(), watches: map[*flight]struct{}{}, known: map[ID]uint64{}, locks: map[ID]bool{}, writers: map[writer]rhythm{},
		steps: map[step]bool{}, made: map[types.UID]string{},
	}
}

// Start sets time zero, the start of the storm. Earlier accesses and changes have negative times.
func (r *Recorder) Start(at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.zero = at.Sub(r.base)
}

// Observe adds a change. The caller keeps the order of each resource's log.
func (r *Recorder) Observe(c apiserver.Change) {
	out := Change{
		At: c.At.Sub(r.base), By: c.By, Type: c.Type, Resource: c.Resource, Key: c.Key, Version: c.Version,
		Object: c.Object, Before: c.Before,
	}
	if out.Intended = out.At; !c.Intended.IsZero() {
		out.Intended = c.Intended.Sub(r.base)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o := out.ID()
	if locked(o.Resource, c.Object) {
		r.locks[o] = true
	}
	out.Lock = r.locks[o]
	r.changes = append(r.changes, out)
	r.learn(o, c.Version)
	switch c.By {
	case ByStorm, ByWorkload, ByManifest, "":
	default:
		if !out.Background() {
			r.activity.Changed = out.At
			r.progress(&out)
		}
	}
}

// locked reports whether an object is one that client-go's leaders locked before they had leases, by
// resourcelock.LeaderElectionRecordAnnotationKey.
func locked(r schema.GroupResource, o runtime.Object) bool {
	if r.Group != "" || r.Resource != "configmaps" && r.Resource != "endpoints" {
		return false
	}
	m, ok := o.(metav1.Object)
	if !ok {
		return false
	}
	_, ok = m.GetAnnotations()["control-plane.alpha.kubernetes.io/leader"]
	return ok
}

// learn notes a version of an object. The caller holds mu.
func (r *Recorder) learn(o ID, version uint64) { r.known[o] = max(r.known[o], version) }

// Wrap returns a handler that records the requests to next which [apiserver.WithClient] has named, except
// those for no resource (discovery, health). It keeps Flush, and other methods by Unwrap. It passes each
// Write of a watch on as it is, so that frames stay whole.
func (r *Recorder) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		access, ok := parse(req)
		if access.Client = apiserver.ClientOf(req.Context()); access.Client == "" || !ok {
			next.ServeHTTP(w, req)
			return
		}
		f := r.begin(access, w)
		// A handler that aborts the answer panics.
		defer r.end(f, req)
		if f.changes() {
			f.body, _ = io.ReadAll(io.LimitReader(req.Body, maxBody)) // The handler meets the error, too.
			copied := *req                                            // It must not change its request.
			copied.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(f.body), req.Body), req.Body}
			req = &copied
		}
		next.ServeHTTP(f, req)
	})
}

func (r *Recorder) begin(access Access, w http.ResponseWriter) *flight {
	f := &flight{ResponseWriter: w, Access: access}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Verb == "watch" {
		r.watches[f] = struct{}{}
	}
	if f.changes() {
		f.known = r.known[f.ID()]
	}
	f.At = time.Since(r.base) // under mu: after all changes that known includes
	return f
}

func (r *Recorder) end(f *flight, req *http.Request) {
	r.mu.Lock() // Result reads an open watch.
	f.Took = time.Since(r.base) - f.At
	f.Code, f.Out = int(f.code.Load()), f.out.Load() // An aborted answer has no code if nothing was written.
	r.mu.Unlock()
	if f.changes() {
		f.In = max(int64(len(f.body)), req.ContentLength)
		f.read(req.Header.Get("Content-Type"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watches, f)
	o := f.ID()
	if f.Version > 0 && f.Code < 300 {
		f.Unchanged = f.Version == f.Based || f.Version <= f.known
		r.learn(o, f.Version)
	}
	if f.Lock = r.locks[o]; f.Access.Writes() && f.Code < 300 && (f.Lock || f.Resource.Resource == "leases") {
		r.leader = f.Client
	}
	if f.Access.Writes() && !f.Background() {
		r.wrote(&f.Access, o)
	}
	r.accesses = append(r.accesses, f.Access)
}

// wrote follows the rhythm of a writer. The caller holds mu.
func (r *Recorder) wrote(a *Access, o ID) {
	w := writer{a.Client, a.Subresource, o}
	before, known := r.writers[w]
	now := rhythm{at: a.At, failed: a.Code == 0 || a.Code >= 400}
	if known {
		now.gap = a.At - before.at
	}
	act := &r.activity
	act.Wrote = max(act.Wrote, a.At+a.Took)
	switch {
	case now.failed && before.failed:
		if a.Conflict() || a.Code == 0 || a.Code == http.StatusTooManyRequests || a.Code >= 500 {
			now.tries = before.tries + 1
		}
		now.retry = a.At + max(2*now.gap, firstDelay<<min(now.tries, doublings))
	case now.failed:
	case a.Unchanged:
		act.Useless = max(act.Useless, a.At+a.Took)
	case before.gap > 0 && now.gap < heartbeat && (now.gap-before.gap).Abs() <= before.gap/4:
		act.Again = max(act.Again, a.At+now.gap*3/2)
	}
	r.writers[w] = now
}

// Leader returns the client that has written a lease or another lock last; empty for none.
func (r *Recorder) Leader() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

// step is the first change of an object by a client, or of what that owns.
type step struct {
	client string
	ID               // without a key for what is owned
	owner  types.UID // of what the client has made
}

// progress notes a step. What a client deletes may be made again without end. The caller holds mu.
func (r *Recorder) progress(c *Change) {
	o, ok := c.Object.(metav1.Object)
	if !ok || c.By == ByLifecycle || c.Type == watch.Deleted {
		return
	}
	s, of := step{client: c.By, ID: c.ID()}, o.GetUID()
	if c.Type == watch.Added {
		r.made[of] = c.By
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil && r.made[of] == c.By {
		of = owner.UID
		s.Key, s.owner = "", of
	}
	if r.made[of] != c.By && !r.steps[s] {
		r.steps[s] = true
		r.activity.Progress = c.At
	}
}

// Activity returns the times so far, and that of NewRecorder for those that never were.
func (r *Recorder) Activity() Activity[time.Time] {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.activity
	for _, w := range r.writers {
		a.Retry = max(a.Retry, w.retry)
	}
	return Activity[time.Time]{r.base.Add(a.Changed), r.base.Add(a.Progress), r.base.Add(a.Wrote), r.base.Add(a.Useless), r.base.Add(a.Again), r.base.Add(a.Retry)}
}

// Result returns the accesses so far in order of their end, and the changes in order of Observe. An open watch
// counts with its length so far. Changes share their objects with the server.
func (r *Recorder) Result() ([]Access, []Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Since(r.base)
	accesses := slices.Clone(r.accesses)
	for f := range r.watches {
		open := f.Access
		open.Took = now - f.At
		open.Code, open.Out = int(f.code.Load()), f.out.Load()
		accesses = append(accesses, open)
	}
	for i := range accesses {
		accesses[i].At -= r.zero
	}
	slices.SortStableFunc(accesses, func(a, b Access) int {
		return cmp.Or(cmp.Compare(a.At+a.Took, b.At+b.Took), cmp.Compare(a.At, b.At))
	})
	changes := slices.Clone(r.changes)
	for i := range changes {
		changes[i].At -= r.zero
		changes[i].Intended -= r.zero
	}
	return accesses, changes
}

// flight is an access in progress, and the ResponseWriter of its handler. Handlers write from one goroutine
// at a time; Result reads code and out meanwhile.
type flight struct {
	http.ResponseWriter
	Access
	known  uint64 // newest version of the object at the arrival
	code   atomic.Int32
	out    atomic.Int64
	body   []byte // of a write, up to maxBody
	answer []byte // of a write
}

// Unwrap serves http.ResponseController.
func (f *flight) Unwrap() http.ResponseWriter { return f.ResponseWriter }

// Flush implements http.Flusher.
func (f *flight) Flush() { _ = f.FlushError() }

// FlushError sends what was written.
func (f *flight) FlushError() error {
	f.code.CompareAndSwap(0, http.StatusOK)
	return http.NewResponseController(f.ResponseWriter).Flush()
}

// WriteHeader notes the first final code.
func (f *flight) WriteHeader(code int) {
	if code >= http.StatusOK {
		f.code.CompareAndSwap(0, int32(code))
	}
	f.ResponseWriter.WriteHeader(code)
}

func (f *flight) Write(b []byte) (int, error) {
	f.code.CompareAndSwap(0, http.StatusOK)
	n, err := f.ResponseWriter.Write(b)
	f.out.Add(int64(n))
	if f.changes() && len(f.answer)+len(b) <= maxBody {
		f.answer = append(f.answer, b...)
	}
	return n, err
}
