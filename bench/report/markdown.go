package report

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// Markdown writes report.md: tables, losses, method, environment, and the command to
// reproduce the run. The error is that of the writer.
func Markdown(w io.Writer, o *lab.Outcome) error {
	var b bytes.Buffer
	title := o.Name
	if title == "" {
		title = "run"
	}
	fmt.Fprintf(&b, "# %s%s, %s\n\n", Escape(title), partial(o), o.Started.UTC().Format("2006-01-02 15:04 MST"))
	var views []tableView
	for i := range o.Comparisons {
		v := view(&o.Comparisons[i], o.RoundsOf(o.Comparisons[i]))
		views = append(views, v)
		fmt.Fprintf(&b, "## %s: %s%s\n\n", Escape(v.family), Escape(v.title), partial(o))
		if v.shared != "" {
			fmt.Fprintf(&b, "%s\n\n", Escape(v.shared))
		}
		b.WriteString(v.grid.markdown())
		b.WriteString("\n")
		List(&b, slices.Concat(v.legend, v.noise))
		for _, t := range v.more() {
			fmt.Fprintf(&b, "### %s\n\n%s\n", Escape(t.title), t.grid.markdown())
		}
	}
	for _, t := range sweeps(o) {
		fmt.Fprintf(&b, "## %s\n\n", Escape(t.title))
		if t.shared != "" {
			fmt.Fprintf(&b, "%s\n\n", Escape(t.shared))
		}
		fmt.Fprintf(&b, "%s\n", t.grid.markdown())
		List(&b, t.legend)
	}

	if t := shares(o); len(t.grid.rows) > 0 {
		fmt.Fprintf(&b, "## %s\n\n%s\n", t.title, t.grid.markdown())
		List(&b, t.legend)
	}

	b.WriteString("## Where it loses\n\n")
	if lost := losses(views); len(lost) > 0 {
		List(&b, lost)
	} else {
		b.WriteString("No row with figures is behind its baseline in events/s, p99, allocations or bytes.\n\n")
	}

	b.WriteString("## Method\n\n")
	List(&b, method(o))
	b.WriteString("## Environment\n\n")
	List(&b, environment(o))
	b.WriteString("## How to reproduce\n\n")
	if o.Env.Commit != "" {
		fmt.Fprintf(&b, "At commit %s%s:\n\n", o.Env.Commit, dirty(o.Env.Dirty))
	}
	fmt.Fprintf(&b, "    %s\n\n", strings.Join(append([]string{"watchlab"}, quoteAll(o.Env.Args)...), " "))
	fmt.Fprintf(&b, "The rounds stand in `%s`; `go tool benchstat -row .fullname -col /impl %s` shows the same medians.\n", lab.BenchFile, lab.BenchFile)
	_, err := w.Write(b.Bytes())
	return err
}

// List writes lines as a Markdown list followed by an empty line. For no lines it
// writes nothing.
func List(b *bytes.Buffer, lines []string) {
	for _, l := range lines {
		fmt.Fprintf(b, "- %s\n", Escape(l))
	}
	if len(lines) > 0 {
		b.WriteString("\n")
	}
}

// losses describes each row that is worse than its baseline, and by how much. A
// difference that is not significant is not a loss. An untestable difference is listed
// and marked. Rows without figures are also listed.
func losses(views []tableView) []string {
	var out []string
	for _, v := range views {
		for _, r := range v.rows {
			name := r.throughput.BenchName()
			if len(r.fast) == 0 || len(r.slow) == 0 {
				out = append(out, fmt.Sprintf("%s: %s", name, r.verdict(0)))
			}
			base, ok := baselineOf(r, v.rows)
			if !ok {
				continue
			}
			for _, f := range []struct {
				what, unit string
				base, own  stats.Samples
				// more: a larger figure is better. skip: the two were measured
				// differently.
				more, skip bool
			}{
				{"events/s", stats.UnitEventsPerSec, base.fast, r.fast, true, r.paced() || base.paced()},
				{"p99 at rate " + r.rate(), stats.UnitP99, base.slow, r.slow, false, base.rate() != r.rate()},
				{"allocations/event", stats.UnitAllocsPerOp, base.fast, r.fast, false, false},
				{"bytes/event", stats.UnitBytesPerOp, base.fast, r.fast, false, false},
			} {
				c, ok := compare(f.base, f.own, f.unit)
				behind := c.Ratio > 1
				if f.more {
					behind = c.Ratio < 1
				}
				if f.skip || !ok || !behind || c.Testable && !c.Significant {
					continue
				}
				test := stats.PText(c.P)
				if !c.Testable {
					test = "too few rounds to tell"
				}
				line := fmt.Sprintf("%s: %s %s of %s (%s)", name, f.what, times(c.Ratio), base.variant(), test)
				// Rows that share a cell have the same losses.
				if !slices.Contains(out, line) {
					out = append(out, line)
				}
			}
		}
	}
	return out
}

// environment describes the content of env.json.
func environment(o *lab.Outcome) []string {
	e := o.Env
	var out []string
	add := func(what, value string) {
		if value != "" {
			out = append(out, what+": "+value)
		}
	}
	of := ""
	if o.Merged != nil {
		of = " of each share"
	}
	add("CPU"+of, strings.TrimPrefix(fmt.Sprintf("%s, %s, GOMAXPROCS %d", e.CPU, Plural(e.Cores, "core"), e.GOMAXPROCS), ", "))
	add("Go", fmt.Sprintf("%s %s/%s, GOGC %s%s", e.GoVersion, e.GOOS, e.GOARCH, orNone(e.GOGC), bytesLimit(", GOMEMLIMIT ", e.GOMEMLIMIT)))
	add("kernel", e.Kernel)
	add("governor", e.Governor)
	if e.Commit != "" {
		add("commit", e.Commit+dirty(e.Dirty))
	}
	if len(e.LoadAverage) == 3 {
		add("load average at the start", fmt.Sprintf("%.2f %.2f %.2f", e.LoadAverage[0], e.LoadAverage[1], e.LoadAverage[2]))
	}
	if e.StealShare != nil {
		add("CPU time that the host took away", fmt.Sprintf("%.2f %%", *e.StealShare*100))
	}
	limits := bytesLimit("memory ", e.Limits.MemoryBytes)
	if e.Limits.CPUs != nil {
		limits = strings.TrimPrefix(limits+", "+number(*e.Limits.CPUs)+" CPUs", ", ")
	}
	if e.Limits.CgroupVersion > 0 {
		add("container limits", orNone(limits))
	}
	return out
}

func bytesLimit(prefix string, limit *int64) string {
	if limit == nil {
		return ""
	}
	return prefix + bytesCount(float64(*limit)) + "B"
}

func dirty(is bool) string {
	if is {
		return " (with changes)"
	}
	return ""
}

// quoteAll quotes arguments for a shell.
func quoteAll(args []string) []string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:@%+"
	out := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsFunc(a, func(c rune) bool { return !strings.ContainsRune(plain, c) }) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out[i] = a
	}
	return out
}
