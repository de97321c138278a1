package cli

import (
	"context"
	"errors"
	"io"
	"math"
	"path/filepath"

	"github.com/spf13/cobra"

	"watchlab/loadgen/trace"
)

func newTrace() *cobra.Command {
	return parent(&cobra.Command{
		Use:   "trace",
		Short: "Inspect, convert, cut and merge recorded watch streams",
		Long: `A recording is a name (see run --storm), a trace (*.jsonl.zst), JSON lines, or the output of a
watch ({"type":…,"object":…}); the latter two plain or compressed by gzip or zstd. "-" is
stdin. Unreadable parts are reported with their place, the rest is used, and the exit code is 1.`,
		Example: `  watchlab trace inspect storm.jsonl.zst
  watchlab trace convert storm.jsonl.zst piece.jsonl.zst --from 30s --to 1m
  watchlab trace convert storm.jsonl.zst - | head -1`,
	}, newTraceInspect(), newTraceConvert())
}

func newTraceInspect() *cobra.Command {
	var out outputFlag[*trace.Summary]
	cmd := &cobra.Command{
		Use:   "inspect FILE",
		Short: "Show a recording: origin, rates, sizes, key skew, interruptions, damage",
		Long: `inspect shows the origin and the interruptions of a recording, and each resource after its
initial list: events, mean and peak rate, sizes, and the spread over keys. JSON has the rate of each second.`,
		Example: `  watchlab trace inspect recorded-gang -o json`,
		Args:    takes(1, 1, "FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, faults, err := inspect(cmd, args[0])
			if err != nil {
				return err
			}
			return errors.Join(out.show(cmd.OutOrStdout(), s), reportFaults(cmd.ErrOrStderr(), faults))
		},
	}
	out.addText(cmd, "table", method((*trace.Summary).Print))
	return cmd
}

// inspect reads a recording and returns its unreadable parts.
func inspect(cmd *cobra.Command, name string) (*trace.Summary, []*trace.Error, error) {
	in, err := trace.OpenInput(name, cmd.InOrStdin())
	if err != nil {
		return nil, nil, usageError{err}
	}
	s, err := trace.Inspect(cmd.Context(), name, in)
	return s, in.Faults, traceError(err)
}

// traceError returns the error of reading a recording for the exit code.
func traceError(err error) error {
	if _, nothing := errors.AsType[*trace.Error](err); nothing {
		return usageError{err}
	}
	if errors.Is(err, context.Canceled) {
		return errInterrupted
	}
	return err
}

func newTraceConvert() *cobra.Command {
	var opts trace.ConvertOptions
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "convert IN… OUT|-",
		Short: "Write recordings in another format, cut, merged or repaired",
		Long: `convert writes a recording as a trace, or as JSON lines to - and *.jsonl. It leaves out what cannot be
read, and adjusts events to the ones before, so that the result can be played.

--from and --to select a part, whose times count from --from; the state at --from becomes its
initial list. Several recordings are merged by time from the start of each; objects of one name
count as one object.`,
		Example: `  watchlab trace convert storm.jsonl.zst - | jq -c .event
  watchlab trace convert storm.jsonl.zst.partial storm.jsonl.zst    # after a kill
  watchlab trace convert storm.jsonl.zst piece.jsonl.zst --from 30s --to 1m
  watchlab trace convert pods.jsonl.zst nodes.jsonl.zst both.jsonl.zst`,
		Args: takes(2, math.MaxInt, "IN… and OUT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return convert(cmd, opts, overwrite, args)
		},
	}
	fl := cmd.Flags()
	fl.DurationVar(&opts.From, "from", 0, "begin of the part")
	fl.DurationVar(&opts.To, "to", math.MaxInt64, "end of the part")
	fl.Lookup("to").DefValue = "end"
	fl.StringSliceVar(&opts.Resources, "resource", nil, "resources to write, such as pods or apps/v1/deployments (default: all)")
	fl.BoolVar(&opts.Anonymised, "anonymise", false, "replace names and values")
	fl.BoolVar(&overwrite, "overwrite", false, "replace an existing file")
	return cmd
}

func convert(cmd *cobra.Command, opts trace.ConvertOptions, overwrite bool, files []string) (err error) {
	names, out := files[:len(files)-1], files[len(files)-1]
	if err := opts.Validate(); err != nil {
		return badField(err)
	}
	opts.Transform, opts.Tool = transformOf(opts.Anonymised), toolName()
	inputs, closeAll, err := trace.OpenInputs(names, cmd.InOrStdin())
	defer closeAll()
	if err != nil {
		return usageError{err}
	}
	write := func(to io.Writer) (err error) {
		w := trace.NewLineWriter(to)
		if out != "-" && filepath.Ext(out) != ".jsonl" {
			if w, err = trace.NewWriter(to, opts.Header(inputs...)); err != nil {
				return err
			}
		}
		return trace.Convert(cmd.Context(), w, opts, inputs...)
	}
	if out == "-" {
		err = write(cmd.OutOrStdout())
	} else {
		err = writeFile(out, overwrite, write)
	}
	var faults []*trace.Error
	for _, in := range inputs {
		faults = append(faults, in.Faults...)
	}
	return errors.Join(traceError(err), reportFaults(cmd.ErrOrStderr(), faults))
}
