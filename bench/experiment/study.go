package experiment

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchunit"
	"sigs.k8s.io/yaml"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
	"watchlab/loadgen/pace"
)

//go:embed questions/*.yaml threads/*.yaml
var questionFiles embed.FS

// Question is a research question, or what a thread claims, with the experiments that answer it.
type Question struct {
	Name  string         `json:"name"`  // question's name on the command line and its folder
	Asks  string         `json:"asks"`  // question in one sentence
	About string         `json:"about"` // introduction of the question's page
	Parts []QuestionPart `json:"parts"` // runs that answer the question

	*Thread `json:",inline"` // nil for a question that is ours
}

// QuestionPart is one run of a [Question].
type QuestionPart struct {
	Name    string   `json:"name"`    // part's results folder
	Shows   string   `json:"shows"`   // sentence, without a full stop, that describes the experiment
	Weight  float64  `json:"weight"`  // of the part in the study's time budget
	Columns []string `json:"columns"` // units of the page's table; the answer is about the first
	// By is a label; the answer has a line for each of its values. Empty for one line.
	By         string `json:"by,omitempty"`
	Experiment Spec   `json:"experiment"`      // to run
	Full       *Spec  `json:"full,omitempty"`  // fields of the full scale; see [Question.AtFullScale]
	Bench      *Bench `json:"bench,omitempty"` // in place of Experiment
}

// Found has the outcomes of a question's parts by name, without parts that were not run.
type Found map[string]*lab.Outcome

var ErrUnknownQuestion = errors.New("unknown question") // wrapped by errors for an unknown name

const PageFile = "README.md" // name of a page in its folder

// Questions returns the named research questions; all without names.
func Questions(names ...string) ([]Question, error) {
	return questionsIn("questions", ErrUnknownQuestion, names)
}

func questionsIn(folder string, unknown error, names []string) ([]Question, error) {
	files, err := questionFiles.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var all []Question
	var have []string
	for _, f := range files {
		data, err := questionFiles.ReadFile(folder + "/" + f.Name())
		if err != nil {
			return nil, err
		}
		var q Question
		if err := yaml.UnmarshalStrict(data, &q); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		all, have = append(all, q), append(have, q.Name)
	}
	for _, n := range names {
		if !slices.Contains(have, n) {
			return nil, fmt.Errorf("%w %q (have %s)", unknown, n, strings.Join(have, ", "))
		}
	}
	return slices.DeleteFunc(all, func(q Question) bool { return len(names) > 0 && !slices.Contains(names, q.Name) }), nil
}

// Index writes the page of a study: each question with its answers.
func Index(w io.Writer, questions []Question, found map[string]Found) error {
	if len(questions) > 0 && questions[0].Thread != nil {
		return threadIndex(w, questions, found)
	}
	var b bytes.Buffer
	b.WriteString("# The study\n\nThe research questions, each with what was measured. Every answer is read off the figures by the program.\n\n")
	for _, q := range questions {
		fmt.Fprintf(&b, "## [%s](%s/%s)\n\n", q.Asks, q.Name, PageFile)
		list(&b, q.answers(found[q.Name]))
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Page writes a question's page, or its [Question.Analysis]: the answers, and the figures of each part. The part's
// report has the evidence: rounds, A/A pairs, machine.
func (q Question) Page(w io.Writer, found Found) error {
	if q.Thread != nil {
		return q.Analysis(w, found, "")
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n%s\n\n## Answer\n\n", q.Asks, q.About)
	list(&b, q.answers(found))
	for _, p := range q.Parts {
		fmt.Fprintf(&b, "## %s\n\n%s.\n\n    watchlab run %s/%s\n\n", p.Name, p.Shows, p.Name, lab.ExperimentFile)
		o := found[p.Name]
		if o == nil {
			continue
		}
		for i := range o.Comparisons {
			p.table(&b, &o.Comparisons[i])
		}
		if o.Interrupted {
			b.WriteString("It was interrupted. ")
		}
		fmt.Fprintf(&b, "Medians of %s. Everything that was measured: [report](%s/report.html), [tables](%s/%s), [rounds](%s/%s).\n\n",
			o.RoundsText(), p.Name, p.Name, lab.ReportFile, p.Name, lab.BenchFile)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (q Question) answers(found Found) []string {
	var out []string
	for _, p := range q.Parts {
		o := found[p.Name]
		if o == nil {
			out = append(out, p.Name+": not played.")
			continue
		}
		lines := p.knees(o)
		for i := range o.Comparisons {
			lines = append(lines, p.answer(&o.Comparisons[i])...)
		}
		if len(lines) == 0 {
			lines = []string{p.Name + ": no figures."}
		}
		out = append(out, lines...)
	}
	return out
}

// list writes lines as a Markdown list followed by an empty line. For no lines it writes nothing.
func list(b *bytes.Buffer, lines []string) {
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", lab.Escape(l))
	}
	if len(lines) > 0 {
		b.WriteString("\n")
	}
}

type figure struct {
	*lab.CellResult
	samples stats.Samples
}

// figuresOf returns the cells with figures in the unit, without A/A pairs.
func figuresOf(c *lab.ComparisonResult, unit string) []figure {
	var all []figure
	for i := range c.Cells {
		f := figure{&c.Cells[i], c.Cells[i].Samples(c.Latency)}
		if f.Repeats == "" && (unit == "" || len(f.samples[unit]) > 0) {
			all = append(all, f)
		}
	}
	return all
}

// answer names the best cell for each value of the By label, with its ratio to the baseline.
func (p QuestionPart) answer(c *lab.ComparisonResult) []string {
	if p.Experiment.isKnee() {
		return nil // [QuestionPart.knees] has the answers.
	}
	unit := p.Columns[0]
	cells := figuresOf(c, unit)
	var lines []string
	for _, value := range valuesOf(cells, p.By) {
		group := slices.DeleteFunc(slices.Clone(cells), func(f figure) bool { return f.Label(p.By) != value })
		best := slices.MaxFunc(group, func(a, b figure) int {
			order := cmp.Compare(stats.Median(a.samples[unit]), stats.Median(b.samples[unit]))
			if stats.Better(unit) == stats.Higher {
				return order
			}
			return -order
		})
		at, knobs := p.Name, best.Impl()
		if value != "" {
			at += ", " + p.By + " " + value
		}
		for _, key := range differing(cells) {
			if v := best.Label(key); key != p.By && v != "" {
				knobs += ", " + key + " " + v
			}
		}
		lines = append(lines, fmt.Sprintf("%s: best %s: %s, %s%s.", at, unit, knobs, number(best.samples, unit), best.beside(group, unit)))
	}
	return lines
}

// valuesOf returns the values of a label; "" stands for cells without it.
func valuesOf(cells []figure, key string) []string {
	var values []string
	for _, f := range cells {
		if v := f.Label(key); !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// differing returns the keys of the labels other than the variant in which cells differ.
func differing(cells []figure) []string {
	var keys []string
	for _, f := range cells {
		for _, l := range f.Labels {
			if l.Key != "impl" && !slices.Contains(keys, l.Key) && len(valuesOf(cells, l.Key)) > 1 {
				keys = append(keys, l.Key)
			}
		}
	}
	return keys
}

// beside returns the ratio to the baseline with the same labels, as far as it has them.
func (f figure) beside(group []figure, unit string) string {
	at := slices.IndexFunc(group, func(base figure) bool {
		return base.Baseline && base.BenchName() != f.BenchName() &&
			!slices.ContainsFunc(base.Labels, func(l lab.Label) bool { return l.Key != "impl" && f.Label(l.Key) != l.Value })
	})
	if at < 0 {
		return ""
	}
	base := group[at]
	c := stats.Compare(base.samples[unit], f.samples[unit])
	switch {
	case base.Class != f.Class:
		return "; no ratio to " + base.Impl() + ", whose guarantees differ"
	case math.IsNaN(c.Ratio):
		return ""
	case !c.Testable:
		return fmt.Sprintf(", %.3g times %s (too few rounds for a test)", c.Ratio, base.Impl())
	}
	return fmt.Sprintf(", %.3g times %s (%s)", c.Ratio, base.Impl(), stats.PText(c.P))
}

func (p QuestionPart) knees(o *lab.Outcome) []string {
	var lines []string
	for _, k := range o.Knees {
		rate := func(v float64) string {
			if v == 0 {
				return "no rate"
			}
			return pace.Rate(v).String() + " events/s"
		}
		lo, hi := k.Interval()
		lines = append(lines, fmt.Sprintf("%s: %s: %s held, %s failed; all rounds held up to %s, none from %s on (limit: %s).",
			p.Name, k.Impl, rate(k.Held), rate(k.Failed), rate(lo), rate(hi), k.Limit))
	}
	return lines
}

// number formats the median in the unit, with an SI or IEC prefix.
func number(samples stats.Samples, unit string) string {
	v := stats.Median(samples[unit])
	if v == math.Trunc(v) && math.Abs(v) < 1000 {
		return fmt.Sprint(v)
	}
	return benchunit.Scale(v, benchunit.ClassOf(unit))
}

// table shows the labels in which the cells differ, and each column with figures.
func (p QuestionPart) table(b *bytes.Buffer, c *lab.ComparisonResult) {
	cells := figuresOf(c, "")
	labels := differing(cells)
	columns := slices.DeleteFunc(slices.Clone(p.Columns), func(unit string) bool { return len(figuresOf(c, unit)) == 0 })
	row := func(entries ...string) {
		for i, e := range entries {
			entries[i] = lab.Escape(cmp.Or(e, "-"))
		}
		b.WriteString("| " + strings.Join(entries, " | ") + " |\n")
	}
	fmt.Fprintf(b, "%s:\n\n", lab.Escape(c.Title))
	row(slices.Concat([]string{"variant"}, labels, columns, []string{"verdict"})...)
	b.WriteString("|" + strings.Repeat("---|", 1+len(labels)) + strings.Repeat("---:|", len(columns)) + "---|\n")
	for _, f := range cells {
		entries := []string{f.Impl()}
		for _, key := range labels {
			entries = append(entries, f.Label(key))
		}
		for _, unit := range columns {
			text := ""
			if values := f.samples[unit]; len(values) > 0 {
				text = number(f.samples, unit)
				if s := stats.Summarize(values); s.Spread != nil {
					text += fmt.Sprintf(" ± %.0f %%", *s.Spread*100)
				}
			}
			entries = append(entries, text)
		}
		row(append(entries, f.Verdict.Short())...)
	}
	b.WriteString("\n")
}
