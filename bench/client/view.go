package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// view is what the program sees: the version of each object by name.
type view map[string]string

// viewer asks a program for its view.
type viewer struct {
	in    *os.File
	lines chan string // closed at the end of the program's output
}

// newViewer returns a viewer and the program's ends of the pipes.
func newViewer() (v *viewer, stdin, stdout *os.File, err error) {
	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, errors.Join(err, in.Close(), stdin.Close())
	}
	v = &viewer{in: in, lines: make(chan string)}
	go func() {
		defer close(v.lines)
		defer func() { _ = out.Close() }()
		for s := bufio.NewScanner(out); s.Scan(); {
			v.lines <- s.Text()
		}
	}()
	return v, stdin, stdout, nil
}

// ask returns the view. A program that does not answer in time, or in other words, has failed.
func (v *viewer) ask(ctx context.Context, limit time.Duration) (view, error) {
	if _, err := v.in.WriteString("view\n"); err != nil {
		return nil, fmt.Errorf("does not read its standard input: %w", err)
	}
	seen, timeout := view{}, time.After(limit)
	for {
		select {
		case line, ok := <-v.lines:
			if !ok {
				return nil, errors.New("has ended its standard output")
			}
			if line == "end" {
				return seen, nil
			}
			name, version, ok := strings.Cut(line, " ")
			if !ok || name == "" || strings.TrimSpace(version) == "" {
				return nil, fmt.Errorf("wrote %.80q: neither NAME VERSION nor end", line)
			}
			seen[name] = strings.TrimSpace(version)
		case <-timeout:
			return nil, fmt.Errorf("did not answer view within %v", limit)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// close ends the program's input, and waits for the end of its output.
func (v *viewer) close() {
	_ = v.in.Close()
	for range v.lines {
	}
}

// difference says how a view differs from the server's; empty if it does not.
func (v view) difference(server view) string {
	missing, old, deleted := 0, 0, 0
	for name, version := range server {
		switch seen, ok := v[name]; {
		case !ok:
			missing++
		case seen != version:
			old++
		}
	}
	for name := range v {
		if _, ok := server[name]; !ok {
			deleted++
		}
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{missing, "missing"}, {old, "of another version"}, {deleted, "deleted on the server"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("of %d objects: %s", len(server), strings.Join(parts, ", "))
}
