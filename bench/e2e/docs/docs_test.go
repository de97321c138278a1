// Package docs runs the commands of README.md and of the guides.
package docs

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"watchlab/bench/e2e/programs"
)

// command is a command in a fenced block of shell.
type command struct {
	file string
	line int
	text string
}

var (
	fence = regexp.MustCompile("^```(\\w*)$")
	// needs matches the mark above a block that the test machine cannot run.
	needs = regexp.MustCompile(`^<!-- needs: .+ -->$`)
	// search matches the verbs that play rounds. The test shortens their commands.
	search = regexp.MustCompile(`^bin/watchlab (run|knee|scale) `)
)

// commands returns the commands of a guide in order.
func commands(file, text string) []command {
	var all []command
	skip, shell, inside := false, false, false
	for n, line := range strings.Split(text, "\n") {
		switch m := fence.FindStringSubmatch(line); {
		case m != nil && !inside:
			inside, shell = true, m[1] == "sh"
		case m != nil:
			inside, shell, skip = false, false, false
		case needs.MatchString(line):
			skip = true
		case shell && !skip && strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#"):
			all = append(all, command{file, n + 1, line})
		}
	}
	return all
}

// short limits a command to one round whose verdict ignores the host, unless its flags set the duration.
func short(text string) string {
	if !search.MatchString(text) || strings.Contains(text, "--resume") || strings.Contains(text, ".yaml --") {
		return text
	}
	for _, flag := range []string{"--rounds", "--budget", "experiment.yaml"} {
		if strings.Contains(text, flag) {
			return text
		}
	}
	line, comment, _ := strings.Cut(text, " #")
	return line + " --rounds 1 --ignore-host #" + comment
}

// workspace returns a copy of the tracked files with the command in bin.
func workspace(t *testing.T) string {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	list := exec.Command("bash", "-euo", "pipefail", "-c", "git ls-files -z | tar --null --ignore-failed-read -cf - -T - | tar -xf - -C \"$1\"", "bash", dir)
	list.Dir = root
	if out, err := list.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(programs.Watchlab(t), filepath.Join(dir, "bin", "watchlab")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestCommands runs each command of README.md and docs/*.md that needs neither a cluster
// nor Docker, in the order of the file. All commands of a file share a directory.
func TestCommands(t *testing.T) {
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir, ran := workspace(t), 0
	for _, file := range slices.Insert(files, 0, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range commands(filepath.Base(file), string(text)) {
			ran++
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			cmd := exec.CommandContext(ctx, "sh", "-c", short(c.text))
			cmd.Dir, cmd.WaitDelay = dir, time.Second
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			began := time.Now()
			err := cmd.Run()
			cancel()
			t.Logf("%s:%d: %v: %s", c.file, c.line, time.Since(began).Round(time.Millisecond), c.text)
			if err != nil {
				t.Errorf("%s:%d: %s: %v\n%s", c.file, c.line, c.text, err, &out)
			}
		}
	}
	if ran < 20 {
		t.Errorf("%d commands ran; the guides have more", ran)
	}
}
