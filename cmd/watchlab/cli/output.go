package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

type form[T any] struct {
	name  string
	write func(io.Writer, T) error
}

// outputFlag is the flag -o: one of several forms.
type outputFlag[T any] struct {
	name  string
	forms []form[T]
}

// add adds the flag. base is the default form; empty for none.
func (o *outputFlag[T]) add(cmd *cobra.Command, base string, forms ...form[T]) {
	o.name, o.forms = base, forms
	cmd.Flags().StringVarP(&o.name, "output", "o", o.name, "output: "+strings.Join(o.names(), ", "))
}

func (o *outputFlag[T]) names() []string {
	var names []string
	for _, f := range o.forms {
		names = append(names, f.name)
	}
	return names
}

func (o *outputFlag[T]) writer() (func(io.Writer, T) error, error) {
	for _, f := range o.forms {
		if f.name == o.name {
			return f.write, nil
		}
	}
	return nil, badFlag("output", experiment.OneOf(o.name, o.names()...))
}

func (o *outputFlag[T]) print(cmd *cobra.Command, get func() (T, error)) error {
	write, err := o.writer()
	if err != nil {
		return err
	}
	v, err := get()
	if err != nil {
		return err
	}
	return write(cmd.OutOrStdout(), v)
}

func method[T any](write func(T, io.Writer) error) func(io.Writer, T) error {
	return func(w io.Writer, v T) error { return write(v, w) }
}

// The forms of a run's outcome.
var (
	briefForm = form[*lab.Outcome]{"brief", report.Brief}
	tableForm = form[*lab.Outcome]{"table", report.Table}
	jsonForm  = form[*lab.Outcome]{"json", method((*lab.Outcome).WriteJSON)}
	benchForm = form[*lab.Outcome]{"bench", method((*lab.Outcome).WriteBench)}
)

func printJSON[T any](w io.Writer, v T) error { return lab.EncodeJSON(w, v) }
