package store

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestStart(t *testing.T) {
	yes, no := true, false
	const visible, initial = 8, 3
	for _, tc := range []struct {
		version   string
		initial   *bool
		bookmarks bool
		retain    int
		want      Start
		fails     func(error) bool
	}{
		{version: "5", want: Start{At: 5}},
		{version: "8", want: Start{At: 8}},
		{version: "5", initial: &no, want: Start{At: 5}},
		{version: "", want: Start{At: 8, State: true}},
		{version: "", bookmarks: true, want: Start{At: 8, State: true, Mark: true}},
		{version: "0", bookmarks: true, want: Start{At: 3, State: true, Mark: true}},
		{version: "0", want: Start{At: 3, State: true}},
		{version: "0", retain: 2, want: Start{At: 6, State: true}},
		{version: "", initial: &no, want: Start{At: 8}},
		{version: "0", initial: &no, want: Start{At: 8}},
		{version: "", initial: &yes, bookmarks: true, want: Start{At: 8, State: true, Mark: true}},
		{version: "4", initial: &yes, bookmarks: true, want: Start{At: 8, State: true, Mark: true}},
		{version: "4", initial: &yes, want: Start{At: 8, State: true}},
		{version: "4", initial: &yes, retain: 2, bookmarks: true, want: Start{At: 8, State: true, Mark: true}},
		{version: "6", retain: 2, want: Start{At: 6}},
		{version: "5", retain: 2, fails: apierrors.IsResourceExpired},
		{version: "9", fails: apierrors.IsTimeout},
		{version: "9", initial: &yes, fails: apierrors.IsTimeout},
		{version: "-1", fails: isUnreadable},
		{version: "1.5", fails: isUnreadable},
		{version: "18446744073709551616", fails: isUnreadable},
	} {
		bounds := Bounds{Visible: visible, First: initial}
		if tc.retain > 0 {
			bounds.Oldest = visible - uint64(tc.retain)
		}
		got, err := bounds.Start(tc.version, tc.initial, tc.bookmarks)
		if tc.fails != nil {
			if err == nil || !tc.fails(err) {
				t.Errorf("%+v: error %v", tc, err)
			}
			continue
		}
		if err != nil || got != tc.want {
			t.Errorf("Start(%q, …) with retain=%d = %+v, %v, want %+v", tc.version, tc.retain, got, err, tc.want)
		}
	}
	// Without an initial list, any state is the empty state, and all events follow.
	if got, err := (Bounds{Visible: 4}).Start("0", nil, true); err != nil || got != (Start{}) {
		t.Errorf("Start(0) of a storm without an initial list = %+v, %v", got, err)
	}
}

func TestRaise(t *testing.T) {
	st := &Position{}
	for _, step := range []struct{ seq, want uint64 }{{0, 0}, {3, 3}, {2, 3}, {3, 3}} {
		if st.Raise(step.seq); st.Visible() != step.want {
			t.Errorf("Raise(%d): visible %d, want %d", step.seq, st.Visible(), step.want)
		}
	}
}

// spin polls a condition until it holds, then waits for a time that varies with turn. The next
// step then meets the other goroutine at any point of its work.
func spin(ctx context.Context, turn uint64, done func() bool) {
	for i := 1; !done(); i++ {
		if i%1024 == 0 {
			if ctx.Err() != nil {
				return
			}
			runtime.Gosched()
		}
	}
	for range turn % 128 {
		runtime.KeepAlive(turn)
	}
}

// Releases one event at a time, after the one before was seen, just as the follower falls
// asleep. No later event can hide a lost wake-up.
func TestNoLostWakeup(t *testing.T) {
	const n = 20_000
	st := &Position{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := st.Follow(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := uint64(0); at < n; {
			if upto := f.Poll(); upto > at {
				at = upto
				f.Seen(at, 0)
				continue
			}
			select {
			case <-f.Wake():
			case <-ctx.Done():
				t.Errorf("asleep at %d with %d visible", at, st.Visible())
				return
			}
		}
	})
	for seq := range uint64(n) {
		spin(ctx, seq, func() bool { return f.seen.Load() == seq })
		st.Raise(seq + 1)
	}
	wg.Wait()
}

// The same for WaitRoom: the event is seen just as WaitRoom falls asleep.
func TestNoMissedRoom(t *testing.T) {
	const n, window = 20_000, 1
	st := &Position{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := st.Follow(0)
	var wg sync.WaitGroup
	wg.Go(func() {
		for at := uint64(0); at < n && ctx.Err() == nil; {
			spin(ctx, at, func() bool { return f.Poll() > at })
			at = st.Visible()
			f.Seen(at, window)
		}
	})
	for seq := range uint64(n) {
		st.Raise(seq + 1)
		if err := st.WaitRoom(ctx, window); err != nil {
			t.Errorf("waits for room at %d with %d seen: %v", seq+1, f.seen.Load(), err)
			break
		}
	}
	cancel()
	wg.Wait()
}

func TestWaitRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &Position{}
		done := make(chan error, 1)
		wait := func(ctx context.Context) { go func() { done <- st.WaitRoom(ctx, 4) }() }
		waits := func(want bool) {
			t.Helper()
			synctest.Wait()
			select {
			case err := <-done:
				if want || err != nil {
					t.Fatalf("WaitRoom returned %v, want it to wait: %v", err, want)
				}
			default:
				if !want {
					t.Fatal("WaitRoom waits")
				}
			}
		}
		wait(t.Context())
		waits(true)
		f := st.Follow(0)
		waits(false)
		st.Raise(4)
		wait(t.Context())
		waits(true)
		f.Seen(1, 4)
		waits(true)
		f.Seen(2, 4)
		waits(false)
		st.Raise(6)
		wait(t.Context())
		waits(true)
		other := st.Follow(6)
		waits(true)
		f.Close()
		waits(false)
		other.Close()
		ctx, cancel := context.WithCancel(t.Context())
		wait(ctx)
		waits(true)
		cancel()
		synctest.Wait()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("WaitRoom: %v, want %v", err, context.Canceled)
		}
	})
}

// isUnreadable reports a version that is not a number: status 500, as from a real server.
func isUnreadable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError
}
