package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/observe"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// preparedStorm is shared by the cells of a comparison: the storm, repeated to the length of a round,
// and everything prepared from it. Each part is built at its first use and is immutable.
type preparedStorm struct {
	// Config is complete. Its Events are the minimum number of events after the initial
	// list, 0 for one lap; exact: the caller set them, so they apply to paced rounds too.
	Config
	exact  bool
	mu     sync.Mutex
	byPace map[string]*pacedStorm // guarded by mu
}

// The stall limits of pipelines that have to connect or list again: client-go retries
// after up to a minute, and after an expired watch, in seconds.
const (
	faultStall  = 3 * time.Minute
	relistStall = 20 * time.Second
)

// decodeLimit is the time that client-go may take for an object of a list over HTTP; it passes on
// nothing before it has decoded the last. 2 to 10 kB take 0.1 to 0.4 ms on an idle core.
const decodeLimit = 2 * time.Millisecond

// stall returns the longest time without progress at a pace.
func (m *preparedStorm) stall(p pace.Pace) time.Duration {
	// A handler's work for the largest hand-over makes no progress.
	const batch = 1000 // the default of all variants
	patience := m.HandlerCost * time.Duration(max(batch, m.Knobs.BatchSize, m.Storm.Peak()))
	limit := stallLimit + patience
	switch {
	case m.Pipeline == QueuePipeline && m.Family == impls.Merge:
		// A slow pace makes no progress between two events.
		paced := m.at(p)
		limit += pause(paced.schedule, len(paced.Events)-paced.Initial)
	case len(m.Faults) > 0:
		limit = max(limit, faultStall+patience)
	case m.Pipeline != QueuePipeline && slices.ContainsFunc(m.Storm.Marks, isRelist):
		limit += relistStall
	}
	if m.Source == source.APIServerName {
		limit += time.Duration(m.Storm.Peak()) * decodeLimit
	}
	return limit
}

// minEvents is the minimum of a round; plentyEvents are enough for a figure.
const (
	minEvents    = 100
	plentyEvents = 1000
)

// pacedStorm is a storm with its schedule and everything prepared from it.
type pacedStorm struct {
	*storm.Storm
	schedule pace.Schedule                                // intended times of the events after the initial list
	budget   time.Duration                                // largest allowed lag; 0 means cell.LateAfter
	source   func(context.Context) (source.Source, error) // opens a new source at each call

	// The functions below compute their result once.
	keys          func() map[string]int32       // index of each key
	final         func() map[string]uint64      // last event of each remaining key
	parts         func() [][]call               // calls of each producer
	lists         func() [][]*v1.Pod            // pods after the initial list, and after each later event
	notifications func() *observe.Notifications // those that a merger has to send
}

// enough checks that the storm has enough events or can be repeated.
func (m *preparedStorm) enough() error {
	if !m.Share.Whole() {
		return m.shareEnough()
	}
	have := len(m.Storm.Events) - m.Storm.Initial
	need := max(minEvents, min(m.Events, plentyEvents))
	// If the storm can be repeated once, it can be repeated any number of times.
	if have >= need || len(m.Storm.AtLeast(len(m.Storm.Events)+1).Events) > len(m.Storm.Events) {
		return nil
	}
	return refuse("storm %s has %d events after its initial list, too few to measure anything by (%d are needed)", m.Storm.Name, have, need)
}

// shareEnough checks a share. A hash decides its number of events, and all shares play
// the same laps.
func (m *preparedStorm) shareEnough() error {
	part := m.part(m.Storm.Initial+max(minEvents*m.Share.Count, m.Events), false)
	if have := len(part.Events) - part.Initial; have < minEvents {
		return refuse("share %v of storm %s has %d of %d events after its initial list, too few to measure anything by (%d are needed): fewer shares, or a larger storm",
			m.Share, m.Storm.Name, have, part.Whole-part.WholeInitial, minEvents)
	}
	return nil
}

// mostEvents bounds a paced round: 60 s at a million a second.
const mostEvents = 60_000_000

// at returns the storm at a pace.
func (m *preparedStorm) at(p pace.Pace) *pacedStorm {
	m.mu.Lock()
	defer m.mu.Unlock()
	if paced, ok := m.byPace[p.String()]; ok {
		return paced
	}
	s, shares := m.Storm, max(1, m.Share.Count)
	n, timed := 0, p.Paced() && !p.OwnTimes()
	if !p.Paced() || m.exact {
		n = m.Events
	} else if !timed {
		n = len(s.Events) - s.Initial
	}
	if timed {
		n = max(n, p.Events(m.Duration, mostEvents*shares))
	}
	part := m.part(s.Initial+max(n, minEvents*shares), timed)
	if m.fresh() {
		// A merger compares whole pods. The other stages read no more than names and versions, and
		// 50,000 whole pods would not fit.
		part.Storm = part.Fresh(m.Family == impls.Merge)
	}
	s = part.Storm
	paced := &pacedStorm{Storm: s, schedule: m.schedule(p, part)}
	paced.budget = cmp.Or(m.Budget, pace.Budget(paced.schedule, len(s.Events)-s.Initial))
	prepare := sync.OnceValues(func() (source.Maker, error) {
		return source.Options{Faults: m.Faults, Seed: m.Seed, Wire: m.Wire}.Prepare(m.Source, s)
	})
	paced.source = func(ctx context.Context) (source.Source, error) {
		maker, err := prepare()
		if err != nil {
			return nil, err
		}
		return maker(ctx)
	}
	paced.keys = sync.OnceValue(func() map[string]int32 { return observe.KeyIndexes(s) })
	paced.final = sync.OnceValue(s.Final)
	paced.parts = sync.OnceValue(func() [][]call { return partition(s, m.Producers) })
	paced.lists = sync.OnceValue(func() [][]*v1.Pod { return podLists(s) })
	paced.notifications = sync.OnceValue(func() *observe.Notifications { return observe.NotificationsOf(s) })
	if m.byPace == nil {
		m.byPace = make(map[string]*pacedStorm)
	}
	m.byPace[p.String()] = paced
	return paced
}

// pause returns the longest time without an intended event.
func pause(s pace.Schedule, events int) time.Duration {
	longest, last := time.Duration(0), time.Duration(0)
	for i := range events {
		at := s.Intended(i)
		longest, last = max(longest, at-last), at
	}
	return longest
}

// part returns this process's part of the storm, repeated to a length or in whole laps.
func (m *preparedStorm) part(length int, exactly bool) storm.Selection {
	if !m.Share.Whole() {
		part := m.Storm.Select(length, m.Share.Has)
		if exactly {
			part = part.First(length)
		}
		return part
	}
	s := m.Storm.AtLeast(length)
	if exactly {
		s = s.First(length)
	}
	return storm.Selection{Storm: s, Whole: len(s.Events), WholeInitial: s.Initial}
}

// schedule returns the intended times of a part at a pace. Event 0 is the first after the initial
// list of the whole storm; the storm's own times count from the end of that list.
func (m *preparedStorm) schedule(p pace.Pace, s storm.Selection) pace.Schedule {
	if !m.Share.Whole() && !p.OwnTimes() {
		whole := p.Schedule(pace.Score{Events: s.Whole - s.WholeInitial, Seed: m.Seed})
		return s.Schedule(whole)
	}
	events := s.Events[s.Initial:]
	begin := time.Duration(0)
	if n := m.Storm.Initial; n > 0 {
		begin = m.Storm.Events[n-1].At
	}
	return p.Schedule(pace.Score{
		Events: len(events), Seed: m.Seed,
		At: func(i int) time.Duration {
			if len(events) == 0 {
				return 0
			}
			return events[min(i, len(events)-1)].At - begin
		},
	})
}

type verb uint8

const (
	add verb = iota
	update
	del
	replace // a relist, after event seq
)

// call is a prepared call of a producer.
type call struct {
	obj  any
	list []any
	seq  uint32
	verb verb
}

// partition divides the events after the initial list among the producers, by key, so that the
// order of each key's events holds. A relist is a replace with all objects of that time, in the
// order of their key indexes; storms with relists have one producer. O(events + relists × keys).
func partition(s *storm.Storm, producers int) [][]call {
	parts := make([][]call, producers)
	relists := slices.DeleteFunc(slices.Clone(s.Marks), func(m storm.Mark) bool { return !isRelist(m) })
	live := make([]any, s.Keys)
	for i := range s.Events {
		e := &s.Events[i]
		initial := i < s.Initial
		for ; !initial && len(relists) > 0 && relists[0].After < e.Seq; relists = relists[1:] {
			list := slices.DeleteFunc(slices.Clone(live), func(o any) bool { return o == nil })
			parts[0] = append(parts[0], call{list: list, seq: uint32(e.Seq - 1), verb: replace})
		}
		c := call{obj: e.Object, seq: uint32(e.Seq)}
		live[e.KeyIndex] = e.Object
		switch e.Type {
		case watch.Added:
			c.verb = add
		case watch.Modified:
			c.verb = update
		case watch.Deleted:
			c.verb = del
			live[e.KeyIndex] = nil
		}
		if !initial {
			p := observe.ProducerOf(e.KeyIndex, producers)
			parts[p] = append(parts[p], c)
		}
	}
	return parts
}

// podLists returns the lists that an UndeltaStore would push: all pods after the
// initial list, then after each event, in the random order of a map, as there.
func podLists(s *storm.Storm) [][]*v1.Pod {
	lists := make([][]*v1.Pod, 0, len(s.Events)-s.Initial+1)
	pods := make(map[int32]*v1.Pod)
	snapshot := func() { lists = append(lists, slices.AppendSeq(make([]*v1.Pod, 0, len(pods)), maps.Values(pods))) }
	for i := range s.Events {
		e := &s.Events[i]
		if i == s.Initial {
			snapshot()
		}
		pod, ok := e.Object.(*v1.Pod)
		if e.Type == watch.Deleted || !ok {
			delete(pods, e.KeyIndex)
		} else {
			pods[e.KeyIndex] = pod
		}
		if i >= s.Initial {
			snapshot()
		}
	}
	return lists
}

// digest identifies the input of all shares. Comparisons with equal digests play the same events,
// at the same intended times, in the same way. It covers key, type, number, time and size of the
// events. It leaves out what a cell's labels have: variant, knobs, pace. O(events).
func (m *preparedStorm) digest() string {
	h := sha256.New()
	text := func(format string, args ...any) { fmt.Fprintf(h, format+"\n", args...) }
	text("%s %s %s", m.Family, m.Pipeline, m.Source)
	budget := "1%,1ms"
	if m.Budget > 0 {
		budget = m.Budget.String()
	}
	text("seed %d, events %d (exactly: %v), duration %v, budget %s", m.Seed, m.Events, m.exact, m.Duration, budget)
	if !m.Share.Whole() {
		text("shares %d", m.Share.Count)
	}
	if m.fresh() {
		text("objects fresh")
	}
	text("producers %d, static %d, faults %v", m.Producers, m.Static, m.Faults)
	s := m.Storm
	text("%s %s initial %d, keys %d, marks %v", s.Resource, s.Kind, s.Initial, s.Keys, s.Marks)
	var line []byte
	for i := range s.Events {
		e := &s.Events[i]
		line = append(line[:0], e.Type...)
		line = append(line, ' ')
		line = append(line, e.Key...)
		line = binary.BigEndian.AppendUint64(line, e.Seq)
		line = binary.BigEndian.AppendUint64(line, uint64(e.At))
		line = binary.BigEndian.AppendUint64(line, uint64(size(e.Object)))
		h.Write(line)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// size returns an object's size as protobuf if its type supports that, else as JSON; 0
// if neither works.
func size(o runtime.Object) int {
	if p, ok := o.(interface{ Size() int }); ok {
		return p.Size()
	}
	text, _ := json.Marshal(o)
	return len(text)
}
