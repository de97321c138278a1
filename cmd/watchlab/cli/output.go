package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/loadgen/manifest"
)

type form[T any] struct {
	name  string
	write func(io.Writer, T) error
}

// outputFlag is the flag -o: one of several forms.
type outputFlag[T any] struct {
	show func(io.Writer, T) error // the form, when the verb runs; nil for none
}

// add adds the flag. base is the default form; empty for none. An unknown form is an error before the verb runs.
func (o *outputFlag[T]) add(cmd *cobra.Command, base string, forms ...form[T]) {
	var names []string
	for _, f := range forms {
		names = append(names, f.name)
	}
	name := cmd.Flags().StringP("output", "o", base, "output: "+strings.Join(names, ", "))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if i := slices.Index(names, *name); i >= 0 {
			o.show = forms[i].write
		} else if cmd.Flags().Changed("output") {
			return badFlag("output", manifest.OneOf(*name, names...))
		}
		return nil
	}
}

// addText adds the flag for a text, the default, or JSON.
func (o *outputFlag[T]) addText(cmd *cobra.Command, name string, text func(io.Writer, T) error) {
	o.add(cmd, name, form[T]{name, text}, form[T]{"json", lab.EncodeJSON[T]})
}

func method[T any](write func(T, io.Writer) error) func(io.Writer, T) error {
	return func(w io.Writer, v T) error { return write(v, w) }
}

// The forms of a run's outcome.
var (
	briefForm = form[*lab.Outcome]{"brief", report.Brief}
	tableForm = form[*lab.Outcome]{"table", report.Table}
	jsonForm  = form[*lab.Outcome]{"json", lab.EncodeJSON[*lab.Outcome]}
	benchForm = form[*lab.Outcome]{"bench", method((*lab.Outcome).WriteBench)}
)
