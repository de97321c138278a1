package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/lab"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/trace"
	"watchlab/loadgen/trace/anonymise"
)

type recordFlags struct {
	clusterFlags
	namespace, out  string
	resources       []string
	keep, overwrite bool
	window          time.Duration
}

func newRecord() *cobra.Command {
	f := recordFlags{}
	cmd := &cobra.Command{
		Use:   "record [-]",
		Short: "Record the watches of a cluster's resources into a trace",
		Long: `record writes the watches of a cluster's resources into one trace, from their initial list
until Ctrl-C or for the time of --for; with -, a watch that comes through a pipe. It replaces
names and values unless --keep is given (docs/storms.md). It writes to FILE` + partialSuffix + ` and renames
the complete trace; after a crash, watchlab trace convert repairs the rest.

Exit code: 0, also after Ctrl-C; 1 if a watch was refused or the stream could not be read to
its end, with the events so far kept.`,
		Example: `  watchlab record --resource pods,nodes,leases --for 10m -o storm.jsonl.zst
  kubectl get pods -A --watch -o json --output-watch-events | watchlab record - -o pods.jsonl.zst`,
		Args: func(cmd *cobra.Command, args []string) error {
			if slices.Equal(args, []string{"-"}) {
				return nil
			}
			return takes(0, 0, "only flags, or - for stdin")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, len(args) == 1) },
	}
	fl := cmd.Flags()
	f.add(cmd)
	fl.StringSliceVar(&f.resources, "resource", []string{"pods"}, "resources, as kubectl names them; the first is the main one")
	fl.StringVarP(&f.namespace, "namespace", "n", "", "namespace (default: all)")
	fl.StringVarP(&f.out, "output", "o", "", "trace to write")
	fl.DurationVar(&f.window, "for", 0, "how long to record (default: until Ctrl-C)")
	fl.BoolVar(&f.keep, "keep", false, "keep names and values as they are")
	fl.BoolVar(&f.overwrite, "overwrite", false, "replace an existing file")
	return cmd
}

func (f *recordFlags) run(cmd *cobra.Command, stdin bool) error {
	given := cmd.Flags().Changed
	switch {
	case f.out == "":
		return badFlag("output", errors.New("names no file to write the trace to"))
	case given("for") && f.window <= 0:
		return badFlag("for", fmt.Errorf("%v is not more than 0", f.window))
	case stdin:
		for _, name := range []string{"kubeconfig", "context", "resource", "namespace", "for"} {
			if given(name) {
				return badFlag(name, errors.New("is not for what comes from stdin"))
			}
		}
	case len(f.resources) == 0:
		return badFlag("resource", errors.New("names none"))
	}
	transform := transformOf(!f.keep)
	h := trace.Header{Tool: toolName(), Anonymised: !f.keep, Started: time.Now().UTC().Truncate(time.Millisecond)}
	if stdin {
		return f.pipe(cmd, h, transform)
	}
	return f.watch(cmd, h, transform)
}

func (f *recordFlags) watch(cmd *cobra.Command, h trace.Header, transform func(trace.Frame) (trace.Frame, error)) error {
	c, err := f.connect(cmd)
	if err != nil {
		return err
	}
	opts := cluster.RecordOptions{Config: c.Config(), Namespace: f.namespace, Transform: transform}
	for _, name := range f.resources {
		res, err := c.Resource(name)
		switch {
		case errors.Is(err, cluster.ErrResource):
			return badFlag("resource", err)
		case err != nil:
			return err
		case slices.Contains(opts.Resources, res):
			return badFlag("resource", fmt.Errorf("%s appears twice", name))
		}
		opts.Resources = append(opts.Resources, res)
		h.Resources = append(h.Resources, res.Traced())
	}
	h.Origin = "the watches of a cluster"
	if f.keep {
		h.Origin = "the watches of the cluster at " + lab.Redact(opts.Config.Host)
	}
	ctx := cmd.Context()
	if f.window > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.window)
		defer cancel()
	}
	return f.write(cmd, h, func(w *trace.Writer) (bool, error) {
		sums, err := cluster.Record(ctx, w, opts)
		events := 0
		for _, s := range sums {
			events += s.Events + s.Missed
		}
		if err != nil && events == 0 {
			return false, err
		}
		for _, s := range sums {
			warn(cmd.ErrOrStderr(), "%s", s)
		}
		return true, err
	})
}

// write creates the trace and calls frames with its writer. It keeps the file if frames
// returns true, also with an error.
func (f *recordFlags) write(cmd *cobra.Command, h trace.Header, frames func(*trace.Writer) (keep bool, err error)) error {
	out, err := lab.NewOutFile(f.out, partialSuffix, f.overwrite)
	if err != nil {
		return usageError{err}
	}
	w, err := trace.NewWriter(out, h)
	if err != nil {
		return errors.Join(err, out.Discard())
	}
	keep, err := frames(w)
	if !keep {
		return errors.Join(err, w.Close(), out.Discard())
	}
	if failed := errors.Join(w.Close(), out.Keep()); failed != nil {
		return errors.Join(err, failed)
	}
	warn(cmd.ErrOrStderr(), "the trace is in %s", f.out)
	return err
}

func (f *recordFlags) pipe(cmd *cobra.Command, h trace.Header, transform func(trace.Frame) (trace.Frame, error)) error {
	in := trace.LiveInput(cmd.Context(), cmd.InOrStdin())
	defer func() { _ = in.Close() }()
	if in.Format() != trace.WatchFormat {
		if cmd.Context().Err() != nil {
			return errInterrupted
		}
		return usageError{errors.New("stdin is not what a watch says: {\"type\":…,\"object\":…} (watchlab trace convert reads the other formats)")}
	}
	h.Origin, h.Resources = "a watch, through a pipe", in.Header().Resources
	return f.write(cmd, h, func(w *trace.Writer) (bool, error) {
		err := trace.Convert(cmd.Context(), w, trace.ConvertOptions{Transform: transform}, in)
		_, nothing := errors.AsType[*trace.Error](err)
		return !nothing, errors.Join(traceError(err), reportFaults(cmd.ErrOrStderr(), in.Faults))
	})
}

func transformOf(replace bool) func(trace.Frame) (trace.Frame, error) {
	if !replace {
		return nil
	}
	return anonymise.New().Frame
}

func toolName() string { return strings.TrimSpace("watchlab " + build().Commit) }

const partialSuffix = ".partial" // suffix of an unfinished trace

func writeFile(path string, overwrite bool, write func(io.Writer) error) error {
	out, err := lab.NewOutFile(path, ".tmp", overwrite)
	if err != nil {
		return usageError{err}
	}
	if err := write(out); err != nil {
		return errors.Join(err, out.Discard())
	}
	return out.Keep()
}

func reportFaults(stderr io.Writer, faults []*trace.Error) error {
	warnEach(stderr, faults, func(e *trace.Error) string { return lab.OneLine(e.Error()) })
	if len(faults) > 0 {
		return errInvalid
	}
	return nil
}

// warnEach warns of the first of many things.
func warnEach[T any](stderr io.Writer, all []T, text func(T) string) {
	const most = 20
	for _, v := range all[:min(len(all), most)] {
		warn(stderr, "%s", text(v))
	}
	if more := len(all) - most; more > 0 {
		warn(stderr, "and %d more", more)
	}
}
