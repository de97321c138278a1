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

// specFlags fill a T, which is a Spec, from a file and from flags. Flags win.
type specFlags[T any] struct {
	flagged T                  // values of the flags
	fields  []experiment.Field // of flagged
	file    string             // path of -f; empty for none
	flag    string             // names the file in errors; empty for an argument
	data    []byte             // content of the file, for line numbers in errors
}

// add adds the flags of the wanted fields.
func (f *specFlags[T]) add(cmd *cobra.Command, wanted func(experiment.Field) bool) {
	f.fields = slices.DeleteFunc(experiment.Fields(&f.flagged), func(fl experiment.Field) bool { return !wanted(fl) })
	experiment.AddFlags(cmd.Flags(), f.fields)
}

// addFile adds the flag of the file.
func (f *specFlags[T]) addFile(cmd *cobra.Command, flag, usage string) {
	f.flag = flag
	cmd.Flags().StringVarP(&f.file, flag, "f", f.file, usage)
}

const experimentUsage = "experiment in YAML; flags win over it"

func anyField(experiment.Field) bool { return true }

// read reads the file and adds the given flags.
func (f *specFlags[T]) read(cmd *cobra.Command) (s T, err error) {
	if f.file != "" {
		if f.data, err = manifest.ReadStrict(f.file, &s); err != nil {
			return s, badFile(f.flag, f.file, f.data, err)
		}
	}
	return s, f.blame(cmd, experiment.Overlay(&s, f.fields, cmd.Flags().Changed))
}

// blame names the flag, or the line of the file, of a mistake in the Spec.
func (f *specFlags[T]) blame(cmd *cobra.Command, err error) error {
	at, ok := errors.AsType[*manifest.Error](err)
	if ok && f.file != "" && !cmd.Flags().Changed(flagOf(f.fields, at.Field)) {
		return badFile(f.flag, f.file, f.data, err)
	}
	return badField(err, f.fields...)
}

// flagOf is the flag that sets a field: one of fields, the experiment's, or what the field is called.
func flagOf(fields []experiment.Field, path string) string {
	flag := experiment.FlagOf(path)
	if i := slices.IndexFunc(fields, func(f experiment.Field) bool { return f.Path == path }); i >= 0 {
		flag = fields[i].Flag
	}
	return cmp.Or(flag, map[string]string{"manifests": "manifest"}[path], path)
}

type runFlags struct {
	specFlags[experiment.Spec]
	playing playing
	resume  string // results folder of an interrupted run; empty for a new run
	output  outputFlag[*lab.Outcome]
	helpAll bool
}

func newPlaying(f *runFlags, cmd *cobra.Command, search *experiment.Search) *cobra.Command {
	f.flagged.Search = search
	f.add(cmd, func(fl experiment.Field) bool { return search == nil || !fl.RunOnly })
	f.addFile(cmd, "experiment", experimentUsage)
	f.playing.telemetry.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.resume, "resume", "", "results folder of an interrupted run to continue")
	fl.StringVar(&f.playing.dir, "out", "", "results folder to create (default none)")
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
	spec, err := f.read(cmd)
	if err != nil {
		return err
	}
	if spec.Search = cmp.Or(spec.Search, f.flagged.Search); !spec.Search.Like(f.flagged.Search) {
		return badFile(f.flag, f.file, f.data, errors.New("it has another search; watchlab run plays it"))
	}
	r := &f.playing
	if err := checkNew(r.dir); err != nil {
		return err
	}
	if err := r.telemetry.Complete(len(spec.Profiles) > 0); err != nil {
		return badField(err)
	}
	p, err := planOf(cmd, spec)
	if err != nil {
		return f.blame(cmd, err)
	}
	r.Plan, r.dir, r.resume, r.show = p, cmp.Or(f.resume, r.dir), f.resume != "", f.output.show
	if len(p.Spec.Parts) > 0 {
		if !cmd.Flags().Changed("output") {
			r.show, r.brief = report.Brief, true
		}
		if r.dir == "" {
			r.dir = lab.FreeFolder("results", build(), p.Spec.Name)
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

// planOf plans a Spec. The error is a [*manifest.Error] or errInterrupted.
func planOf(cmd *cobra.Command, s experiment.Spec) (*experiment.Plan, error) {
	cell.MeasureGCPrice() // before the storm is in the heap
	p, err := experiment.New(s)
	if cmd.Context().Err() != nil {
		return p, errInterrupted
	}
	return p, manifest.Locate("", nil, err)
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
	return newPlaying(&runFlags{playing: playing{args: args}}, &cobra.Command{
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
	return newPlaying(&runFlags{playing: playing{args: args}}, &cobra.Command{
		Use:   "knee [EXPERIMENT.yaml]",
		Short: "Find the highest rate at which each variant holds a latency",
		Long: `knee doubles the rate until the objective fails, then halves the gap. It prints the highest
rate that each variant holds in more than half of the rounds, and the latency at every rate.`,
		Example: `  watchlab knee --family deltafifo --delivery in-order --slo p99=1ms`,
	}, &experiment.Search{Knee: &experiment.KneeSearch{}})
}

func newScale(args []string) *cobra.Command {
	return newPlaying(&runFlags{playing: playing{args: args}}, &cobra.Command{
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
	f := &runFlags{playing: playing{args: args, stays: true}}
	cmd := newPlaying(f, &cobra.Command{
		Use:   "dash [EXPERIMENT.yaml]",
		Short: "Run, and show it live in a browser",
		Long: `dash plays what run would, and serves its report as a page: of the rounds so far, reloaded
every 2 s, and after the run until Ctrl-C. It needs nothing from the network.`,
		Example: `  watchlab dash --budget 2m --family deltafifo --delivery in-order --pipeline informer --storm recorded-gang --pace max,5000`,
	}, nil)
	addr := cmd.Flags().Lookup("metrics-addr")
	f.playing.telemetry.MetricsAddr, addr.DefValue = dashAddr, dashAddr
	return cmd
}
