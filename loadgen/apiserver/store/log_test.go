package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"pgregory.net/rapid"

	"watchlab/loadgen/apiserver/wire"
	"watchlab/loadgen/storm"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	podKind = v1.SchemeGroupVersion.WithKind("Pod")
	kind    = wire.NewKind(podKind, "PodList", false, nil)
	form    = wire.FormOf(wire.JSON, wire.Object)
)

func named(key, note string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: key, Annotations: map[string]string{"note": note}}}
}

// build returns a valid storm whose event i has the key keys[i].
func build(initial int, keys []int, deletes []bool) *storm.Storm {
	s := &storm.Storm{Name: "test", Kind: podKind, Resource: v1.SchemeGroupVersion.WithResource("pods")}
	index, live := map[int]int32{}, map[int]bool{}
	for i, k := range keys {
		if _, ok := index[k]; !ok {
			index[k] = int32(len(index))
		}
		typ := watch.Added
		if live[k] {
			typ = watch.Modified
			if deletes[i] {
				typ = watch.Deleted
			}
		}
		if typ == watch.Added && s.Initial == i && i < initial {
			s.Initial++
		}
		live[k] = typ != watch.Deleted
		key := fmt.Sprintf("pod-%02d", k)
		o := named(key, "storm")
		o.ResourceVersion = strconv.Itoa(i + 1)
		s.Events = append(s.Events, storm.Event{Type: typ, Seq: uint64(i + 1), Key: key, KeyIndex: index[k], Object: o})
	}
	s.Keys = len(index)
	return s
}

// logEvent is an event of the model.
type logEvent struct {
	Type watch.EventType
	Key  string
	Note string
}

// model is the reference implementation of a log.
type model struct {
	storm *storm.Storm
	// base is the position before the first event.
	base uint64
	// played is the number of released events of the storm.
	played int
	events []logEvent
	// current is the state after all events.
	current map[string]uint64
	// foreign are the notes of objects that a client wrote.
	foreign map[string]string
}

func (m *model) write(e logEvent) {
	if m.foreign == nil {
		m.foreign = map[string]string{}
	}
	if m.foreign[e.Key] = e.Note; e.Type == watch.Deleted {
		delete(m.foreign, e.Key)
	}
	m.append(e)
}

func (m *model) append(e logEvent) {
	m.events = append(m.events, e)
	if e.Type == watch.Deleted {
		delete(m.current, e.Key)
	} else {
		m.current[e.Key] = m.visible()
	}
}

func (m *model) visible() uint64 { return m.base + uint64(len(m.events)) }

func (m *model) state(at uint64) map[string]uint64 {
	state := map[string]uint64{}
	for i, e := range m.events[:at-m.base] {
		if e.Type == watch.Deleted {
			delete(state, e.Key)
		} else {
			state[e.Key] = m.base + uint64(i+1)
		}
	}
	return state
}

func (m *model) release(seq int) {
	for ; m.played < min(seq, len(m.storm.Events)); m.played++ {
		e := m.storm.Events[m.played]
		_, there := m.current[e.Key]
		typ := e.Type
		if typ == watch.Added && there {
			typ = watch.Modified
		} else if typ != watch.Added && !there {
			continue
		}
		note := "storm"
		if theirs, ok := m.foreign[e.Key]; ok && e.Type != watch.Added {
			note = theirs // the storm does not change it
		}
		if e.Type != watch.Modified {
			delete(m.foreign, e.Key)
		}
		m.append(logEvent{typ, e.Key, note})
	}
}

// check compares all queries of a log with the model.
func check(t *rapid.T, l *Log, m *model) {
	if l.Visible() != m.visible() {
		t.Fatalf("visible %d, want %d", l.Visible(), m.visible())
	}
	b := l.Bounds()
	oldest := l.At(b.Oldest)
	at := oldest + uint64(rapid.IntRange(0, int(l.Visible()-oldest)).Draw(t, "at"))
	if v := l.Version(at); l.At(v) != at || l.At(l.Newest(at)) != at || l.Newest(at) < v || b.Visible < v {
		t.Fatalf("position %d has the versions %d to %d of %d, with the positions %d to %d", at, v, l.Newest(at), b.Visible, l.At(v), l.At(l.Newest(at)))
	}
	got, order := map[string]uint64{}, []string{}
	items := l.State(at, "", "")
	if err := l.Prepare(kind, form, items); err != nil {
		t.Fatal(err)
	}
	for _, it := range items {
		got[it.Key] = it.Seq
		order = append(order, it.Key)
		o, err := l.Object(kind, form, it)
		if err != nil {
			t.Fatal(err)
		}
		var p v1.Pod
		if err := json.Unmarshal(o, &p); err != nil || p.Name != it.Key || p.ResourceVersion != strconv.FormatUint(l.Version(it.Seq), 10) {
			t.Fatalf("%v, %s", err, o)
		}
	}
	// Compare with maps.Equal: cmp is slow with the race detector and only explains a failure.
	if want := m.state(at); !maps.Equal(want, got) {
		t.Fatalf("at %d (-want +got):\n%s", at, cmp.Diff(want, got))
	}
	if !slices.IsSorted(order) {
		t.Fatalf("order %v", order)
	}
	for key, seq := range m.current {
		if o, pos := l.Get(key); pos != seq || o == nil {
			t.Fatalf("Get(%s) = %d, want %d", key, pos, seq)
		}
	}
	if want, got := m.events[at-m.base:], readFrames(t, l, at, l.Visible()); !slices.Equal(want, got) {
		t.Fatalf("events after %d (-want +got):\n%s", at, cmp.Diff(want, got))
	}
	before := m.state(at)
	for i := at; i < l.Visible(); i++ {
		e, was, err := l.Event(i)
		if err != nil {
			t.Fatal(err)
		}
		if h := m.events[i-m.base]; e.Type != h.Type || e.Key != h.Key {
			t.Fatalf("event %d is %s %s, want %+v", i+1, e.Type, e.Key, h)
		}
		if seq := before[e.Key]; (was == nil) != (seq == 0) || (was != nil && was.Seq != seq) {
			t.Fatalf("before %d there was %v, want %d", i+1, was, seq)
		}
		before[e.Key] = e.Seq
		if e.Type == watch.Deleted {
			delete(before, e.Key)
		}
	}
}

// readFrames reads the frames between two positions like a watch.
func readFrames(t *rapid.T, l *Log, from, to uint64) []logEvent {
	got := []logEvent{}
	for from < to {
		data, upto, err := l.Frames(kind, form, false, from, to)
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(bytes.NewReader(data))
		for {
			line, err := r.ReadBytes('\n')
			if err != nil && len(line) == 0 {
				break
			}
			var e struct {
				Type   watch.EventType
				Object v1.Pod
			}
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			from++
			if e.Object.ResourceVersion != strconv.FormatUint(l.Version(from), 10) {
				t.Fatalf("version %s at %d", e.Object.ResourceVersion, from)
			}
			got = append(got, logEvent{e.Type, e.Object.Name, e.Object.Annotations["note"]})
		}
		if from != upto {
			t.Fatalf("frames up to %d, reported end %d", from, upto)
		}
	}
	return got
}

// A log that plays a storm during writes equals the model at every moment, for any dropped history.
func TestLogMatchesModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budget := NewBudget(int64(rapid.SampledFrom([]int{1, 20_000, 1 << 20}).Draw(t, "budget")))
		history := rapid.SampledFrom([]int{1, 50, 1000}).Draw(t, "history")
		m := &model{base: first, storm: &storm.Storm{}, current: map[string]uint64{}}
		revision := new(Revision)
		l := New(budget, revision, 0)
		if rapid.Bool().Draw(t, "storm") {
			n := rapid.IntRange(0, 300).Draw(t, "events")
			keys := rapid.SliceOfN(rapid.IntRange(0, 12), n, n).Draw(t, "keys")
			s := build(rapid.IntRange(0, 4).Draw(t, "initial"), keys, rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "deletes"))
			if err := s.Validate(); err != nil {
				t.Fatal(err)
			}
			r := NewRecording(s, kind, budget)
			if rapid.Bool().Draw(t, "ahead") {
				if err := r.Encode(form, false); err != nil {
					t.Fatal(err)
				}
			}
			l, m = r.Play(revision, 0, false), &model{storm: s, current: map[string]uint64{}}
			m.release(s.Initial)
		}
		l.history = history
		writes := 0
		t.Repeat(map[string]func(*rapid.T){
			"release": func(t *rapid.T) {
				seq := m.played + rapid.IntRange(0, 100).Draw(t, "events")
				l.Release(uint64(seq), nil)
				m.release(seq)
				if l.rec != nil && l.played != m.played {
					t.Fatalf("played %d, want %d", l.played, m.played)
				}
			},
			"write": func(t *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(t, "times") {
					writes++
					key := fmt.Sprintf("pod-%02d", rapid.IntRange(0, 20).Draw(t, "key"))
					_, was := l.Get(key)
					if want := m.current[key]; was != want {
						t.Fatalf("%s is at %d, want %d", key, was, want)
					}
					if rapid.Bool().Draw(t, "another resource") {
						revision.next()
					}
					e := logEvent{watch.Added, key, strconv.Itoa(writes)}
					if was > 0 {
						e.Type = rapid.SampledFrom([]watch.EventType{watch.Modified, watch.Deleted}).Draw(t, "type")
					}
					if l.Put(Origin{}, e.Type, key, named(key, e.Note), was+1) {
						t.Fatal("a write of a stale version")
					}
					if !l.Put(Origin{}, e.Type, key, named(key, e.Note), was) {
						t.Fatal("a write is refused")
					}
					m.write(e)
				}
			},
			"": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "check") == 0 {
					check(t, l, m)
				}
			},
		})
	})
}

// If a storm exceeds the budget, the events encoded in advance stay. The others are
// encoded and dropped repeatedly.
func TestPreencodedStays(t *testing.T) {
	s := build(0, make([]int, 4000), make([]bool, 4000))
	budget := NewBudget(200_000)
	r := NewRecording(s, kind, budget)
	if err := r.Encode(form, false); err != nil {
		t.Fatal(err)
	}
	l := r.Play(new(Revision), 0, false)
	l.Release(4000, nil)
	ahead, _, err := l.Frames(kind, form, false, 0, 4000)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for at := uint64(0); at < 4000; {
			if _, at, err = l.Frames(kind, form, false, at, 4000); err != nil {
				t.Fatal(err)
			}
			if used := budget.Used(); used > 200_000 {
				t.Fatalf("%d bytes are used at %d", used, at)
			}
		}
	}
	if again, _, err := l.Frames(kind, form, false, 0, 4000); err != nil || &again[0] != &ahead[0] {
		t.Errorf("the preencoded frame was dropped, %v", err)
	}
}

// Dropped events are reported as ErrGone, and memory is bounded.
func TestHistoryBound(t *testing.T) {
	budget := NewBudget(100_000)
	l := New(budget, new(Revision), 0)
	l.history = 256
	for i := range 5000 {
		key := fmt.Sprintf("job-%d", i)
		for _, typ := range []watch.EventType{watch.Added, watch.Deleted} {
			_, was := l.Get(key)
			if !l.Put(Origin{}, typ, key, named(key, ""), was) {
				t.Fatal("refused")
			}
			if _, _, err := l.Frames(kind, form, false, l.Visible()-1, l.Visible()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if used := budget.Used(); used > 150_000 || used <= 0 {
		t.Errorf("%d bytes are used, the budget is 100000", used)
	}
	if n := len(l.keys); n > 256 {
		t.Errorf("%d keys are remembered", n)
	}
	oldest := l.Bounds().Oldest
	if visible := l.Visible(); oldest+256 > visible || oldest+600 < visible {
		t.Errorf("the oldest of %d is %d", visible, oldest)
	}
	if _, _, err := l.Frames(kind, form, false, oldest-1, oldest); !errors.Is(err, ErrGone) {
		t.Errorf("frames before the oldest: %v", err)
	}
	if _, _, err := l.Event(oldest - 1); !errors.Is(err, ErrGone) {
		t.Errorf("an event before the oldest: %v", err)
	}
}

// Watches that read during releases and writes receive every position once, in order.
func TestConcurrent(t *testing.T) {
	n := 3000
	keys := make([]int, n)
	for i := range keys {
		keys[i] = i % 40
	}
	l := NewRecording(build(40, keys, make([]bool, n)), kind, NewBudget(200_000)).Play(new(Revision), 0, false)
	l.history = 1 << 20
	const writes = 500
	var players, watchers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		watchers.Go(func() {
			at := uint64(0)
			f := l.Follow(0)
			defer f.Close()
			for {
				upto := f.Poll()
				if upto == at {
					select {
					case <-f.Wake():
						continue
					case <-done:
						if l.Visible() == at {
							return
						}
						continue
					}
				}
				data, to, err := l.Frames(kind, form, false, at, upto)
				if err != nil {
					t.Error(err)
					return
				}
				if got := uint64(bytes.Count(data, []byte("\n"))); got != to-at {
					t.Errorf("%d frames between %d and %d", got, at, to)
				}
				l.State(to, "", "")
				at = to
				f.Seen(at, 0)
			}
		})
	}
	players.Go(func() {
		for i := range n {
			l.Release(uint64(i+1), nil)
		}
	})
	for w := range 2 {
		players.Go(func() {
			for i := range writes {
				key := fmt.Sprintf("pod-%02d", i%60)
				for {
					_, was := l.Get(key)
					typ := watch.Modified
					if was == 0 {
						typ = watch.Added
					}
					if l.Put(Origin{}, typ, key, named(key, strconv.Itoa(w)), was) {
						break
					}
				}
			}
		})
	}
	players.Wait()
	close(done)
	watchers.Wait()
	if got := l.Visible(); got != uint64(n+2*writes) {
		t.Errorf("visible %d, want %d", got, n+2*writes)
	}
}
