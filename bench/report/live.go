package report

import (
	"io"

	"watchlab/bench/lab"
)

// Answer writes the first screen of a run so far, for the live page: the sentence, the charts and the table of
// each group.
func Answer(w io.Writer, o *lab.Outcome) error {
	return htmlPage.ExecuteTemplate(w, "answers", drawn(newRun(o).summaries()))
}
