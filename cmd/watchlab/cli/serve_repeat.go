package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"watchlab/loadgen/apiserver"
)

const (
	// startWatches, followed by a number, is the value of --start that waits for that
	// many watches.
	startWatches = "watches:"
	// repeatForever is the value of --repeat for endless repetition.
	repeatForever = "forever"
	// maxWatches is the largest number of watches to wait for.
	maxWatches = 1_000_000
	// settling is the delay between the last of several watches and the storm. Clients
	// receive the initial objects meanwhile.
	settling = time.Second
)

// parseStart returns the number of watches that the storm waits for.
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

// parseRepeat returns the number of repetitions; 0 for endless.
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

// play plays the storm the requested number of times. Each time it starts a new server with
// the initial objects: all watches end and clients list again, as after a restore of etcd.
func (v *service) play(ctx context.Context, out io.Writer) error {
	for n := 1; v.playOnce(ctx, out) && n != v.flags.times && len(v.prepared) > 0; n++ {
		if err := v.close(); err != nil {
			return err
		}
		if err := v.open(); err != nil {
			return err
		}
		if err := v.serveTurn(); err != nil {
			return err
		}
		fmt.Fprintln(out, "everything is as it was at first")
	}
	return nil
}

// close closes the current server and adds its counts to the totals.
func (v *service) close() error {
	v.injector.Stop()
	err := v.server.Close()
	v.lists += v.server.Lists()
	v.watches += v.server.Watches()
	v.bytes += v.server.WireBytes()
	return err
}

// playOnce waits for the start condition and plays the storm once. Before a repetition,
// it waits until as many watches have ended as it waited for at the start: after the
// storm and its faults, or earlier if clients close them. It returns false if ctx has
// ended.
func (v *service) playOnce(ctx context.Context, out io.Writer) bool {
	need, several := v.flags.need, strings.HasPrefix(v.flags.start, startWatches)
	if v.server.AwaitWatches(ctx, func(open, ended int) bool {
		// Some of the watches may have ended already.
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
		fmt.Fprintf(out, "faults: %v\n", err)
	}
	if len(v.prepared) == 0 {
		return true
	}
	fmt.Fprintln(out, "the storm begins")
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
	err := apiserver.Play(playing, v.server, v.prepared, v.flags.speed)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		fmt.Fprintf(out, "the storm ends before its time: nobody watches it any more\n")
		return true
	}
	fmt.Fprintf(out, "the storm is over; what it left is still served")
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
