package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"watchlab/bench/lab"
)

// status is the line that tells how far a run is. It is written over in place
// on a terminal and not at all elsewhere.
type status struct {
	w     io.Writer
	width int
	start time.Time
	shown bool
}

func newStatus(w io.Writer) *status {
	s := &status{start: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.w, s.width = w, 80
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			s.width = width
		}
	}
	return s
}

// show tells that a cell is played. It is called while no clock runs.
func (s *status) show(p lab.Progress) {
	if s.w == nil || p.Finished {
		return
	}
	round := fmt.Sprintf("round %d/%d", p.Round, p.Rounds)
	if p.Round == 0 {
		round = "warm-up"
	}
	left := ""
	if p.Done > 0 {
		passed := time.Since(s.start)
		rest := passed * time.Duration(p.Total-p.Done) / time.Duration(p.Done)
		left = fmt.Sprintf(", %v left", rest.Round(time.Second))
	}
	line := []rune(fmt.Sprintf("%d/%d%s  %s  %s", p.Done, p.Total, left, round, p.Cell))
	fmt.Fprintf(s.w, "\r\x1b[K%s", string(line[:min(len(line), s.width-1)]))
	s.shown = true
}

// clear takes the line away.
func (s *status) clear() {
	if s.shown {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.shown = false
	}
}
