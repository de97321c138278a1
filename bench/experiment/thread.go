package experiment

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchunit"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Thread is what a discussion of another project claims, beside the experiments that test it. The name
// of its question is the number of the thread, About is what the thread reports.
type Thread struct {
	Ref      string   `json:"ref"`      // repository and number, as in kubernetes#130767
	URL      string   `json:"url"`      // of the discussion
	Claims   []Claim  `json:"claims"`   // what is tested
	Reduced  string   `json:"reduced"`  // how the experiments are smaller than the thread's
	AtFull   string   `json:"atFull"`   // the same at full scale
	Untested []string `json:"untested"` // what is not tested, each with its reason
	Full     bool     `json:"-"`        // set by [Question.AtFullScale]
}

// Claim is a sentence of a thread and the ratio of two figures that tests it.
type Claim struct {
	Says  string            `json:"says"`            // the thread's sentence, with its figures in quotes
	Part  string            `json:"part"`            // the part with both cells
	Unit  string            `json:"unit"`            // of both figures
	Of    map[string]string `json:"of"`              // labels that only the first cell has; empty stands for none
	Than  map[string]string `json:"than,omitempty"`  // labels of the cell that it is divided by
	Fixed float64           `json:"fixed,omitempty"` // in place of Than: a figure of the thread, in the unit
	// The claim holds for ratios from Least to Most; no limit if 0.
	Least float64 `json:"least,omitempty"`
	Most  float64 `json:"most,omitempty"`
}

// Answer says whether our figures confirm a claim.
type Answer string

// The answers.
const (
	Agree      Answer = "agree"       // the whole interval of the ratio is in the claim's range
	Disagree   Answer = "disagree"    // the whole interval is out of it
	CannotTell Answer = "cannot tell" // too few rounds, no figures, or a limit lies in the interval
)

// Bench is a measurement by a benchmark of the source tree, for what no Spec can play.
type Bench struct {
	Dir     string `json:"dir"`     // of the package, from the root of the repository
	Pattern string `json:"pattern"` // of go test -bench
}

// Command returns the arguments of go for one pass.
func (b Bench) Command() []string {
	return []string{"test", "-run", "^$", "-bench", b.Pattern, "-benchtime", "1x", "."}
}

// ErrUnknownThread is wrapped by errors for an unknown name.
var ErrUnknownThread = errors.New("unknown thread")

// Threads returns the named threads, by number or as in kubernetes#130767; all without names.
func Threads(names ...string) ([]Question, error) {
	numbers := slices.Clone(names)
	for i, n := range numbers {
		numbers[i] = n[strings.LastIndexByte(n, '#')+1:]
	}
	return questionsIn("threads", ErrUnknownThread, numbers)
}

// AtFullScale returns the thread with the fields of the full scale in its Specs.
func (q Question) AtFullScale() Question {
	t := *q.Thread
	t.Full = true
	q.Thread, q.Parts = &t, slices.Clone(q.Parts)
	for i, p := range q.Parts {
		if p.Full != nil {
			q.Parts[i].Experiment = p.Experiment.inherit(*p.Full)
		}
	}
	return q
}

// Outcome reads the output of several passes of the benchmark. Each is a round of its cells.
func (b Bench) Outcome(r io.Reader, file string, ended time.Time) (*lab.Outcome, error) {
	f, err := stats.Read(r, file)
	if err != nil {
		return nil, err
	}
	c := lab.ComparisonResult{Title: "go " + strings.Join(b.Command(), " ") + " in " + b.Dir}
	o := &lab.Outcome{Ended: &ended, Env: lab.Env{CPU: f.Config["cpu"], GOOS: f.Config["goos"], GOARCH: f.Config["goarch"]}}
	for _, name := range f.Names {
		parts := strings.Split(name, "/")
		cl := lab.CellResult{Name: parts[0], Verdict: lab.Verdict{Status: lab.Valid}}
		for _, p := range parts[1:] {
			key, value, _ := strings.Cut(p, "=")
			cl.Labels = append(cl.Labels, lab.Label{Key: key, Value: value})
		}
		samples := f.Samples[name]
		for i := range f.Iters[name] {
			at := func(unit string) float64 {
				if i < len(samples[unit]) {
					return samples[unit][i]
				}
				return 0
			}
			round := lab.Round{Round: i + 1}
			round.Result = cell.Result{
				EventsIn: 1, Elapsed: time.Duration(at(stats.UnitNsPerOp)), CPUSecondsPerEvent: at(stats.UnitCPUPerOp) / 1e9,
				BytesPerEvent: at(stats.UnitBytesPerOp), AllocsPerEvent: at(stats.UnitAllocsPerOp),
			}
			for _, unit := range samples.Units() {
				if !stats.Reserved(unit) {
					round.Result.Notes = append(round.Result.Notes, cell.Note{Unit: unit, Value: at(unit)})
				}
			}
			cl.Rounds = append(cl.Rounds, round)
		}
		o.Rounds = max(o.Rounds, len(cl.Rounds))
		c.Cells = append(c.Cells, cl)
	}
	o.Comparisons = []lab.ComparisonResult{c}
	return o, nil
}

// cell returns the samples of the only cell with the labels.
func (c Claim) cell(o *lab.Outcome, labels map[string]string) []float64 {
	var all []figure
	for i := range o.Comparisons {
		all = append(all, slices.DeleteFunc(figuresOf(&o.Comparisons[i], c.Unit), func(f figure) bool {
			for k, v := range labels {
				if f.Label(k) != v {
					return true
				}
			}
			return false
		})...)
	}
	if len(all) != 1 {
		return nil
	}
	return all[0].samples[c.Unit]
}

// judged is the answer to a claim with the figures.
type judged struct {
	Answer
	stats.Comparison
}

func (c Claim) judge(found Found) judged {
	o := found[c.Part]
	if o == nil {
		return judged{Answer: CannotTell}
	}
	return c.compare(c.cell(o, c.Of), c.cell(o, c.Than))
}

func (c Claim) compare(of, than []float64) judged {
	j := judged{Answer: CannotTell}
	switch {
	case len(of) == 0 || c.Fixed == 0 && len(than) == 0:
		return j
	case c.Fixed > 0:
		j.To, j.From = stats.Median(of), c.Fixed
		j.Ratio = j.To / j.From
		if s := stats.Summarize(of); s.Lo != nil {
			j.Lo, j.Hi = *s.Lo/c.Fixed, *s.Hi/c.Fixed
		}
	default:
		j.Comparison = stats.Compare(than, of)
	}
	switch {
	case j.Hi == 0: // Too few rounds for an interval.
	case j.Lo >= c.Least && (c.Most == 0 || j.Hi <= c.Most):
		j.Answer = Agree
	case j.Hi < c.Least || c.Most > 0 && j.Lo > c.Most:
		j.Answer = Disagree
	}
	return j
}

func (c Claim) holds() string {
	if c.Most == 0 {
		return fmt.Sprintf("at least %.3g×", c.Least)
	}
	return strings.TrimPrefix(fmt.Sprintf("at least %.3g× and at most %.3g×", c.Least, c.Most), "at least 0× and ")
}

// bullet is one line of the summary.
func (c Claim) bullet(j judged) string {
	name := func(labels map[string]string) string {
		var parts []string
		for k, v := range labels {
			parts = append(parts, k+" "+cmp.Or(v, "its own"))
		}
		slices.Sort(parts)
		return strings.Join(parts, ", ")
	}
	base := "a fixed figure"
	if c.Fixed == 0 {
		base = name(c.Than)
	}
	text := fmt.Sprintf("**%s**: %s Tested by `%s` of %s against %s", j.Answer, c.Says, c.Unit, name(c.Of), base)
	if j.To == 0 && j.From == 0 {
		return text + ": no figures."
	}
	show := func(v float64) string { return benchunit.Scale(v, benchunit.ClassOf(c.Unit)) }
	text += fmt.Sprintf(": %s and %s, %s", show(j.To), show(j.From), times(j.Ratio))
	if j.Hi > 0 {
		text += fmt.Sprintf(" (%s to %s)", times(j.Lo), times(j.Hi))
	} else {
		text += ", too few rounds for an interval"
	}
	return text + "; it holds with " + c.holds() + "."
}

// times formats a ratio.
func times(v float64) string {
	switch {
	case v < 0.001:
		return "<0.001×"
	case v >= 1000:
		return fmt.Sprintf("%.0f×", v)
	}
	return fmt.Sprintf("%.3g×", v)
}

// Verdict counts the answers to a thread's claims: "agree", or "agree 1, cannot tell 1". A thread of
// which nothing can be tested is "not reproduced".
func (q Question) Verdict(found Found) string {
	count := map[Answer]int{}
	for _, c := range q.Claims {
		count[c.judge(found).Answer]++
	}
	var parts []string
	for _, a := range []Answer{Agree, Disagree, CannotTell} {
		switch count[a] {
		case 0:
		case len(q.Claims):
			return string(a)
		default:
			parts = append(parts, fmt.Sprintf("%s %d", a, count[a]))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "not reproduced")
}

func (q Question) scale() string {
	if q.Full {
		return "Full scale: " + q.AtFull
	}
	return "Reduced scale: " + q.Reduced
}

// Analysis writes the page of a thread, ready to be posted there: summary, set-up, significance,
// untested. at is the way from the page to the folder of the runs, empty for a page in it.
func (q Question) Analysis(w io.Writer, found Found, at string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s: %s\n\nThe [thread](%s) reports: %s\n\n", q.Ref, q.Asks, q.URL, strings.TrimSpace(q.About))
	command := "watchlab reproduce " + q.Name
	if q.Full {
		command += " --full"
	}
	source := ""
	if at != "" {
		source = fmt.Sprintf(" in [this run](%s)", path.Join(at, PageFile))
	}
	fmt.Fprintf(&b, "%s\n\n## Summary\n\nDo our figures agree? **%s**, by `%s`%s:\n\n", q.scale(), q.Verdict(found), command, source)
	var lines []string
	for _, c := range q.Claims {
		lines = append(lines, c.bullet(c.judge(found)))
	}
	bullets(&b, lines)
	b.WriteString("## Setup\n\n| | |\n|---|---|\n")
	for _, p := range q.Parts {
		if o := found[p.Name]; o != nil {
			e := o.Env
			machine := fmt.Sprintf("%s, %s/%s", e.CPU, e.GOOS, e.GOARCH)
			if e.GOMAXPROCS > 0 { // A benchmark's lines do not tell it apart.
				machine += fmt.Sprintf(", %d processors, %s", e.GOMAXPROCS, e.GoVersion)
			}
			fmt.Fprintf(&b, "| machine, %s | %s |\n", p.Name, lab.Escape(machine))
		}
		how := fmt.Sprintf("watchlab run %s/%s", p.Name, lab.ExperimentFile)
		if p.Bench != nil {
			how = fmt.Sprintf("cd %s && go %s", p.Bench.Dir, strings.Join(p.Bench.Command(), " "))
		}
		fmt.Fprintf(&b, "| %s | %s. `%s` |\n", p.Name, lab.Escape(p.Shows), strings.ReplaceAll(how, "|", `\|`))
	}
	fmt.Fprintf(&b, "\n## Significance\n\nMedians; after ± the spread of the rounds. Cells are played in turn. Ratios above have an interval of 95 percent confidence, and an answer needs all of it. Played by `%s`.\n\n", command)
	for _, p := range q.Parts {
		fmt.Fprintf(&b, "### %s\n\n", p.Name)
		o := found[p.Name]
		if o == nil {
			b.WriteString("Not played.\n\n")
			continue
		}
		for i := range o.Comparisons {
			p.table(&b, &o.Comparisons[i])
		}
		file := lab.ReportFile
		if p.Bench != nil {
			file = lab.BenchFile
		}
		fmt.Fprintf(&b, "Medians of %s by `%s`%s: [%s](%s).\n\n", o.RoundsText(), command, source, file, path.Join(at, p.Name, file))
	}
	b.WriteString("## Untested\n\n")
	bullets(&b, q.Untested)
	_, err := w.Write(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return err
}

// bullets writes lines that are Markdown.
func bullets(b *bytes.Buffer, lines []string) {
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", strings.TrimSpace(l))
	}
	b.WriteString("\n")
}

// threadIndex writes the page of all threads.
func threadIndex(w io.Writer, threads []Question, found map[string]Found) error {
	var b bytes.Buffer
	b.WriteString("# Track record\n\nWhat other projects' threads claim, and whether our figures agree. Each answer is computed.\n\n| thread | about | agree? |\n|---|---|---|\n")
	for _, q := range threads {
		fmt.Fprintf(&b, "| [%s](%s/%s) | %s | %s |\n", q.Ref, q.Name, PageFile, lab.Escape(q.Asks), q.Verdict(found[q.Name]))
	}
	_, err := w.Write(b.Bytes())
	return err
}
