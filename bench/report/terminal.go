package report

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/charmbracelet/x/ansi"
	xterm "golang.org/x/term"

	"watchlab/bench/lab"
	"watchlab/bench/telemetry/live"
)

const (
	quietFor  = 45 * time.Second // interval of status lines without a terminal
	shortTime = 10 * time.Second // remaining time below which a run prints none
	columns   = 100              // their length, at most
	rankEvery = time.Second      // least time between two rankings
)

// Status is the error output of a run, and prints its progress there: on a terminal a table of the
// comparison that is played, redrawn in place, elsewhere a line after the warm-up and every quietFor of
// the run, whose processes share it. What others write to it replaces the table.
type Status struct {
	size   func() (width, height int) // of the terminal; nil without one
	colour bool
	now    func() time.Time

	mu       sync.Mutex // guards the fields below
	w        io.Writer
	lines    int           // shown on the terminal
	began    bool          // Show was called
	next     time.Duration // time of the run at the next line without a terminal
	last     time.Time     // of the last ranking
	rankings []live.Ranking
}

// NewStatus returns the status of a run that writes to w.
func NewStatus(w io.Writer) *Status {
	s := &Status{w: w, now: time.Now, last: time.Now()}
	if f, ok := w.(*os.File); ok && xterm.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" {
		s.colour = os.Getenv("NO_COLOR") == ""
		s.size = func() (int, int) {
			width, height, err := xterm.GetSize(int(f.Fd()))
			if err != nil || width <= 0 || height <= 0 {
				return 80, 24
			}
			return width, height
		}
	}
	return s
}

// Write implements io.Writer. It erases the table before.
func (s *Status) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lines > 0 {
		fmt.Fprint(s.w, s.home()+ansi.EraseScreenBelow)
		s.lines = 0
	}
	return s.w.Write(p)
}

// Show prints the progress. The lab calls it while no clock runs.
func (s *Status) Show(p lab.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := s.now().Sub(s.last)
	if !s.began {
		s.began = true
		if p.Done > 0 {
			s.next = p.Spent.Truncate(quietFor) + quietFor
		}
	}
	switch {
	case s.size != nil:
		if p.Finished && p.Round > 0 && p.Outcome != nil && (len(s.rankings) == 0 || since >= rankEvery) {
			s.rankings, s.last = Rankings(p.Outcome), s.now()
		}
		s.draw(append(s.table(p), progressLine(p)))
	case !p.Finished && p.Round > 0 && p.Left >= shortTime && p.Spent >= s.next:
		s.next = p.Spent.Truncate(quietFor) + quietFor
		line := []rune("watchlab: " + progressLine(p))
		if cut := len(line) - columns + 1; cut > 0 {
			// The end names the rate.
			line = slices.Replace(line, columns/2, columns/2+cut, '…')
		}
		fmt.Fprintln(s.w, string(line))
	}
}

// Calibrating says on a terminal what a run does before its first play.
func (s *Status) Calibrating() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size != nil {
		s.draw([]string{"measuring which rates this machine keeps, some 10 s"})
	}
}

// draw replaces the table. Lines are cut at the width of the terminal, and the first ones at its height.
func (s *Status) draw(lines []string) {
	width, height := s.size()
	lines = lines[max(0, len(lines)-height+1):]
	for i, line := range lines {
		lines[i] = s.coloured(ansi.Truncate(line, width-1, "")) + ansi.EraseLineRight
	}
	fmt.Fprint(s.w, s.home()+strings.Join(lines, "\n")+ansi.EraseScreenBelow)
	s.lines = len(lines)
}

// table has a line for each variant of the comparison that is played; none before its first round.
func (s *Status) table(p lab.Progress) []string {
	at := slices.IndexFunc(s.rankings, func(r live.Ranking) bool { return r.Knobs == p.Result.NameExcept("impl", "rate") })
	if at < 0 {
		return nil
	}
	playing := ""
	if !p.Finished {
		playing = p.Result.Impl()
	}
	return RankingLines(s.rankings[at], playing)
}

// coloured colours the verdict at the end of a line.
func (s *Status) coloured(line string) string {
	if !s.colour {
		return line
	}
	for verdict, colour := range map[string]ansi.Color{"  valid": ansi.Green, "  noisy": ansi.Yellow, "  invalid": ansi.Red} {
		if at := strings.LastIndex(line, verdict); at >= 0 {
			return line[:at] + ansi.NewStyle().ForegroundColor(colour).Styled(line[at:])
		}
	}
	return line
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

// home moves the cursor to the start of the table.
func (s *Status) home() string { return "\r" + strings.Repeat(ansi.CUU1, max(0, s.lines-1)) }

// Clear erases the table.
func (s *Status) Clear() { _, _ = s.Write(nil) }
