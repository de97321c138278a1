package cli

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// verbs are all commands below the root.
func verbs(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		all = append(all, verbs(c)...)
	}
	return all
}

// TestFlagHelpIsShort: a flag's help is at most 12 words; details are in the guides.
func TestFlagHelpIsShort(t *testing.T) {
	for _, cmd := range verbs(newRoot(nil)) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if n := len(strings.Fields(f.Usage)); n > 12 {
				t.Errorf("%s --%s: %d words: %s", cmd.CommandPath(), f.Name, n, f.Usage)
			}
		})
	}
}

var flagLine = regexp.MustCompile(`(?m)^ +(-\w, )?--\w`)

func TestShortAndFullHelp(t *testing.T) {
	_, short, _ := call(t, "run", "--help")
	if n := len(flagLine.FindAllString(short, -1)); n > 20 || n < 15 {
		t.Errorf("run --help shows %d flags:\n%s", n, short)
	}
	if !regexp.MustCompile(`\d+ more flags: watchlab run --help-all`).MatchString(short) || strings.Contains(short, "--compaction") {
		t.Errorf("the short help:\n%s", short)
	}
	code, full, errs := call(t, "run", "--help-all")
	if code != exitOK || errs != "" || !strings.Contains(full, "--compaction") || strings.Contains(full, "more flags") {
		t.Errorf("exit code %d, stderr %q, the full help:\n%s", code, errs, full)
	}
	_, knee, _ := call(t, "knee", "--help")
	if !strings.Contains(knee, "--slo") || strings.Contains(knee, "--pace") {
		t.Errorf("the help of knee:\n%s", knee)
	}
	_, root, _ := call(t, "--help")
	for _, g := range groups {
		if !strings.Contains(root, "\n"+g.title+"\n") {
			t.Errorf("no group %s in\n%s", g.title, root)
		}
	}
	for _, c := range newRoot(nil).Commands() {
		if c.GroupID == "" && !c.Hidden {
			t.Errorf("%s is in no group", c.Name())
		}
	}
}

func TestListFits(t *testing.T) {
	_, out, _ := call(t, "list")
	for line := range strings.SplitSeq(out, "\n") {
		if n := utf8.RuneCountInString(line); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

func TestVersion(t *testing.T) {
	code, out, errs := call(t, "--version")
	if code != exitOK || errs != "" || !regexp.MustCompile(`^watchlab version \S+, go1\.`).MatchString(out) {
		t.Errorf("exit code %d, stderr %q, stdout %q", code, errs, out)
	}
}
