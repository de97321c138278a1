package controller

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"watchlab/bench/controller/verdict"
	"watchlab/bench/stats"
)

// JUnitFile is the name of the JUnit XML in a results folder.
const JUnitFile = "junit.xml"

// Publish writes the result for CI systems: [JUnitFile] in the results folder and, in a GitHub workflow
// (GITHUB_ACTIONS=true), annotations to out and a summary to the file GITHUB_STEP_SUMMARY.
func (r *Result) Publish(dir string, out io.Writer) error {
	if err := file(dir, JUnitFile, r.WriteJUnit); err != nil {
		return err
	}
	if os.Getenv("GITHUB_ACTIONS") != "true" {
		return nil
	}
	if err := r.WriteAnnotations(out); err != nil {
		return err
	}
	summary := os.Getenv("GITHUB_STEP_SUMMARY")
	if summary == "" {
		return nil
	}
	return appendTo(summary, r.WriteSummary)
}

func appendTo(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// WriteAnnotations writes the result as workflow commands of GitHub: an annotation per program and failed
// verdict, with the first play that failed, and one for all figures that lost. GitHub shows ten of a kind
// in one step. Failures of the baseline are notices.
func (r *Result) WriteAnnotations(w io.Writer) error {
	out := &printer{w: w}
	for _, f := range r.failures() {
		kind := "error"
		if r.baseline(f.program) {
			kind = "notice"
		}
		lines := append([]string{fmt.Sprintf("%d of %d plays failed. First %s:", f.failed, f.plays, f.first.Name)}, f.lines...)
		annotate(out, kind, f.verdict+" ("+f.program+")", lines)
	}
	var lost []string
	for _, c := range r.Compared {
		if c.Lost {
			lost = append(lost, c.text())
		}
	}
	if len(lost) > 0 {
		annotate(out, "warning", "worse than "+r.Programs[0], lost)
	}
	annotate(out, "notice", "watchlab controller", []string{r.Sentence})
	return out.err
}

// WriteSummary writes the result as Markdown for the summary of a step.
func (r *Result) WriteSummary(w io.Writer) error {
	out := &printer{w: w}
	out.printf("### watchlab controller\n\n%s\n", markdown(r.Sentence))
	r.summarizeVerdicts(out)
	for _, f := range r.failures() {
		out.printf("\n<details><summary>%s: %s, %d of %d plays failed</summary>\n\n%s\n\n```text\n%s\n```\n\n</details>\n",
			markdown(f.program), markdown(f.verdict), f.failed, f.plays, markdown(f.first.Name),
			strings.ReplaceAll(strings.Join(f.lines, "\n"), "```", "'''"))
	}
	if len(r.Compared) > 0 {
		out.printf("\n| cell | figure | %s | %s | ratio | |\n|---|---|---:|---:|---:|---|\n", markdown(r.Programs[0]), markdown(r.Programs[1]))
		for _, c := range r.Compared {
			out.printf("| %s | %s | %.4g | %.4g | %s | %s |\n", markdown(c.Cell), markdown(c.Unit), c.Stats.From, c.Stats.To,
				ratio(c.Stats), c.judgement())
		}
	}
	if r.Interrupted {
		out.printf("\nThe run was interrupted.\n")
	}
	return out.err
}

// summarizeVerdicts writes a table with a row per verdict and a column per program and plan.
func (r *Result) summarizeVerdicts(out *printer) {
	type column struct{ program, plan string }
	type count struct{ plays, failed int }
	var columns []column
	var names []string
	counts := map[column]map[string]*count{}
	for i := range r.Plays {
		p := &r.Plays[i]
		c := column{p.Program, p.Plan}
		if counts[c] == nil {
			columns, counts[c] = append(columns, c), map[string]*count{}
		}
		for _, v := range p.Verdicts {
			if !slices.Contains(names, v.Name) {
				names = append(names, v.Name)
			}
			if counts[c][v.Name] == nil {
				counts[c][v.Name] = &count{}
			}
			counts[c][v.Name].plays++
			if v.Failed {
				counts[c][v.Name].failed++
			}
		}
	}
	if len(columns) == 0 {
		return
	}
	out.printf("\n| verdict |")
	for _, c := range columns {
		out.printf(" %s, faults: %s |", markdown(c.program), markdown(c.plan))
	}
	out.printf("\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, name := range names {
		out.printf("| %s |", markdown(name))
		for _, c := range columns {
			switch n := counts[c][name]; {
			case n == nil:
				out.printf(" |")
			case n.failed == 0:
				out.printf(" passed |")
			default:
				out.printf(" **failed** (%d of %d) |", n.failed, n.plays)
			}
		}
		out.printf("\n")
	}
}

// failed is a verdict that failed in plays of one program.
type failed struct {
	program, verdict string
	plays, failed    int
	first            *Play
	shown            verdict.Verdict // of the first play
	lines            []string        // of the first play
}

// failures returns the failed verdicts, the baseline's last.
func (r *Result) failures() []*failed {
	var all []*failed
	for i := range r.Plays {
		p := &r.Plays[i]
		for _, v := range p.Verdicts {
			k := slices.IndexFunc(all, func(f *failed) bool { return f.program == p.Program && f.verdict == v.Name })
			if k < 0 {
				k, all = len(all), append(all, &failed{program: p.Program, verdict: v.Name})
			}
			f := all[k]
			f.plays++
			if !v.Failed {
				continue
			}
			if f.failed++; f.first == nil {
				f.first, f.shown, f.lines = p, v, r.failure(p, v)
			}
		}
	}
	all = slices.DeleteFunc(all, func(f *failed) bool { return f.failed == 0 })
	slices.SortStableFunc(all, func(a, b *failed) int {
		return cmp.Compare(slices.Index(r.Programs, b.program), slices.Index(r.Programs, a.program))
	})
	return all
}

func (r *Result) baseline(program string) bool {
	return len(r.Programs) > 1 && program == r.Programs[0]
}

func (c *Compared) text() string {
	return fmt.Sprintf("%s %s: %.4g → %.4g, %s", c.Cell, c.Unit, c.Stats.From, c.Stats.To, ratio(c.Stats))
}

func (c *Compared) judgement() string {
	switch {
	case c.Lost:
		return "**worse**"
	case c.Won:
		return "better"
	case !c.Stats.Testable:
		return "too few rounds"
	}
	return "no difference"
}

func ratio(s stats.Comparison) string {
	if s.Lo == 0 && s.Hi == 0 {
		return fmt.Sprintf("%.3g×", s.Ratio)
	}
	return fmt.Sprintf("%.3g× (%.3g to %.3g)", s.Ratio, s.Lo, s.Hi)
}

// The escapes of workflow commands: the message, and its properties.
var (
	messageEscapes  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	propertyEscapes = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func annotate(out *printer, kind, title string, lines []string) {
	out.printf("::%s title=%s::%s\n", kind, propertyEscapes.Replace(title), messageEscapes.Replace(strings.Join(lines, "\n")))
}

// markdown escapes a text of one line.
var markdown = strings.NewReplacer("\\", "\\\\", "|", "\\|", "*", "\\*", "_", "\\_", "`", "\\`", "<", "&lt;", "[", "\\[", "\n", " ").Replace

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
