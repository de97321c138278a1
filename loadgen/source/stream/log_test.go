package stream_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/source/stream"
)

func pod(name string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: "from elsewhere"}}
}

// TestLog: the state of the key decides the type of an event, its number is the object's
// version, and the log is a valid storm.
func TestLog(t *testing.T) {
	l := stream.NewLog(7)
	original := pod("a")
	step := func(name string, deleted bool) bool {
		return l.Append("ns/"+name, pod(name), deleted, time.Duration(l.Visible()))
	}
	if !l.Append("ns/a", original, false, 0) || !step("b", false) {
		t.Fatal("no room in an empty log")
	}
	l.EndInitial()
	for _, s := range []struct {
		name    string
		deleted bool
	}{{"a", false}, {"c", false}, {"b", true}, {"b", true}, {"unknown", true}, {"b", false}, {"a", true}} {
		if !step(s.name, s.deleted) {
			t.Errorf("no room for %+v", s)
		}
	}
	if step("d", false) || l.Refused() != 1 {
		t.Errorf("an eighth event was accepted, %d refused", l.Refused())
	}
	if last := l.Seal(); last != 7 || step("a", false) || l.Refused() != 1 {
		t.Errorf("sealed at %d, %d refused", last, l.Refused())
	}
	if original.ResourceVersion != "from elsewhere" {
		t.Error("the appended object was modified")
	}
	s := l.Storm(l.Visible())
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	var got []string
	for _, e := range s.Events {
		got = append(got, fmt.Sprintf("%s %s", e.Type, e.Key))
	}
	want := []string{"ADDED ns/a", "ADDED ns/b", "MODIFIED ns/a", "ADDED ns/c", "DELETED ns/b", "ADDED ns/b", "DELETED ns/a"}
	if !slices.Equal(got, want) || s.Initial != 2 {
		t.Errorf("initial %d, events %q, want %q", s.Initial, got, want)
	}
	if got := l.State(7); !slices.Equal(got, []int32{5, 3}) {
		t.Errorf("state %v, want those of b and c", got)
	}
	var keys []string
	for _, i := range l.State(7) {
		keys = append(keys, s.Events[i].Key)
	}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"ns/b", "ns/c"}) {
		t.Errorf("keys %q", keys)
	}
	if start, err := l.Bounds().Start("0", nil, true); err != nil || start.At != 2 || !start.State {
		t.Errorf("a watch of any state starts at %+v (%v), want the initial list", start, err)
	}
}

// TestLogFollowed: followers see each event once, in order, while it is written.
func TestLogFollowed(t *testing.T) {
	const events = 5000
	l := stream.NewLog(events)
	var followers sync.WaitGroup
	for range 4 {
		f := l.Follow(0)
		followers.Go(func() {
			defer f.Close()
			for at := uint64(0); at < events; {
				upto := f.Poll()
				if upto <= at {
					<-f.Wake()
					continue
				}
				for _, e := range l.Events(at, upto) {
					at++
					if rv := e.Object.(*v1.Pod).ResourceVersion; e.Seq != at || rv != strconv.FormatUint(at, 10) || e.Type == watch.Deleted {
						t.Errorf("event %d is numbered %d, version %s, %s", at, e.Seq, rv, e.Type)
						return
					}
				}
				f.Seen(at, 0)
			}
		})
	}
	for i := range events {
		name := strconv.Itoa(i % 100)
		l.Append("ns/"+name, pod(name), false, time.Duration(i))
		if i%500 == 0 {
			_ = l.State(l.Visible())
		}
	}
	followers.Wait()
}
