package report

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"golang.org/x/sys/unix"
	xterm "golang.org/x/term"

	"watchlab/bench/lab"
	"watchlab/bench/telemetry/live"
)

// screen is a terminal of the given width. It fails on an escape sequence that it does not know and
// on a line that wraps.
type screen struct {
	t     *testing.T
	width int
	lines [][]rune
	row   int
	col   int
	all   strings.Builder
}

var escape = regexp.MustCompile(`^\x1b\[([0-9]*)([A-Za-z])`)

func (s *screen) Write(p []byte) (int, error) {
	s.all.Write(p)
	for text := string(p); text != ""; {
		if m := escape.FindStringSubmatch(text); m != nil {
			s.control(m[1], m[2])
			text = text[len(m[0]):]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		s.print(r)
	}
	return len(p), nil
}

func (s *screen) print(r rune) {
	for len(s.lines) <= s.row {
		s.lines = append(s.lines, nil)
	}
	switch {
	case r == '\r':
		s.col = 0
	case r == '\n':
		s.row, s.col = s.row+1, 0
	case s.col+ansi.StringWidth(string(r)) > s.width:
		s.t.Errorf("the line %q wraps at %d columns", string(s.lines[s.row]), s.width)
	default:
		at := s.col
		s.col += ansi.StringWidth(string(r))
		for len(s.lines[s.row]) < s.col {
			s.lines[s.row] = append(s.lines[s.row], ' ')
		}
		s.lines[s.row][at] = r
	}
}

func (s *screen) control(number, letter string) {
	n, err := strconv.Atoi(cmp.Or(number, "1"))
	switch {
	case letter == "A" && err == nil && n <= s.row:
		s.row -= n
	case letter == "K" && number == "" && s.row < len(s.lines):
		s.lines[s.row] = s.lines[s.row][:min(s.col, len(s.lines[s.row]))]
	case letter == "J" && number == "":
		s.lines = s.lines[:min(s.row+1, len(s.lines))]
		if s.row < len(s.lines) {
			s.lines[s.row] = s.lines[s.row][:min(s.col, len(s.lines[s.row]))]
		}
	case letter == "m":
	default:
		s.t.Errorf("escape sequence %q %q in row %d", number, letter, s.row)
	}
}

func (s *screen) String() string {
	var out []string
	for _, line := range s.lines {
		out = append(out, strings.TrimRight(string(line), " "))
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}

func (s *screen) size() (int, int) { return s.width, 24 }

func playedCell(variant string) lab.Progress {
	labels := lab.Labels{{Key: "impl", Value: variant}, {Key: "storm", Value: "gang"}, {Key: "rate", Value: "max"}}
	r := lab.CellResult{Name: "Queue", Labels: labels}
	return lab.Progress{Cell: r.BenchName(), Round: 2, Rounds: 5, Done: 7, Total: 12, Left: 83 * time.Second, Result: r}
}

func ranked() []live.Ranking {
	return []live.Ranking{{Knobs: "Queue/storm=rollout"}, {Group: "queue · gang", Knobs: "Queue/storm=gang", Of: "events/s", Variants: []live.Standing{
		{Name: "ring", Rounds: 2, Figure: "9.8M", Ratio: "2.04×", Verdict: "noisy"},
		{Name: "clientgo-fifo", Rounds: 1, Figure: "4.795M", Ratio: "baseline", Verdict: "valid"},
	}}}
}

const rankedTable = `queue · gang
  variant        rounds  events/s     ratio  verdict
> ring                2      9.8M     2.04×  noisy
  clientgo-fifo       1    4.795M  baseline  valid
7/12, 1m23s left  round 2/5  Queue/impl=ring/storm=gang/rate=max`

// TestTable: on a terminal the table of the comparison that is played is redrawn in place, gives way
// to warnings, is cut at the width and the height, and leaves nothing behind.
func TestTable(t *testing.T) {
	s := &screen{t: t, width: 80}
	st := &Status{w: s, size: s.size, now: time.Now}
	st.Show(playedCell("ring"))
	if got, want := s.String(), strings.Split(rankedTable, "\n")[4]; got != want {
		t.Errorf("before the first round:\n%s", got)
	}
	st.rankings = ranked()
	for range 3 {
		st.Show(playedCell("ring"))
		if got := s.String(); got != rankedTable {
			t.Errorf("got\n%s\nwant\n%s", got, rankedTable)
		}
	}
	fmt.Fprintln(st, "watchlab: a server is down")
	st.Show(playedCell("ring"))
	if got, want := s.String(), "watchlab: a server is down\n"+rankedTable; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.width = 30
	st.Show(playedCell("clientgo-fifo"))
	if got := strings.Split(s.String(), "\n"); len(got) != 6 || got[2] != "  variant        rounds  even" || !strings.HasPrefix(got[4], "> clientgo-fifo") {
		t.Errorf("narrow:\n%s", strings.Join(got, "\n"))
	}
	s.width = 40
	wide := playedCell("ring")
	wide.Cell = strings.Repeat("世界", 20) // two columns each
	st.Show(wide)
	st.Clear()
	s.width, st.size = 80, func() (int, int) { return 80, 4 }
	st.Show(playedCell("ring"))
	if got := strings.Split(s.String(), "\n"); len(got) != 4 || !strings.HasPrefix(got[3], "7/12") {
		t.Errorf("low:\n%s", strings.Join(got, "\n"))
	}
	st.Clear()
	if got := s.String(); got != "watchlab: a server is down" {
		t.Errorf("at the end:\n%s", got)
	}
	if strings.Contains(s.all.String(), "m\x1b") || strings.Contains(s.all.String(), "[3") {
		t.Errorf("colours without a request: %q", s.all.String())
	}

	s = &screen{t: t, width: 80}
	st = &Status{w: s, size: s.size, now: time.Now, colour: true, rankings: ranked()}
	st.Show(playedCell("ring"))
	if s.String() != rankedTable || !strings.Contains(s.all.String(), "\x1b[33m  noisy\x1b[m") || !strings.Contains(s.all.String(), "\x1b[32m  valid\x1b[m") {
		t.Errorf("with colours: %q", s.all.String())
	}
}

// TestTerminal: which files are terminals, and which of them have colours.
func TestTerminal(t *testing.T) {
	pty, tty := openTerminal(t, 61, 7)
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, test := range []struct {
		f             *os.File
		kind, noColor string
		table, colour bool
	}{
		{tty, "xterm", "", true, true},
		{tty, "xterm", "1", true, false},
		{tty, "dumb", "", false, false},
		{file, "xterm", "", false, false},
	} {
		t.Setenv("TERM", test.kind)
		t.Setenv("NO_COLOR", test.noColor)
		s := NewStatus(test.f)
		if (s.size != nil) != test.table || s.colour != test.colour {
			t.Errorf("%s, TERM=%s, NO_COLOR=%s: table %v, colour %v", test.f.Name(), test.kind, test.noColor, s.size != nil, s.colour)
		}
		if test.table {
			if width, height := s.size(); width != 61 || height != 7 {
				t.Errorf("%d × %d", width, height)
			}
		}
	}

	// A status on a terminal leaves what others wrote only.
	t.Setenv("TERM", "xterm")
	s, read := &screen{t: t, width: 61}, make(chan error)
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := pty.Read(buffer)
			_, _ = s.Write(buffer[:n])
			if err != nil {
				read <- err
				return
			}
		}
	}()
	st := NewStatus(tty)
	st.rankings = ranked()
	st.Show(playedCell("ring"))
	fmt.Fprintln(st, "a warning")
	st.Show(playedCell("ring"))
	st.Clear()
	if err := tty.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; err == nil {
		t.Error("the terminal has not ended")
	}
	if got := s.String(); got != "a warning" {
		t.Errorf("left on the terminal: %q", got)
	}
	if !strings.Contains(s.all.String(), "clientgo-fifo") {
		t.Errorf("the table was never shown: %q", s.all.String())
	}
}

// openTerminal opens a pseudo-terminal that passes output on as it is.
func openTerminal(t *testing.T, width, height int) (pty, tty *os.File) {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals: %v", err)
	}
	t.Cleanup(func() { _ = pty.Close() })
	number, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := xterm.MakeRaw(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	return pty, tty
}

// TestStatus: content and interval of status lines, with a terminal and without.
func TestStatus(t *testing.T) {
	p := lab.Progress{Cell: "Queue/impl=x", Round: 2, Rounds: 5, Done: 7, Total: 12, Left: 83*time.Second + 400*time.Millisecond}
	for want, change := range map[string]func(*lab.Progress){
		"7/12, 1m23s left  round 2/5  Queue/impl=x":   func(*lab.Progress) {},
		"7/12  warm-up  Queue/impl=x":                 func(p *lab.Progress) { p.Round, p.Left = 0, 0 },
		"7 played, 1m23s left  round 2  Queue/impl=x": func(p *lab.Progress) { p.Rounds, p.Total = 0, 0 },
		"7/12, 1m23s left  profiles  Queue/impl=x":    func(p *lab.Progress) { p.Round, p.Profiling = 0, true },
		"7 played, 1m23s left  warm-up  Queue/impl=x": func(p *lab.Progress) { p.Round, p.Rounds, p.Total = 0, 0, 0 },
	} {
		p := p
		change(&p)
		if got := progressLine(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	long := p
	long.Done = 0
	long.Cell = "DeltaFIFO/impl=" + strings.Repeat("é", 100) + "/rate=max"
	var out bytes.Buffer
	(&Status{w: &out, now: time.Now}).Show(long)
	if got := strings.TrimSuffix(out.String(), "\n"); utf8.RuneCountInString(got) != 100 || !strings.HasSuffix(got, "é/rate=max") {
		t.Errorf("a long line has %d columns: %q", utf8.RuneCountInString(got), got)
	}

	// Two processes of a run of 100 s, with a line after the warm-up and two more.
	out.Reset()
	p.Done, p.Round, p.Spent = 0, 0, 0
	for range 2 {
		s := &Status{w: &out, now: time.Now}
		for range 500 {
			s.Show(p)
			p.Spent += 100 * time.Millisecond
			p.Done, p.Round, p.Finished = 7, 2, true
			s.Show(p)
			p.Finished = false
		}
		s.Clear()
	}
	if got, want := out.String(), strings.Repeat("watchlab: 7/12, 1m23s left  round 2/5  Queue/impl=x\n", 3); got != want {
		t.Errorf("in 100 s, piped: %q, want %q", got, want)
	}
}
