package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/loadgen/manifest"
)

// specFlags fill a Spec from a file and from flags. Flags win.
type specFlags struct {
	flagged experiment.Spec // values of the flags
	fields  []experiment.Field
	file    string // path of -f
	flag    string // names the file in errors; empty for an argument
	data    []byte // content of the file, for line numbers in errors
}

// add adds the flags of the wanted fields. search is the verb's; nil for none.
func (f *specFlags) add(cmd *cobra.Command, search *experiment.Search, wanted func(experiment.Field) bool) {
	f.flagged.Search = search
	f.fields = slices.DeleteFunc(experiment.Fields(&f.flagged), func(fl experiment.Field) bool {
		return fl.RunOnly && search != nil || !wanted(fl)
	})
	experiment.AddFlags(cmd.Flags(), f.fields)
	f.flag = "experiment"
	cmd.Flags().StringVarP(&f.file, f.flag, "f", "", "experiment in YAML; flags win over it")
}

func anyField(experiment.Field) bool { return true }

func (f *specFlags) spec(cmd *cobra.Command) (experiment.Spec, error) {
	var s experiment.Spec
	if f.file != "" {
		var err error
		if f.data, err = manifest.ReadStrict(f.file, &s); err != nil {
			return s, badFile(f.flag, f.file, f.data, err)
		}
	}
	if search := f.flagged.Search; search != nil {
		if s.Search != nil && (s.Search.Knee == nil) != (search.Knee == nil) {
			return s, badFile(f.flag, f.file, f.data, errors.New("it has another search; watchlab run plays it"))
		}
		if s.Search == nil {
			s.Search = search
		}
	}
	return s, f.blame(cmd, experiment.Overlay(&s, f.fields, cmd.Flags().Changed))
}

// blame adds to an error of the Spec the flag, or the line of the file, that caused it.
func (f *specFlags) blame(cmd *cobra.Command, err error) error {
	if err == nil || errors.Is(err, errInterrupted) {
		return err
	}
	var field *manifest.Error
	isField := errors.As(err, &field)
	flag := ""
	if isField {
		flag = experiment.FlagOf(field.Field)
	}
	switch {
	case f.file != "" && !(isField && cmd.Flags().Changed(flag)):
		return badFile(f.flag, f.file, f.data, err)
	case flag != "":
		return badFlag(flag, field.Err)
	}
	return usageError{err}
}

type runFlags struct {
	specFlags
	resume    string // results folder of an interrupted run; empty for a new run
	dir       string
	output    outputFlag[*lab.Outcome]
	telemetry telemetryFlags
	stays     bool // telemetry is served after the run, until ctx ends
	helpAll   bool
	args      []string
}

func newPlaying(f *runFlags, cmd *cobra.Command, search *experiment.Search) *cobra.Command {
	f.specFlags.add(cmd, search, anyField)
	f.telemetry.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.resume, "resume", "", "results folder of an interrupted run to continue")
	fl.StringVar(&f.dir, "out", "", "results folder to create (default none)")
	f.output.add(cmd, "table", briefForm, tableForm, jsonForm, benchForm)
	f.shortHelp(cmd)
	cmd.Args = takes(0, 1, "one experiment in YAML")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.helpAll {
			return cmd.Help()
		}
		if len(args) == 1 {
			if f.file != "" {
				return badFlag("experiment", fmt.Errorf("is given, and %q besides", args[0]))
			}
			f.file, f.flag = args[0], ""
		}
		return f.run(cmd)
	}
	return cmd
}

func (f *runFlags) run(cmd *cobra.Command) error {
	if f.resume != "" || cmd.Flags().Changed("resume") {
		if err := f.openResumed(cmd); err != nil {
			return err
		}
	}
	spec, err := f.spec(cmd)
	if err != nil {
		return err
	}
	if err := checkNew(f.dir); err != nil {
		return err
	}
	if err := f.telemetry.check(len(spec.Profiles) > 0); err != nil {
		return err
	}
	p, err := planOf(cmd, spec)
	if err != nil {
		return f.blame(cmd, err)
	}
	r := &playing{Plan: p, dir: cmp.Or(f.resume, f.dir), resume: f.resume != "", show: f.output.show, telemetry: f.telemetry, stays: f.stays, args: f.args}
	if len(p.Spec.Parts) > 0 {
		if !cmd.Flags().Changed("output") {
			r.show, r.brief = report.Brief, true
		}
		if r.dir == "" {
			r.dir = freeFolder("results", build(), p.Spec.Name)
		}
	}
	if len(p.Profiles) > 0 && r.dir == "" {
		return badFlag("profile", errors.New("needs --out: profiles are files of the results folder"))
	}
	if p.Spec.Processes > 1 && r.dir == "" {
		return badFlag("processes", errors.New("needs --out: a process reads the rounds of those before it there"))
	}
	return continued(cmd, r.dir, r.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()))
}

// planOf plans a Spec.
func planOf(cmd *cobra.Command, s experiment.Spec) (*experiment.Plan, error) {
	cell.MeasureGCPrice() // before the storm is in the heap
	p, err := experiment.New(s)
	if cmd.Context().Err() != nil {
		err = errInterrupted
	}
	return p, err
}

// openResumed makes the experiment of an interrupted run the file of the Spec.
func (f *runFlags) openResumed(cmd *cobra.Command) error {
	var err error
	cmd.Flags().Visit(func(fl *pflag.Flag) {
		if err == nil && (experiment.Path(fl.Name) != "" || fl.Name == "out" || fl.Name == "experiment") {
			err = badFlag(fl.Name, errors.New("is not for --resume: the run continues with its own experiment"))
		}
	})
	if err != nil {
		return err
	}
	f.file, f.flag = filepath.Join(f.resume, lab.ExperimentFile), "resume"
	f.flagged.Search = nil
	if _, err := os.Stat(f.file); err != nil {
		return badFlag("resume", err)
	}
	return nil
}

func newRun(args []string) *cobra.Command {
	return newPlaying(&runFlags{args: args}, &cobra.Command{
		Use:   "run [EXPERIMENT.yaml]",
		Short: "Play a storm through variants side by side and compare them",
		Long: `run plays a storm through each variant of a family in interleaved rounds, and checks that
nothing was lost, reordered or duplicated. Throughput is that of the unpaced cell (--pace
max). Latency is that of the paced cells, from the intended time of each event.

Without an experiment, --family, --pipeline or --storm it plays the quick experiment (a whole
informer over HTTP, the queue alone, the kubelet) and writes its results to results/.`,
		Example: `  # Throughput unpaced, latency at 100,000 events per second and in the storm's own time
  watchlab run --family deltafifo --storm gang --scale 0.1 --pace max,100000,trace

  # Whole informers over HTTP: client-go's, with the usual transform, and ours
  watchlab run --pipeline informer --source apiserver --impl clientgo,clientgo-transform,watchlab --encoding protobuf

  # Decoding over HTTP: client-go's informer and a ring, below one decoder
  watchlab run --pipeline informer --source apiserver --impl clientgo-informer,ring --encoding protobuf --decode shared

  # As many rounds as fit into ten minutes; and continue after a crash
  watchlab run --family deltafifo --budget 10m --out results/mine
  watchlab run --resume results/mine

  # A published run again
  watchlab run results/mine/experiment.yaml`,
	}, nil)
}

func newKnee(args []string) *cobra.Command {
	return newPlaying(&runFlags{args: args}, &cobra.Command{
		Use:   "knee [EXPERIMENT.yaml]",
		Short: "Find the highest rate at which each variant holds a latency",
		Long: `knee doubles the rate until the objective fails, then halves the gap. It prints the highest
rate that each variant holds in more than half of the rounds, and the latency at every rate.`,
		Example: `  watchlab knee --family deltafifo --delivery in-order --slo p99=1ms`,
	}, &experiment.Search{Knee: &experiment.KneeSearch{}})
}

func newScale(args []string) *cobra.Command {
	return newPlaying(&runFlags{args: args}, &cobra.Command{
		Use:   "scale [EXPERIMENT.yaml]",
		Short: "Measure throughput over a knob, such as the number of producers",
		Long: `scale plays a storm unpaced at each value of a knob, all of them interleaved. For a number of
workers (producers, procs) it fits the Universal Scalability Law, which takes four
values or more.`,
		Example: `  watchlab scale --family deltafifo --delivery per-key --over producers=1,2,4,8`,
	}, &experiment.Search{Scale: &experiment.Scale{}})
}

const dashAddr = "127.0.0.1:9465"

func newDash(args []string) *cobra.Command {
	f := &runFlags{args: args, stays: true}
	cmd := newPlaying(f, &cobra.Command{
		Use:   "dash [EXPERIMENT.yaml]",
		Short: "Run, and show it live in a browser",
		Long: `dash plays what run would, and serves its report as a page: of the rounds so far, reloaded
every 2 s, and after the run until Ctrl-C. It needs nothing from the network.`,
		Example: `  watchlab dash --budget 2m --family deltafifo --delivery in-order --pipeline informer --storm recorded-gang --pace max,5000`,
	}, nil)
	addr := cmd.Flags().Lookup("metrics-addr")
	f.telemetry.addr, addr.DefValue = dashAddr, dashAddr
	return cmd
}
