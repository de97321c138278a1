package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The rule of this file: a figure in README.md or a guide is a measurement, unless its form says
// otherwise. A measurement has a link to a file under results/ in its block or section, it is in that
// file, to the digits shown, and the command that measures it stands in the section, in the
// file or in the README.md beside it.
//
// A figure is a number with a unit: a ratio (× or "times as"), a share, a time, a rate, a size. By its
// form it is none where it stands
//   - in a code span or a block other than text: input of the reader;
//   - in double quotes: a quotation of somebody's claim;
//   - after one of the words of bounds: a limit or a setting;
//   - in an item or a row that starts with a code span, which explains an option, and is no ratio;
//   - in a row that ends with "computed", or in a generated part, which another test holds.
//
// A ratio after two figures, as in "2 → 5 (2.5×)", must be theirs.

// bounds precede a limit or a setting.
const bounds = `(?i)(?:at most|at least|every|default:?|more than|less than|within|above|below|exceeds|beyond|≤|≥|<|>) ?$`

// settings are figures that no rule tells from measurements, by page, each with its reason.
var settings = map[string]map[string]string{
	"docs/fidelity.md":    {"20/s": "the rate of the writes"},
	"docs/glossary.md":    {"80 %": "the power of which the minimum detectable change is told"},
	"docs/reliability.md": {"90 s": "the time after which an idle connection ends"},
	"docs/statistics.md": {
		"95 %": "confidence of intervals", "99.99 %": "confidence of held", "96 %": "0.9999 to the power of 400",
		"80 %": "the power of which the minimum detectable change is told", "10 %": "the allowance",
	},
}

// amount is a number with a unit: the least and the largest value that it stands for.
type amount struct {
	class       string // what the unit measures
	least, most float64
	text        string
	at          int // where it stands in its text
}

func (a amount) value() float64 { return (a.least + a.most) / 2 }

// units are the units of figures: what they measure, and in which multiple.
var units = map[string]struct {
	class string
	scale float64
}{
	"×": {"ratio", 1}, "times as": {"ratio", 1}, "times the": {"ratio", 1}, "%": {"share", 1},
	"ns": {"time", 1}, "µs": {"time", 1e3}, "us": {"time", 1e3}, "ms": {"time", 1e6}, "s": {"time", 1e9}, "min": {"time", 60e9},
	"events/s": {"rate", 1}, "/s": {"rate", 1},
	"B": {"size", 1}, "kB": {"size", 1e3}, "MB": {"size", 1e6}, "GB": {"size", 1e9},
	"KiB": {"size", 1 << 10}, "MiB": {"size", 1 << 20}, "GiB": {"size", 1 << 30}, "TiB": {"size", 1 << 40},
	"Ki": {"size", 1 << 10}, "Mi": {"size", 1 << 20}, "Gi": {"size", 1 << 30},
}

// prefixes are multiples that stand at the number.
var prefixes = map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 1 << 10, "Mi": 1 << 20}

var (
	number = `(\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?)`
	// figure matches a number with a unit.
	figure = regexp.MustCompile(number + `(Ki|Mi|k|M|G)? ?(×|times as|times the|%|ns|µs|us|ms|min|s|events/s|(?:[a-z]+ )?[a-z]*/s|kB|MB|GB|KiB|MiB|GiB|TiB|B|Ki|Mi|Gi)(?:/event|/op|/ev)?(?:[^\pL\d/]|$)`)
	// bare matches the number of a cell whose unit is in the header of its column.
	bare = regexp.MustCompile(`(?:^|[ (\[])` + number + `(Ki|Mi|k|M|G)?(?:[ )\],]|$)`)
	// benched matches the pairs of a benchmark's line.
	benched = regexp.MustCompile(number + `\s+([^\s\d]\S*)`)
	// minutes matches Go's durations beyond a minute.
	minutes = regexp.MustCompile(`\d+m[\d.]+s`)
	derived = regexp.MustCompile(number + `(Ki|Mi|k|M|G)?(?: \pL\S*)? → ` + number + `(Ki|Mi|k|M|G)?[^()|]*\(([\d.]+)×\)`)
	span    = regexp.MustCompile("`[^`]*`")
	quote   = regexp.MustCompile(`"[^"]*"`)
	link    = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
	heading = regexp.MustCompile(`^#+ `)
	starts  = regexp.MustCompile("^(?:[*-] |\\| *|\\d+\\. )`")
	bound   = regexp.MustCompile(bounds)
	command = regexp.MustCompile("(?m)(?:^ *|`)(?:[A-Z]+=\\S+ )*(?:cd \\S+ && )?(?:make |go test |go run |go tool |(?:bin/)?watchlab )")
)

// read returns the interval that a number as shown stands for.
func read(digits, prefix, unit string) (class string, least, most float64, ok bool) {
	u, ok := units[unit]
	if !ok && strings.HasSuffix(unit, "/s") {
		u, ok = units["/s"], true
	}
	plain := strings.ReplaceAll(digits, ",", "")
	v, err := strconv.ParseFloat(plain, 64)
	if !ok || err != nil {
		return "", 0, 0, false
	}
	step := 1.0
	if _, decimals, has := strings.Cut(plain, "."); has {
		step = math.Pow10(-len(decimals))
	} else {
		// 26,900 may be a rounded number: two digits always count.
		for zeros := len(plain) - len(strings.TrimRight(plain, "0")); zeros > 0 && len(plain)-zeros >= 2; zeros-- {
			step *= 10
		}
	}
	f := prefixes[prefix] * u.scale
	return u.class, (v - step/2) * f, (v + step/2) * f, true
}

// amounts returns the figures of a text, with the units of the headers where it is a row.
func amounts(text string, header []string) (all []amount) {
	add := func(at int, shown, digits, prefix, unit string) {
		if class, least, most, ok := read(digits, prefix, unit); ok {
			all = append(all, amount{class, least, most, strings.TrimSpace(shown), at})
		}
	}
	for rest, at := text, 0; ; {
		m := figure.FindStringSubmatchIndex(rest)
		if m == nil {
			break
		}
		prefix := ""
		if m[4] >= 0 {
			prefix = rest[m[4]:m[5]]
		}
		add(at+m[0], rest[m[0]:m[7]], rest[m[2]:m[3]], prefix, rest[m[6]:m[7]])
		rest, at = rest[m[7]:], at+m[7]
	}
	if header == nil || !strings.HasPrefix(text, "|") {
		return all
	}
	at := 0
	for i, cell := range strings.Split(text, "|") {
		if i < len(header) {
			if unit := columnUnit(header[i]); unit != "" {
				cell = figure.ReplaceAllString(cell, "")
				for _, m := range bare.FindAllStringSubmatch(cell, -1) {
					add(at, m[1]+m[2]+" "+unit, m[1], m[2], unit)
				}
			}
		}
		at += len(cell) + 1 // It need not be exact: no bound precedes a column's number.
	}
	return all
}

// columnUnit returns the unit that a header names, "" for none.
func columnUnit(header string) string {
	if h := strings.TrimSpace(header); h == "at rate" || h == "holds" || h == "fails at" {
		return "events/s"
	}
	for _, f := range slices.Backward(strings.Fields(header)) {
		f = strings.TrimSuffix(strings.Trim(f, ",;"), "/ev")
		if _, ok := units[f]; ok && f != "s" || ok && strings.Contains(header, ", s") {
			return f
		}
	}
	return ""
}

// headers returns the header of the table in which each line of a text stands.
func headers(lines []string) [][]string {
	all := make([][]string, len(lines))
	var header []string
	for i, line := range lines {
		switch {
		case !strings.HasPrefix(line, "|"):
			header = nil
		case header == nil:
			header = strings.Split(line, "|")
		default:
			all[i] = header
		}
	}
	return all
}

// figuresOf returns the figures of a file under results.
func figuresOf(t *testing.T, path string) []amount {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	header := headers(lines)
	var all []amount
	for i, line := range lines {
		if strings.HasPrefix(line, "Benchmark") {
			name, rest, _ := strings.Cut(line, " ")
			all = append(all, amounts(strings.NewReplacer("/", " ", "=", " ", "-", " ").Replace(name), nil)...)
			for _, m := range benched.FindAllStringSubmatch(rest, -1) {
				unit := m[2]
				if unit != "events/s" {
					unit, _, _ = strings.Cut(unit[strings.LastIndex(unit, "-")+1:], "/")
				}
				if class, least, most, ok := read(m[1], "", unit); ok {
					all = append(all, amount{class: class, least: least, most: most})
				}
			}
			continue
		}
		for _, m := range minutes.FindAllString(line, -1) {
			if d, err := time.ParseDuration(m); err == nil {
				all = append(all, amount{class: "time", least: float64(d), most: float64(d)})
			}
		}
		all = append(all, amounts(line, header[i])...)
	}
	slices.SortFunc(all, func(a, b amount) int { return cmp.Compare(a.value(), b.value()) })
	return all
}

// block is a paragraph, an item, a row or a block of text of a page.
type block struct {
	line    int
	section int // the number of its heading
	text    string
	header  []string
}

// blocks returns the blocks of a page, and each section's whole text.
func blocks(page string) (all []block, sections []string) {
	lines := strings.Split(page, "\n")
	header := headers(lines)
	sections = []string{""}
	fenced, shown, join, generated := false, false, false, false
	for i, line := range lines {
		if strings.HasPrefix(line, "<!-- generated by Test") || strings.HasPrefix(line, "<!-- end of the generated") {
			generated, join = !generated, false
			continue
		}
		if f, ok := strings.CutPrefix(line, "```"); ok {
			fenced, shown, join = !fenced, f == "text", false
		} else if !fenced && heading.MatchString(line) {
			sections, join = append(sections, ""), false
		}
		at := len(sections) - 1
		sections[at] += line + "\n"
		item := strings.HasPrefix(line, "|") || regexp.MustCompile(`^ *([*-]|\d+\.) `).MatchString(line)
		switch {
		case strings.HasPrefix(line, "```") || fenced && !shown || heading.MatchString(line), generated:
		case strings.TrimSpace(line) == "" && !fenced:
			join = false
		case join && !item:
			all[len(all)-1].text += " " + strings.TrimSpace(line)
		default:
			all = append(all, block{i + 1, at, line, header[i]})
			join = true
		}
	}
	return all, sections
}

// evidence returns the files under results to which a text of a page links.
func evidence(dir, text string) (files []string) {
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[2], "#")
		if p := filepath.Join(dir, target); strings.HasPrefix(p, "results/") && filepath.Ext(p) != "" {
			files = append(files, p)
		}
	}
	return files
}

// claims returns the measurements of a block.
func claims(b block) (all []amount) {
	blank := func(s string) string { return strings.Repeat("_", len(s)) }
	text := link.ReplaceAllString(b.text, "$1")
	if strings.HasSuffix(text, "| computed |") {
		return nil
	}
	explains := starts.MatchString(text)
	text = quote.ReplaceAllStringFunc(span.ReplaceAllStringFunc(text, blank), blank)
	for _, a := range amounts(text, b.header) {
		if bound.MatchString(text[:a.at]) || explains && a.class != "ratio" {
			continue
		}
		all = append(all, a)
	}
	return all
}

// quotients returns the ratios of a text that follow from the two figures before them, and the ones
// that do not.
func quotients(text string) (right, wrong []string) {
	for _, m := range derived.FindAllStringSubmatch(text, -1) {
		_, a, b, ok1 := read(m[1], m[2], "×")
		_, c, d, ok2 := read(m[3], m[4], "×")
		_, least, most, ok3 := read(m[5], "", "×")
		if ok1 && ok2 && ok3 && c/b <= most && least <= d/a {
			right = append(right, m[5]+"×")
		} else {
			wrong = append(wrong, m[0])
		}
	}
	return right, wrong
}

// in says whether a file holds a figure, to the digits that either shows.
func in(file []amount, a amount) bool {
	return slices.ContainsFunc(file, func(have amount) bool {
		return have.class == a.class && have.least < a.most && a.least < have.most
	})
}

// reproduced are the pages of watchlab reproduce. Their answers link a run; figures without a file are
// those that the thread tells, and settings.
var reproduced = regexp.MustCompile(`^docs/found/\d+\.md$`)

// TestFigures checks the measurements of README.md and of the guides.
func TestFigures(t *testing.T) {
	pages, err1 := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	threads, err2 := filepath.Glob(filepath.Join(root, "docs", "found", "*.md"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	files, used := map[string][]amount{}, map[string]bool{}
	found := 0
	for _, page := range slices.Concat(pages, threads, []string{filepath.Join(root, "README.md")}) {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, page)
		if err != nil {
			t.Fatal(err)
		}
		all, sections := blocks(string(data))
		for _, b := range all {
			right, wrong := quotients(b.text)
			for _, w := range wrong {
				t.Errorf("%s:%d: the ratio of %s is another", name, b.line, w)
			}
			for _, a := range claims(b) {
				if slices.Contains(right, a.text) {
					continue
				}
				if _, ok := settings[name][a.text]; ok {
					used[name+a.text] = true
					continue
				}
				from := evidence(filepath.Dir(name), b.text)
				if from == nil {
					from = evidence(filepath.Dir(name), sections[b.section])
				}
				if from == nil && reproduced.MatchString(name) {
					continue
				}
				if from == nil {
					t.Errorf("%s:%d: %s has no file under results in its block or section", name, b.line, a.text)
					continue
				}
				found++
				commanded := command.MatchString(sections[b.section])
				there := slices.ContainsFunc(from, func(f string) bool {
					if files[f] == nil {
						files[f] = figuresOf(t, filepath.Join(root, f))
					}
					for _, beside := range []string{f, filepath.Join(filepath.Dir(f), "README.md")} {
						text, err := os.ReadFile(filepath.Join(root, beside))
						commanded = commanded || err == nil && command.Match(text)
					}
					return in(files[f], a)
				})
				if !there {
					t.Errorf("%s:%d: %s is not in %s", name, b.line, a.text, strings.Join(from, ", "))
				}
				if !commanded {
					t.Errorf("%s:%d: %s has no command in its section, nor in README.md beside %s", name, b.line, a.text, from[0])
				}
			}
		}
	}
	for page, all := range settings {
		for figure := range all {
			if !used[page+figure] {
				t.Errorf("%s has no figure %s: delete it from the settings", page, figure)
			}
		}
	}
	t.Logf("%d figures are in %d files", found, len(files))
}

var update = flag.Bool("update", false, "show the newest results/*-quick in README.md; link all pages to it and to the newest *-audit")

// adopt does what -update says.
func adopt(t *testing.T) {
	newest := func(pattern string) string {
		all, err := filepath.Glob(filepath.Join(root, "results", pattern))
		if err != nil || len(all) == 0 {
			t.Fatalf("no results/%s: %v", pattern, err)
		}
		return slices.MaxFunc(all, func(a, b string) int {
			x, err1 := os.Stat(a)
			y, err2 := os.Stat(b)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			return x.ModTime().Compare(y.ModTime())
		})
	}
	quick, audit := newest("*-quick/brief.txt"), newest("*-audit/README.md")
	brief, err1 := os.ReadFile(quick)
	pages, err2 := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	folder := regexp.MustCompile(`\d{4}-\d\d-\d\d-[0-9a-f]+(?:-dirty)?-(?:quick|audit)`)
	block := regexp.MustCompile("(?s)```text\n.*?```\n")
	for _, page := range append(pages, filepath.Join(root, "results", "README.md"), filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if page == filepath.Join(root, "README.md") {
			text = block.ReplaceAllLiteral(text, []byte("```text\n"+string(brief)+"```\n"))
		}
		text = folder.ReplaceAllFunc(text, func(name []byte) []byte {
			if bytes.HasSuffix(name, []byte("-quick")) {
				return []byte(filepath.Base(filepath.Dir(quick)))
			}
			return []byte(filepath.Base(filepath.Dir(audit)))
		})
		if err := os.WriteFile(page, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadmeOutput: the output that README.md shows is brief.txt of the run that it names, as watchlab
// report -o brief prints it, and its lines are in the report of that run.
func TestReadmeOutput(t *testing.T) {
	if *update {
		adopt(t)
	}
	read := func(p string) string {
		data, err := os.ReadFile(filepath.Join(root, p))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	_, shown, _ := strings.Cut(read("README.md"), "```text\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	m := regexp.MustCompile(`(?m)^Report: (results/\S+)/report\.html$`).FindStringSubmatch(shown)
	if m == nil {
		t.Fatal("the output in README.md names no report")
	}
	if brief := read(m[1] + "/brief.txt"); brief != shown {
		t.Errorf("README.md shows another output than %s/brief.txt", m[1])
	}
	words := func(s string) []string {
		return strings.Fields(strings.NewReplacer("|", " ", `\`, "", "`", "").Replace(s))
	}
	report := strings.Join(words(read(m[1]+"/report.md")), " ")
	rows := strings.Split(read(m[1]+"/report.md"), "\n")
	results, _, _ := strings.Cut(shown, "\nReport: ")
	results, _, _ = strings.Cut(results, "\nNo answer: ")
	for _, part := range strings.Split(results, "\n\n") {
		lines := strings.Split(strings.TrimSpace(part), "\n")
		table := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "  CPU/event ") })
		if sentence := strings.Join(words(strings.Join(lines[:table], " ")), " "); !strings.Contains(report, sentence) {
			t.Errorf("%s/report.md does not say %q", m[1], sentence)
		}
		for _, row := range lines[table+1:] {
			fields := words(row)
			if !slices.ContainsFunc(rows, func(r string) bool {
				in := words(r)
				for _, f := range fields {
					i := slices.Index(in, f)
					if i < 0 {
						return false
					}
					in = in[i+1:]
				}
				return true
			}) {
				t.Errorf("%s/report.md has no row %q", m[1], row)
			}
		}
	}
}

// TestFigureRules: what counts as a measurement, and what a file holds.
func TestFigureRules(t *testing.T) {
	for text, want := range map[string]string{
		"`ring` takes 41 ns an event":           "41 ns",
		"twice `--pace 20000` and 5 pods":       "",
		"2.92× the events, 26.9k events/s":      "2.92×, 26.9k events/s",
		"ends after at most 10 s, or 20 s":      "20 s",
		"* `--memory` takes 10 ms":              "",
		"* `ring` is 6 times as fast":           "6 times as",
		"| case | 10 MB | computed |":           "",
		`"The queue alone 35×" was an error`:    "",
		"p99 of [1.5 ms](results/x/bench.txt).": "1.5 ms",
	} {
		var got []string
		for _, a := range claims(block{text: text}) {
			got = append(got, a.text)
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%q claims %q, want %q", text, got, want)
		}
	}
	file := filepath.Join(t.TempDir(), "bench.txt")
	const lines = "BenchmarkX/impl=ring 1 1234567 events/s 6.119 p50-ms 24500 cpu-ns/op\n| rate | p99, ms |\n| 5 | 0.382 |\n1m25.2s\n"
	if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	held := figuresOf(t, file)
	for text, want := range map[string]bool{
		"1.23M events/s": true, "1.24M events/s": false, "6.1 ms": true, "24.5 µs": true, "24.6 µs": false, "85 s": true,
		"382 µs": true, "0.382 s": false, "6.1×": false,
	} {
		if a := claims(block{text: text}); len(a) != 1 || in(held, a[0]) != want {
			t.Errorf("%s (%+v) is in the file: %t, want %t", text, a, !want, want)
		}
	}
	right, wrong := quotients("2.720M → 206.4k events/s (0.076×), 2.00 → 5.00 ms (2.4×)")
	if !slices.Equal(right, []string{"0.076×"}) || len(wrong) != 1 {
		t.Errorf("ratios %q follow, %q do not", right, wrong)
	}
}
