package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"watchlab/bench/lab"
)

var inRound = lab.Progress{Cell: "Queue/impl=x", Round: 2, Rounds: 5, Done: 7, Total: 12, Left: 83*time.Second + 400*time.Millisecond}

// TestTerminal: a status redraws its line on a terminal, as wide as that, and gives way to what others write.
func TestTerminal(t *testing.T) {
	pty, tty := openTerminal(t, 30)
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for f, want := range map[*os.File]bool{tty: true, file: false} {
		for _, kind := range []string{"xterm", "dumb"} {
			t.Setenv("TERM", kind)
			if got := NewStatus(f).width > 0; got != (want && kind != "dumb") {
				t.Errorf("%s, TERM=%s: a terminal: %v", f.Name(), kind, got)
			}
		}
	}

	t.Setenv("TERM", "xterm")
	st := NewStatus(tty)
	st.Show(inRound)
	fmt.Fprint(st, "a warning;")
	st.Clear()
	fmt.Fprint(st, "the end.")
	var got strings.Builder
	for buffer := make([]byte, 4096); !strings.HasSuffix(got.String(), "end."); {
		n, err := pty.Read(buffer)
		if err != nil {
			t.Fatalf("%v after %q", err, &got)
		}
		got.Write(buffer[:n])
	}
	want := []string{"", "7/12, 1m23s le…  Queue/impl=x", "a warning;the end."}
	if lines := strings.Split(got.String(), eraseLine); strings.Join(lines, "|") != strings.Join(want, "|") {
		t.Errorf("%q, want %q", lines, want)
	}
}

// openTerminal opens a pseudo-terminal.
func openTerminal(t *testing.T, width int) (pty, tty *os.File) {
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
	t.Cleanup(func() { _ = tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: uint16(width)}); err != nil {
		t.Fatal(err)
	}
	return pty, tty
}

// TestStatus: content and interval of status lines without a terminal.
func TestStatus(t *testing.T) {
	for want, change := range map[string]func(*lab.Progress){
		"7/12, 1m23s left  round 2/5  Queue/impl=x":   func(*lab.Progress) {},
		"7/12  warm-up  Queue/impl=x":                 func(p *lab.Progress) { p.Round, p.Left = 0, 0 },
		"7 played, 1m23s left  round 2  Queue/impl=x": func(p *lab.Progress) { p.Rounds, p.Total = 0, 0 },
		"7/12, 1m23s left  profiles  Queue/impl=x":    func(p *lab.Progress) { p.Round, p.Profiling = 0, true },
		"7 played, 1m23s left  warm-up  Queue/impl=x": func(p *lab.Progress) { p.Round, p.Rounds, p.Total = 0, 0, 0 },
	} {
		p := inRound
		change(&p)
		if got := progressLine(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}

	p, long := inRound, inRound
	long.Done = 0
	long.Cell = "DeltaFIFO/impl=" + strings.Repeat("é", 100) + "/rate=max"
	var out bytes.Buffer
	(&Status{w: &out}).Show(long)
	if got := strings.TrimSuffix(out.String(), "\n"); utf8.RuneCountInString(got) != 100 || !strings.HasSuffix(got, "é/rate=max") {
		t.Errorf("a long line has %d columns: %q", utf8.RuneCountInString(got), got)
	}

	// Two processes of a run of 100 s, with a line after the warm-up and two more.
	out.Reset()
	p.Done, p.Round, p.Spent = 0, 0, 0
	for range 2 {
		s := &Status{w: &out}
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
