// Package report writes a run in every output form: a one-screen summary, text, JSON,
// benchfmt, Markdown and HTML.
//
//  1. The cells of a comparison become rows. Cells whose labels differ only in the
//     rate share a row.
//  2. Each row is compared with the baseline that has the same knobs and guarantees.
//     The confidence interval stands beside each ratio.
//  3. The rows become tables and charts of one document. [Table], [Markdown] and [HTML]
//     lay it out. [Brief] writes one screen. A run keeps no figures of an invalid cell,
//     so its row has dashes.
//
// Figures are medians over the rounds. Latency quantiles are computed over all rounds together.
package report

import (
	"bytes"
	"embed"
	"errors"
	"html/template"
	"io"
	"path/filepath"
	"strings"
	texttemplate "text/template"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/chart"
	"watchlab/bench/lab"
	"watchlab/bench/stats"
)

// HTMLFile is the name of the report's page in a results folder.
const HTMLFile = "report.html"

// textWidth is the width of text output, in columns.
const textWidth = 100

// Table writes the run as plain-text tables with legends. A table wider than 100
// columns continues in further blocks. Table only counts
// noisy cells; the other forms list them. The error is that of the writer.
func Table(w io.Writer, o *lab.Outcome) error {
	return write(w, o, newDocument, textForms.Lookup("table.txt"), false)
}

// Markdown writes report.md: the summary, tables, losses, method, environment, and the command to
// reproduce the run. The error is that of the writer.
func Markdown(w io.Writer, o *lab.Outcome) error {
	return write(w, o, newDocument, textForms.Lookup("report.md"), false)
}

// write writes the document of a run in a form, with charts if wanted.
func write[R any](w io.Writer, run R, prepare func(R, bool) (*document, error), form interface{ Execute(io.Writer, any) error }, charts bool) error {
	d, err := prepare(run, charts)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := form.Execute(&b, d); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

//go:embed text
var textFiles embed.FS

var textForms = texttemplate.Must(texttemplate.New("").Funcs(texttemplate.FuncMap{
	"md": chart.Escape, "plural": lab.Plural, "percent": chart.Percent, "number": chart.Number, "rounds": (*lab.Outcome).RoundsText, "interrupted": interrupted, "commit": commit,
	"bytes":     func(v int64) string { return chart.Bytes(float64(v)) + "B" },
	"fitted":    func(t *chart.Table) string { return t.Fitted("  ", textWidth) },
	"alpha":     func() string { return chart.Number(stats.Alpha) },
	"lateAfter": func() time.Duration { return cell.LateAfter },
	"limit": func(name string) string {
		return chart.Percent(map[string]float64{
			"spread": lab.MaxSpread, "late": lab.MaxLateShare, "steal": lab.MaxSteal, "throttled": lab.MaxThrottled,
		}[name])
	},
	"wrap": func(indent, text string) string {
		return indent + strings.Join(wrap(text, textWidth-len(indent)-2), "\n"+indent+"  ") + "\n"
	},
}).ParseFS(textFiles, "text/*"))

//go:embed html
var htmlFiles embed.FS

var htmlPage = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"charts": func() template.CSS { return template.CSS(chart.CSS()) },
	"plain":  withoutMarkdown,
	"plural": lab.Plural,
	"class":  classOf,
	"blocks": func(t *chart.Table) []*chart.Table { return t.Blocks(textWidth) },
}).ParseFS(htmlFiles, "html/*"))

// HTML writes the run as one self-contained page: it needs no network and no other
// file. The answer comes first. Sweeps follow, then each comparison with charts and
// tables, the losses, the verdicts and the method.
//
// Each chart has a table of its figures. A script on the page adds tooltips for pointer
// and arrow keys, and switches series and rates. Without the script
// everything is visible. The page draws no figures of an invalid cell.
//
// Full distributions are in run.json, as histograms that each HdrHistogram library decodes.
func HTML(w io.Writer, o *lab.Outcome) error { return write(w, o, newDocument, htmlPage, true) }

// Write writes report.md and report.html into a results folder, each completely or not
// at all. Package lab writes the other files during the run.
func Write(dir string, o *lab.Outcome) error {
	return errors.Join(
		o.ReplaceFile(filepath.Join(dir, lab.ReportFile), func(w io.Writer) error { return Markdown(w, o) }),
		o.ReplaceFile(filepath.Join(dir, HTMLFile), func(w io.Writer) error { return HTML(w, o) }))
}
