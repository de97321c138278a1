package decode

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/impls"
)

const (
	slotsPerWorker = 4        // events that a watch reads ahead
	aheadBytes     = 4 << 20  // of frames that a watch reads ahead
	keptFrame      = 64 << 10 // bytes of a buffer that is used again
)

func init() {
	Register(Variant{
		Name: "parallel", Guarantees: guarantees(impls.Owned, true),
		Summary: "decodes a watch with several workers, in order, up to 4 events a worker and 4 MiB of frames ahead: client-go's decoder, then the transform",
		New: func(o Options) (Decoder, error) {
			o.Encoding = o.encoding()
			if o.Workers < 0 {
				return nil, fmt.Errorf("%w: %d workers", impls.ErrOptions, o.Workers)
			}
			d, err := New("clientgo-"+string(o.Encoding)+"-transform", o)
			if err != nil {
				return nil, err
			}
			return NewParallel(d, o.Workers), nil
		},
	})
}

// NewParallel returns a decoder that decodes each watch with the inner decoder, in several
// goroutines: by default GOMAXPROCS, in all watches of the decoder. Lists are decoded by the caller.
func NewParallel(inner Decoder, workers int) Decoder {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	return &parallel{Decoder: inner, workers: workers, prefix: rand.Text(), watches: map[string]*ahead{}}
}

// parallel decodes the frames of watches before their readers ask for them.
//
// client-go decodes a watch step by step: a frame reader reads a frame, the serializer of frames
// decodes its type and the bytes of the object, and the decoder decodes these. parallel stands in
// all three places, so that client-go's own REST client uses it. The frame reader has a goroutine
// that reads the frames of client-go's frame reader, and workers take all steps for them. Read waits
// for the next event and gives a ticket for it in place of a frame. For the ticket the serializer
// gives the type of the event, and the decoder its object.
type parallel struct {
	Decoder // the inner one, also of objects and lists
	workers int
	prefix  string // of all tickets: 128 random bits, so that no input is one

	mu      sync.Mutex
	queue   []*slot           // frames to decode; guarded by mu
	running int               // workers, which end when the queue is empty; guarded by mu
	watches map[string]*ahead // by ticket; guarded by mu
	last    uint64            // ticket; guarded by mu
}

// Info has the three places. What is no ticket goes to the inner decoder.
func (p *parallel) Info() kruntime.SerializerInfo {
	info := p.Decoder.Info()
	stream := *info.StreamSerializer
	stream.Framer, stream.Serializer = framer{stream.Framer, p}, tickets{stream.Serializer, p}
	info.StreamSerializer, info.Serializer = &stream, serving{info.Serializer, results{info.Serializer, p}}
	return info
}

func (p *parallel) Watch(body io.ReadCloser) watch.Decoder { return watchOf(p.Info(), body) }

// slot holds an event between its frame and the reader of the watch.
type slot struct {
	of    *ahead
	info  kruntime.SerializerInfo // of the inner decoder, for one goroutine at a time
	frame []byte
	size  int // of the frame
	event metav1.WatchEvent
	res   kruntime.Object // of the frame: event, unless it is another object
	err   error           // of the frame
	obj   kruntime.Object
	gvk   *schema.GroupVersionKind
	bad   error         // of the object
	panic any           // of the worker or of run, for the reader; nil: none
	ready chan struct{} // with room for its one message
}

// recovered keeps a panic of the goroutine that fills the slot. The reader of the watch panics in its
// place, so that it ends as with client-go: its StreamWatcher logs the panic, and ends the watch or the
// process (utilruntime.ReallyCrash).
func (s *slot) recovered() {
	if v := recover(); v != nil {
		s.panic = handedOver{v, debug.Stack()}
	}
}

// handedOver is a panic with the stack of the goroutine where it began.
type handedOver struct {
	value any
	stack []byte
}

func (p handedOver) Error() string {
	return fmt.Sprintf("%v\n\nin another goroutine:\n%s", p.value, p.stack)
}

func (p handedOver) Unwrap() error {
	err, _ := p.value.(error)
	return err
}

func (s *slot) decode() {
	defer s.recovered()
	s.event = metav1.WatchEvent{}
	if s.res, _, s.err = s.info.StreamSerializer.Serializer.Decode(s.frame, nil, &s.event); s.err == nil {
		s.obj, s.gvk, s.bad = s.info.Serializer.Decode(s.event.Object.Raw, nil, nil)
	}
	s.event.Object = kruntime.RawExtension{}
	if cap(s.frame) > keptFrame {
		s.frame = nil
	}
}

func (p *parallel) push(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, s)
	if p.running < p.workers {
		p.running++
		go p.work()
	}
}

// pop returns nil to a worker that has to end.
func (p *parallel) pop() *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		p.running--
		return nil
	}
	s := p.queue[0]
	p.queue[0] = nil
	p.queue = p.queue[1:]
	return s
}

func (p *parallel) work() {
	for s := p.pop(); s != nil; s = p.pop() {
		s.decode()
		s.ready <- struct{}{}
	}
}

// redeem returns the slot of a ticket, or nil if the watch is closed.
func (p *parallel) redeem(data []byte) (s *slot, ticket bool) {
	if len(data) != len(p.prefix)+8 || string(data[:len(p.prefix)]) != p.prefix {
		return nil, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.watches[string(data)]; a != nil {
		s = a.current
	}
	return s, true
}

// results decodes the objects of parallel watches, and lists.
type results struct {
	kruntime.Decoder
	p *parallel
}

func (d results) Decode(data []byte, defaults *schema.GroupVersionKind, into kruntime.Object) (kruntime.Object, *schema.GroupVersionKind, error) {
	s, ticket := d.p.redeem(data)
	switch {
	case !ticket:
		return d.Decoder.Decode(data, defaults, into)
	case s == nil:
		return nil, nil, net.ErrClosed
	}
	obj := s.obj
	s.obj = nil // a watch that waits keeps no object alive
	return obj, s.gvk, s.bad
}

// tickets decodes the frames of parallel watches.
type tickets struct {
	kruntime.Serializer
	p *parallel
}

func (t tickets) Decode(data []byte, defaults *schema.GroupVersionKind, into kruntime.Object) (kruntime.Object, *schema.GroupVersionKind, error) {
	s, ticket := t.p.redeem(data)
	event, ok := into.(*metav1.WatchEvent)
	switch {
	case !ticket || !ok:
		return t.Serializer.Decode(data, defaults, into)
	case s == nil:
		return nil, nil, net.ErrClosed
	case s.res != &s.event:
		return s.res, nil, nil
	}
	*event = metav1.WatchEvent{Type: s.event.Type, Object: kruntime.RawExtension{Raw: s.of.ticket}}
	return event, watchEventKind(), nil
}

// framer makes the frame readers of parallel watches.
type framer struct {
	kruntime.Framer
	p *parallel
}

func (f framer) NewFrameReader(body io.ReadCloser) io.ReadCloser {
	p, slots := f.p, slotsPerWorker*f.p.workers
	a := &ahead{p: p, ordered: make(chan *slot, slots), back: make(chan *slot, slots), done: make(chan struct{})}
	a.source = streaming.NewDecoder(f.Framer.NewFrameReader(body), &a.copied)
	p.mu.Lock()
	p.last++
	a.ticket = binary.BigEndian.AppendUint64([]byte(p.prefix), p.last)
	p.watches[string(a.ticket)] = a
	p.mu.Unlock()
	go a.run()
	return a
}

// ahead is the frame reader of a watch. Its slots go from run to Read, and back. There are at most as
// many as each channel has room for, so a send never waits.
type ahead struct {
	p             *parallel
	source        streaming.Decoder // of frames, by client-go's frame reader
	copied        copied            // the last frame of source
	ordered, back chan *slot
	done          chan struct{}
	close         sync.Once
	ticket        []byte

	current *slot // of the last Read; used by the reader of the watch alone
}

// copied takes the place of a decoder and copies the frame.
type copied struct{ frame []byte }

func (c *copied) Decode(data []byte, _ *schema.GroupVersionKind, _ kruntime.Object) (kruntime.Object, *schema.GroupVersionKind, error) {
	c.frame = append(c.frame[:0], data...)
	return nil, nil, nil
}

// read reads a frame to the copied of the source.
func (s *slot) read(source streaming.Decoder) {
	defer s.recovered()
	_, _, s.err = source.Decode(nil, nil)
}

// run reads frames while there is a slot. A frame waits until its bytes and those of the events before
// it are below the bound, or the events before it are read.
func (a *ahead) run() {
	var idle []*slot
	made, bytes := 0, 0
	take := func(s *slot) {
		bytes -= s.size
		idle = append(idle, s)
	}
	wait := func() bool {
		select {
		case s := <-a.back:
			take(s)
			return true
		case <-a.done:
			return false
		}
	}
	for {
		for len(a.back) > 0 {
			take(<-a.back)
		}
		if len(idle) == 0 && made < cap(a.back) {
			idle = append(idle, &slot{of: a, info: a.p.Decoder.Info(), ready: make(chan struct{}, 1)})
			made++
		}
		if len(idle) == 0 && !wait() {
			return
		}
		s := idle[len(idle)-1]
		idle = idle[:len(idle)-1]
		a.copied.frame = s.frame
		s.read(a.source)
		s.frame, s.size = a.copied.frame, 0
		if s.err != nil || s.panic != nil {
			s.ready <- struct{}{}
			a.ordered <- s
			for !slices.Contains(idle, s) { // the reader asks for the next frame in spite of the error
				if !wait() {
					return
				}
			}
			continue
		}
		for bytes > 0 && bytes+len(s.frame) > aheadBytes {
			if !wait() {
				return
			}
		}
		s.size = len(s.frame)
		bytes += s.size
		a.ordered <- s
		a.p.push(s)
	}
}

// Read waits for the next event and writes its ticket, or returns its error.
func (a *ahead) Read(data []byte) (int, error) {
	if a.current != nil {
		a.back <- a.current
		a.current = nil
	}
	var s *slot
	select {
	case s = <-a.ordered:
	case <-a.done:
		return 0, net.ErrClosed
	}
	select {
	case <-s.ready:
	case <-a.done:
		return 0, net.ErrClosed
	}
	a.current = s
	if v := s.panic; v != nil {
		s.panic = nil
		panic(v)
	}
	if s.err != nil {
		return 0, s.err
	}
	return copy(data, a.ticket), nil
}

// Close ends the reading of frames, and closes the body. It does not wait for the goroutines.
func (a *ahead) Close() error {
	var err error
	a.close.Do(func() {
		close(a.done)
		a.p.mu.Lock()
		delete(a.p.watches, string(a.ticket))
		a.p.mu.Unlock()
		err = a.source.Close()
	})
	return err
}
