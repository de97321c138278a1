package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	xterm "golang.org/x/term"

	"watchlab/bench/lab"
)

const (
	quietFor  = 45 * time.Second // interval of status lines without a terminal
	shortTime = 10 * time.Second // remaining time below which a run prints none
)

// Status is the error output of a run, and prints its progress there: on a terminal a line, redrawn in
// place, elsewhere a line after the warm-up and every quietFor of the run, whose processes share it. What
// others write to it replaces the line of the terminal.
type Status struct {
	width int // of the terminal; 0 without one

	mu    sync.Mutex // guards the fields below
	w     io.Writer
	drawn bool          // the terminal shows a line
	began bool          // Show was called
	next  time.Duration // time of the run at the next line without a terminal
}

// NewStatus returns the status of a run that writes to w.
func NewStatus(w io.Writer) *Status {
	s := &Status{w: w}
	if f, ok := w.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		width, _, err := xterm.GetSize(int(f.Fd()))
		if s.width = width; err != nil || width <= 0 {
			s.width = 80
		}
	}
	return s
}

// Write implements io.Writer. It erases the line before.
func (s *Status) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn {
		fmt.Fprint(s.w, eraseLine)
		s.drawn = false
	}
	return s.w.Write(p)
}

// eraseLine moves the cursor to the start of its line, and erases that.
const eraseLine = "\r\x1b[K"

// Show prints the progress. The lab calls it while no clock runs.
func (s *Status) Show(p lab.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.width > 0 {
		fmt.Fprint(s.w, eraseLine+cut(progressLine(p), s.width-1))
		s.drawn = true
		return
	}
	if !s.began {
		s.began = true
		if p.Done > 0 {
			s.next = p.Spent.Truncate(quietFor) + quietFor
		}
	}
	if !p.Finished && p.Round > 0 && p.Left >= shortTime && p.Spent >= s.next {
		s.next = p.Spent.Truncate(quietFor) + quietFor
		fmt.Fprintln(s.w, cut("watchlab: "+progressLine(p), textWidth))
	}
}

// cut shortens a line in its middle: its end names the rate.
func cut(line string, width int) string {
	text := []rune(line)
	if long := len(text) - width; long > 0 {
		text = slices.Replace(text, width/2, width/2+long+1, '…')
	}
	return string(text)
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

// Clear erases the line.
func (s *Status) Clear() { _, _ = s.Write(nil) }
