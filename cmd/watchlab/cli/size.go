package cli

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"watchlab/bench/controller"
	"watchlab/bench/controller/program"
	"watchlab/bench/lab"
	"watchlab/bench/report"
)

func newSize() *cobra.Command {
	var f specFlags[controller.Sizing]
	var s study[*controller.Sized]
	cmd := &cobra.Command{
		Use:   "size",
		Short: "Measure how much memory and API load a controller needs for N objects",
		Long: `size starts PROGRAM with KUBECONFIG, each time as a new process with a new API server and more objects, and
measures its memory at the first list, at rest, while it lists again, and after a restart, its CPU time and its
requests. It fits what one object more of each resource takes, predicts for the numbers of --at, and says which watch
costs it and what would save.

The results folder has size.json, size.html, and bench.txt for watchlab gate. Memory needs Linux.`,
		Example: `  watchlab size -- ./my-controller
  watchlab size --grow pods=1k,10k,50k --at pods=200k -- ./my-controller
  watchlab size --manifest crds/ --manifest widget.yaml --grow widgets=1k,10k -- ./my-controller`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.required(cmd, args, "./my-controller"); err != nil {
				return err
			}
			opts, err := s.options(cmd)
			if err != nil {
				return err
			}
			sizing, err := f.read(cmd)
			if err != nil {
				return err
			}
			sizing.Command = args
			o, err := controller.Size(cmd.Context(), sizing, opts)
			switch {
			case o == nil && errors.Is(err, program.ErrCommand):
				return usageError{err}
			case o == nil:
				return f.blame(cmd, err)
			}
			if len(o.Laws) > 0 {
				err = errors.Join(err, lab.ReplaceFile(filepath.Join(s.dir, "size.html"), func(w io.Writer) error { return report.SizeChart(w, o) }))
			}
			return s.conclude(cmd, o, o.Interrupted, false, err)
		},
	}
	f.add(cmd, anyField)
	s.add(cmd, report.SizeText)
	return cmd
}
