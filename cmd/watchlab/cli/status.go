package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/term"

	"watchlab/bench/lab"
)

const (
	quietTime = 45 * time.Second // interval of status lines without a terminal
	columns   = 100              // their length, at most
)

// status prints the progress: in one line of a terminal, elsewhere as a line every quietTime.
type status struct {
	w     io.Writer
	width int // of the terminal in columns; 0 without one
	shown bool
	now   func() time.Time
	last  time.Time // time of the last line without a terminal
}

func newStatus(w io.Writer) *status {
	s := &status{w: w, now: time.Now, last: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.width = 80
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			s.width = width
		}
	}
	return s
}

// show prints the progress. The lab calls it while no clock runs.
func (s *status) show(p lab.Progress) {
	switch {
	case p.Finished:
	case s.width > 0:
		line := []rune(progressLine(p))
		fmt.Fprintf(s.w, "\r\x1b[K%s", string(line[:min(len(line), s.width-1)]))
		s.shown = true
	case s.now().Sub(s.last) >= quietTime:
		s.last = s.now()
		line := []rune("watchlab: " + progressLine(p))
		if cut := len(line) - columns + 1; cut > 0 {
			// The end names the rate.
			line = slices.Replace(line, columns/2, columns/2+cut, '…')
		}
		fmt.Fprintln(s.w, string(line))
	}
}

func progressLine(p lab.Progress) string {
	done := fmt.Sprintf("%d/%d", p.Done, p.Total)
	if p.Total == 0 {
		done = fmt.Sprintf("%d played", p.Done)
	}
	if p.Left > 0 {
		done += fmt.Sprintf(", %v left", p.Left.Round(time.Second))
	}
	round := fmt.Sprintf("round %d/%d", p.Round, p.Rounds)
	switch {
	case p.Profiling:
		round = "profiles"
	case p.Round == 0:
		round = "warm-up"
	case p.Rounds == 0:
		round = fmt.Sprintf("round %d", p.Round)
	}
	return done + "  " + round + "  " + p.Cell
}

func (s *status) clear() {
	if s.shown {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.shown = false
	}
}
