package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// startWatches, with a number behind it, is how serve is told to wait for several
	// watches.
	startWatches = "watches:"
	// repeatForever is how serve is told to play without end.
	repeatForever = "forever"
	// maxWatches may be waited for.
	maxWatches = 1_000_000
	// settling is how long after the last of several watches the storm begins: by then
	// they have been told what is there at first.
	settling = time.Second
)

// parseStart returns how many watches the storm waits for.
func parseStart(text string) (int, error) {
	switch text {
	case startNow:
		return 0, nil
	case startFirstWatch:
		return 1, nil
	}
	number, ok := strings.CutPrefix(text, startWatches)
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || n > maxWatches {
		return 0, fmt.Errorf("%q is none of %s, %s, %sN with N from 1 to %d", text, startFirstWatch, startNow, startWatches, maxWatches)
	}
	return n, nil
}

// parseRepeat returns how often the storm is played, 0 for without end.
func parseRepeat(text string) (int, error) {
	if text == repeatForever {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is neither %s nor a number, 1 at least", text, repeatForever)
	}
	return n, nil
}

// port is a listener that outlives those who serve on it one after the other: who
// connects between two of them is answered by the second.
type port struct{ *net.TCPListener }

// turn returns the listener for the next of them, the one before being closed.
func (p port) turn() (net.Listener, error) {
	return &turn{port: p}, p.SetDeadline(time.Time{})
}

// turn is the listener of one of them.
type turn struct {
	port
	mu     sync.Mutex
	closed bool
}

// over reports whether it was closed.
func (t *turn) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

func (t *turn) Accept() (net.Conn, error) {
	c, err := t.port.Accept()
	switch {
	case t.over() && err == nil:
		// It came in at the last moment.
		return nil, errors.Join(net.ErrClosed, c.Close())
	case t.over():
		return nil, net.ErrClosed
	}
	return c, err
}

// Close ends Accept, and leaves the port as it is.
func (t *turn) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil
	}
	t.closed = true
	return t.SetDeadline(time.Unix(1, 0))
}

// play plays the storm as often as it was asked to, each time from the beginning.
func (v *service) play(ctx context.Context, out *lines) error {
	for n := 1; ; n++ {
		over := !v.playOnce(ctx, out)
		if over || n == v.flags.times || len(v.prepared) == 0 {
			return nil
		}
		if err := v.again(); err != nil {
			return err
		}
		out.printf("everything is as it was at first\n")
	}
}

// again begins anew, with the objects that were there from the start. All watches
// end, and clients list anew, as from an API server whose etcd has been restored.
func (v *service) again() error {
	if err := v.close(); err != nil {
		return err
	}
	if err := v.open(); err != nil {
		return err
	}
	return v.serveOn()
}

// close ends the server in its turn, and adds up what it has served.
func (v *service) close() error {
	v.injector.Stop()
	err := v.server.Close()
	v.lists += v.server.Lists()
	v.watches += v.server.Watches()
	v.bytes += v.server.WireBytes()
	return err
}

// playOnce plays the storm once its time has come. Where it is to be played again, it
// returns when as many watches have ended as it waited for: when the storm is over and
// its faults with it, or, where nothing else ends a watch, before. It returns false
// where ctx has ended.
func (v *service) playOnce(ctx context.Context, out *lines) bool {
	need, several := v.flags.need, strings.HasPrefix(v.flags.start, startWatches)
	if v.server.AwaitWatches(ctx, func(open, ended int) bool {
		// The first may be over already.
		return open >= need || !several && open+ended >= need
	}) != nil {
		return false
	}
	if several {
		select {
		case <-time.After(settling):
		case <-ctx.Done():
			return false
		}
	}
	if err := v.injector.Start(); err != nil {
		out.printf("faults: %v\n", err)
	}
	if len(v.prepared) == 0 {
		return true
	}
	out.printf("the storm begins\n")
	repeats := v.flags.times != 1
	gone := func(since int) func(int, int) bool {
		return func(_, ended int) bool { return ended-since >= need }
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	faults := len(v.injector.Specs()) > 0
	if repeats && need > 0 && !faults {
		go func() {
			if v.server.AwaitWatches(playing, gone(0)) == nil {
				stop()
			}
		}()
	}
	err := v.playStorm(playing)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		out.printf("the storm ends before its time: nobody watches it any more\n")
		return true
	}
	out.printf("the storm is over; what it left is still served\n")
	if !repeats {
		return true
	}
	since := 0
	if faults {
		v.injector.Stop()
		_ = v.server.AwaitWatches(ctx, func(_, ended int) bool { since = ended; return true }) // It doesn't wait.
	}
	return v.server.AwaitWatches(ctx, gone(since)) == nil
}
