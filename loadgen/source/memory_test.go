package source_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
)

// An unpaced memory source waits for the watch.
func TestMemoryBackpressure(t *testing.T) {
	st := small(t)
	src := source.NewMemory(st)
	defer func() { _ = src.Close() }()
	// There is no watch.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := src.Play(ctx, pacer(t, pace.Unpaced), uint64(len(st.Events)), nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("Play: %v, want %v", err, context.Canceled)
	}
	w, err := client(src).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: strconv.Itoa(st.Initial)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	// last is written by Play's goroutine and read after it has ended.
	var last uint64
	played := make(chan error, 1)
	go func() {
		played <- src.Play(ctx, pacer(t, pace.Unpaced), uint64(len(st.Events)), func(seq uint64, _ time.Time) { last = seq })
	}()
	taken := uint64(st.Initial)
	for range 100 {
		<-w.ResultChan()
		taken++
	}
	cancel()
	if err := <-played; !errors.Is(err, context.Canceled) {
		t.Fatalf("Play: %v, want %v", err, context.Canceled)
	}
	if last < taken || last > taken+2*128+1 {
		t.Errorf("released %d with %d received, want at most 2×128 ahead", last, taken)
	}
}

// A paced memory source never waits for a watch. A stopped watch ends, even with pending events.
func TestMemoryOpenLoop(t *testing.T) {
	st := small(t)
	src := source.NewMemory(st)
	defer func() { _ = src.Close() }()
	var watches []watch.Interface
	for range 2 {
		w, err := client(src).WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: strconv.Itoa(st.Initial)})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		watches = append(watches, w)
	}
	play(t, src, st, 1e6)
	watches[1].Stop()
	for seq := st.Initial + 1; seq <= len(st.Events); seq++ {
		e := <-watches[0].ResultChan()
		want := st.Events[seq-1]
		if e.Object != want.Object || e.Type != want.Type {
			t.Fatalf("event %d is %v %p, want the storm's object %v %p", seq, e.Type, e.Object, want.Type, want.Object)
		}
	}
	left := 0
	for range watches[1].ResultChan() {
		left++
	}
	if left > 128+1 {
		t.Errorf("%d events after Stop, want at most the channel's buffer", left)
	}
}

func TestMemoryWatchList(t *testing.T) {
	st := empty()
	src := source.NewMemory(st)
	defer func() { _ = src.Close() }()
	yes := true
	w, err := client(src).WatchWithContext(t.Context(), metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	if err != nil {
		t.Fatal(err)
	}
	e := <-w.ResultChan()
	pod, ok := e.Object.(*v1.Pod)
	if e.Type != watch.Bookmark || !ok || pod.Annotations[metav1.InitialEventsAnnotationKey] != "true" || pod.ResourceVersion != "0" {
		t.Errorf("the first event of an empty state is %v, want the annotated bookmark at 0", e)
	}
	w.Stop()
	for range w.ResultChan() {
		t.Error("an event after Stop with nothing released")
	}
}

func TestMemoryErrors(t *testing.T) {
	lw := client(source.NewMemory(empty()))
	for _, opts := range []metav1.ListOptions{
		{LabelSelector: "a=b"},
		{FieldSelector: "metadata.name=x"},
		{ResourceVersion: "x"},
		{ResourceVersion: "1"},
	} {
		if _, err := lw.ListWithContext(t.Context(), opts); err == nil {
			t.Errorf("List(%v): no error", opts)
		}
		if _, err := lw.WatchWithContext(t.Context(), opts); err == nil {
			t.Errorf("Watch(%v): no error", opts)
		}
	}
}
