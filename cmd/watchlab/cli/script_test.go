package cli

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the output in the scripts")

var (
	scriptFile = regexp.MustCompile(`(?m)^-- (\S+) --\n`)
	word       = regexp.MustCompile(`(?:[^\s'"]|'[^']*'|"[^"]*")+`)
	quoted     = regexp.MustCompile(`'([^']*)'|"([^"]*)"`)
)

// TestScripts plays the scripts testdata/*.txt. A line "$ [NAME=VALUE…] ARGUMENTS" calls watchlab; its output and its exit code,
// if that is not 0, follow. The files at the end of a script are in the working folder, with those of testdata/input,
// a recording large.jsonl of 2 MB and the kubeconfig of a server that must not be written to.
//
// Bad input, exit code 2, is one line, and writes nothing.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v: no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want := must(os.ReadFile(file))(t)
			got := play(t, string(want))
			if *update {
				noError(t, os.WriteFile(file, []byte(got), 0o644))
			} else if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-want +got; -update rewrites it):\n%s", file, diff)
			}
		})
	}
}

// play returns a script with the output of its commands.
func play(t *testing.T, script string) string {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		noError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
	}
	noError(t, os.CopyFS(dir, os.DirFS("testdata/input")))
	write("kubeconfig", content(t, unasked(t)))
	write("large.jsonl", strings.Repeat(`{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b"},"spec":{"nodeName":"`+
		strings.Repeat("x", 1<<20)+"\"}}}\n", 2))
	commands, files := script, ""
	if at := scriptFile.FindAllStringSubmatchIndex(script, -1); at != nil {
		commands, files = script[:at[0][0]], script[at[0][0]:]
		for i, m := range at {
			end := len(script)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			write(script[m[2]:m[3]], script[m[1]:end])
		}
	}
	back, err := os.Getwd()
	if err == nil {
		err = os.Chdir(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chdir(back) }()
	var out strings.Builder
	for line := range strings.Lines(commands) {
		switch {
		case strings.HasPrefix(line, "$ "):
			out.WriteString(line + played(t, strings.TrimSpace(line[2:])))
		case strings.HasPrefix(line, "#") && out.Len() > 0:
			out.WriteString("\n" + line)
		case strings.HasPrefix(line, "#"):
			out.WriteString(line)
		}
	}
	return out.String() + files
}

// played calls the command of a script's line and returns its output.
func played(t *testing.T, line string) string {
	words := word.FindAllString(line, -1)
	for i, w := range words {
		words[i] = quoted.ReplaceAllString(w, "$1$2")
	}
	for ; len(words) > 0; words = words[1:] {
		name, value, ok := strings.Cut(words[0], "=")
		if !ok || name != strings.ToUpper(name) {
			break
		}
		t.Setenv(name, value)
		defer func() { _ = os.Unsetenv(name) }()
	}
	before := must(filepath.Glob("*"))(t)
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), words, &stdout, &stderr)
	after := must(filepath.Glob("*"))(t)
	if oneLine := strings.Count(stderr.String(), "\n") == 1 && strings.HasPrefix(stderr.String(), "watchlab: "); code == exitUsage && (!oneLine || stdout.Len() > 0 || len(after) > len(before)) {
		t.Errorf("%s: bad input is not one line, or writes: %q, %q, %q", line, stdout.String(), stderr.String(), after)
	}
	text := stdout.String() + stderr.String()
	if code != exitOK {
		text += fmt.Sprintf("exit %d\n", code)
	}
	return text
}
