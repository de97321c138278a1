package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/profile"
	"watchlab/bench/report"
	"watchlab/bench/telemetry"
	"watchlab/impls"
	"watchlab/impls/deltafifo"
	"watchlab/impls/merge"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// runFlags are the flags of run.
type runFlags struct {
	family    string
	impls     []string
	delivery  []string
	pipeline  string
	source    string
	storm     stormFlags
	made      *made
	paces     []string
	budget    string
	rounds    int
	seed      int64
	producers int
	events    int
	knobs     pipeline.Knobs
	faults    []string

	faultsOf  []fault.Spec
	static    int
	side      loadFlags
	filenames []string
	recursive bool
	of        liveFlags
	share     shareFlags
	how       howFlags
	telemetry telemetryFlags
	out       string
	output    string
}

const (
	allImpls = "all"
	// defaultStorm is small enough for a first look.
	defaultStorm = "recorded-nodeloss"
	// defaultRounds of a comparison.
	defaultRounds = 5
)

func newRun(args []string) *cobra.Command {
	f := runFlags{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Play a storm through variants side by side and compare them",
		Long: `run plays a storm through each variant of a family, round by round and
interleaved, checks that nothing was lost, reordered or duplicated, and prints
one table. With several paces, throughput is taken from the unpaced one ("max")
and latency, from the intended time of each event, from the paced ones.

--storm names what happens: one of the profiles, which are made from a seed and
scaled with --nodes, --pods and --scale (watchlab storm list, watchlab storm
show), a file of profiles in YAML, or a recording.

Without --family, --pipeline and --storm it runs the quick study: every variant of every family, alone
and in its pipelines, on the recordings that are built in, in about five minutes;
the results also go to results/<date>-<commit>-quick.

Exit code: 0; 1 if a cell broke an invariant (its figures are not shown); 2 for
bad input, before anything is run or written; 130 after Ctrl-C, which keeps what
is finished. A run with a results folder that was interrupted, or killed, goes on
with --resume.`,
		Example: `  # Which delta queue survives this storm?
  watchlab run --storm nodeloss --nodes 1000 --pipeline informer

  # Throughput unpaced, latency at 100,000 events a second and in the storm's own time
  watchlab run --family deltafifo --storm gang --scale 0.1 --pace max,100000,trace

  # Two variants behind a real HTTP watch, results kept
  watchlab run --family deltafifo --impl clientgo-realfifo-batch,cond \
    --pipeline informer --source apiserver --storm pods.jsonl.gz --out results/mine

  # What does a bounded ring cost, and what does it save?
  watchlab run --family deltafifo --impl clientgo-realfifo-batch,ring --capacity 4096 --handover lent

  # As many rounds as fit into ten minutes; and go on after a crash
  watchlab run --family deltafifo --budget 10m --out results/mine
  watchlab run --resume results/mine

  # How much memory does each need at most?
  watchlab run --family deltafifo --storm relist --pipeline informer --memory

  # On two machines at once: each its half of the storm
  watchlab run --storm nodeloss --share 0/2     # and --share 1/2 on the other

  # What does my own traffic cost each of them? (One watch, seen by all at once.)
  watchlab run --family deltafifo --source cluster --context dev --resource pods

  # The kubelet's merge, compared by benchstat
  watchlab run --family merge --pipeline kubelet -o bench | benchstat -row .name -col /impl -`,
		Args: noArgs,
		RunE: plays(args, f.plan),
	}
	f.addAll(cmd)
	return cmd
}

// addAll adds all flags of run.
func (f *runFlags) addAll(cmd *cobra.Command) {
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringSliceVar(&f.paces, "pace", []string{"max"}, "when events are released, one cell for each: max, events a second, poisson:RATE, step:RATE..RATE/PERIOD, ramp:RATE..RATE/PERIOD, sine:RATE..RATE/PERIOD, trace or trace:SPEEDx (the storm's own times)")
	// --rate is what --pace was called when there were only rates.
	fl.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "rate" {
			name = "pace"
		}
		return pflag.NormalizedName(name)
	})
	f.of.add(cmd)
	f.share.add(cmd)
}

// add adds the flags that say what is played and how often, which the sweeps have
// too.
func (f *runFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.family, "family", "", "family to compare: "+strings.Join(families(), ", ")+"; none for the quick study")
	fl.StringSliceVar(&f.impls, "impl", []string{allImpls}, "variants, by name, or all")
	fl.StringSliceVar(&f.delivery, "delivery", nil, "deliveries of deltafifo: in-order, per-key; both where none is named")
	fl.StringVar(&f.pipeline, "pipeline", pipeline.QueuePipeline, "pipeline that they stand in: "+strings.Join(pipeline.Names(), ", "))
	fl.StringVar(&f.source, "source", source.MemoryName, "where the storm enters: "+strings.Join(append(source.Names(), clusterSource, applySource), ", "))
	fl.StringVar(&f.storm.name, "storm", defaultStorm, stormHelp())
	f.storm.addSizes(cmd)
	fl.StringVar(&f.budget, "lag-budget", pace.DefaultBudget().String(), "how late releases may be, as a share of the time between two events or as a time, whichever is more; beyond it the verdict is invalid: generator")
	fl.IntVar(&f.rounds, "rounds", 0, fmt.Sprintf("rounds that count; one more warms up (default %d, %d in the quick study)", defaultRounds, quickRounds))
	fl.Int64Var(&f.seed, "seed", 1, "seed of the storm, of random paces, and of the order in which cells are played")
	fl.IntVar(&f.producers, "producers", 0, "goroutines that produce, in the queue pipeline (default 1)")
	fl.IntVar(&f.events, "events", 0, "events a round has at least, by repeating the storm (default: depends on the pipeline)")
	fl.IntVar(&f.knobs.Capacity, "capacity", 0, "how much may wait before producers do; this and the next four are options of variants, and those that don't take them are played as they are")
	fl.IntVar(&f.knobs.BatchSize, "batch-size", 0, "the most that deltafifo hands over at once (default 1000)")
	fl.IntVar(&f.knobs.Shards, "shards", 0, "parts of a sharded deltafifo or queue")
	fl.StringVar((*string)(&f.knobs.Compaction), "compaction", "", "none or latest: of a key's waiting deltas, hand over the newest only (deltafifo)")
	fl.StringVar((*string)(&f.knobs.HandOver), "handover", "", "owned; lent: slices are used again (deltafifo); shared: pods are not copied (merge)")
	fl.StringVar((*string)(&f.knobs.Trust), "trust", "", "versions or generations: what of the API server's word replaces comparing pods (merge)")
	f.side.add(cmd)
	fl.StringArrayVar(&f.faults, "faults", nil, "what goes wrong between client and server, for --source apiserver, as in 'disconnect:every=2s,count=10; gone:at=5s': all, "+faultNames()+"; adds to those of the storm's file")
	fl.StringArrayVarP(&f.filenames, "filename", "f", nil, "manifests that the storm's pods are made from (pods, or what has a pod template): files, folders, URLs, or - for standard input")
	fl.BoolVarP(&f.recursive, "recursive", "R", false, "read the folders in the folders of -f, too")
	fl.IntVar(&f.static, "static", 0, "static pods that the kubelet's file and http sources have each, and that change while the storm is played, for --pipeline kubelet")
	f.how.add(cmd)
	f.telemetry.add(cmd)
	fl.StringVar(&f.out, "out", "", "results folder to create (default: none; for the quick study results/<date>-<commit>-quick)")
	fl.StringVarP(&f.output, "output", "o", "table", "table, json or bench")
}

// knobFlags are the flags that are options of variants.
var knobFlags = []string{"capacity", "batch-size", "shards", "compaction", "handover", "trust"}

func checkKnobs(k pipeline.Knobs) error {
	for name, n := range map[string]int{"capacity": k.Capacity, "batch-size": k.BatchSize, "shards": k.Shards} {
		if n < 0 {
			return badFlag(name, fmt.Errorf("%d is negative", n))
		}
	}
	if c := k.Compaction; c != "" && c != deltafifo.None && c != deltafifo.Latest {
		return badFlag("compaction", oneOf(string(c), string(deltafifo.None), string(deltafifo.Latest)))
	}
	if t := k.Trust; t != "" && t != merge.TrustVersions && t != merge.TrustGenerations {
		return badFlag("trust", oneOf(string(t), string(merge.TrustVersions), string(merge.TrustGenerations)))
	}
	switch k.HandOver {
	case "", impls.Owned, impls.Lent, impls.Shared:
		return nil
	}
	return badFlag("handover", oneOf(string(k.HandOver), string(impls.Owned), string(impls.Lent), string(impls.Shared)))
}

// plan is a run that can be started.
type plan struct {
	name        string
	comparisons []lab.Comparison
	rounds      int
	seed        int64

	budget time.Duration
	memory bool

	profiles []profile.Kind
	dir      string
	show     func(io.Writer, *lab.Outcome) error
	args     []string

	stdin bool

	noAA bool

	finish func(*lab.Outcome) error

	cleanup   func() error
	telemetry telemetryFlags

	stays bool

	notes []string
}

// defaultRounds is how many rounds there are where no flag says so.
func (p *plan) defaultRounds(n int) {
	if p.rounds == 0 && p.budget == 0 {
		p.rounds = n
	}
}

// check checks the flags that don't say what is played, and begins a plan.
func (f *runFlags) check(cmd *cobra.Command) (*plan, error) {
	p := &plan{name: "run", rounds: f.rounds, seed: f.seed, dir: f.out, stdin: slices.Contains(f.filenames, "-")}
	switch f.output {
	case "table":
		p.show = report.Table
	case "json":
		p.show = report.JSON
	case "bench":
		p.show = report.Bench
	default:
		return nil, badFlag("output", oneOf(f.output, "table", "json", "bench"))
	}
	switch {
	case cmd.Flags().Changed("rounds") && f.rounds < 1:
		return nil, badFlag("rounds", fmt.Errorf("%d is less than 1", f.rounds))
	case f.producers < 0:
		return nil, badFlag("producers", fmt.Errorf("%d is negative", f.producers))
	case f.events < 0:
		return nil, badFlag("events", fmt.Errorf("%d is negative", f.events))
	}
	if err := checkKnobs(f.knobs); err != nil {
		return nil, err
	}
	if err := f.how.check(cmd, p); err != nil {
		return nil, err
	}
	if err := f.telemetry.check(p); err != nil {
		return nil, err
	}
	p.telemetry = f.telemetry
	if f.out != "" && modeOf(cmd.Context()).newFolder() {
		if _, err := os.Lstat(f.out); err == nil {
			return nil, badFlag("out", fmt.Errorf("%s exists; name a folder that doesn't", f.out))
		}
	}
	f.inferFamily(cmd)
	if err := f.share.check(cmd, f.source); err != nil {
		return nil, err
	}
	var err error
	if f.faultsOf, err = f.faultSpecs(cmd); err != nil {
		return nil, err
	}
	if f.recursive && len(f.filenames) == 0 {
		return nil, badFlag("recursive", errors.New("needs -f"))
	}
	return p, nil
}

// plan checks the flags, all of them before anything is read or written.
func (f *runFlags) plan(cmd *cobra.Command) (*plan, error) {
	p, err := f.check(cmd)
	if err != nil {
		return nil, err
	}
	if f.family == "" {
		alone := slices.Concat([]string{"impl", "delivery", "pipeline", "source", "storm", "pace", "lag-budget", "producers", "events", "filename", "faults", "static", "share"}, sizeFlagNames, knobFlags, loadFlagNames, liveFlagNames)
		for _, name := range alone {
			if cmd.Flags().Changed(name) {
				return nil, badFlag(name, errors.New("needs --family: the quick study has its own"))
			}
		}
		return p, p.quick()
	}
	if liveSource(f.source) {
		if err := refuseLoad(cmd); err != nil {
			return nil, err
		}
		return p, f.live(cmd, p, func() (*storm.Storm, error) {
			s, _, err := f.load(cmd)
			return s, err
		})
	}
	for _, name := range liveFlagNames {
		if cmd.Flags().Changed(name) {
			return nil, badFlag(name, fmt.Errorf("needs --source %s or %s", clusterSource, applySource))
		}
	}
	spec, err := f.loaded(cmd)
	if err != nil {
		return nil, err
	}
	p.defaultRounds(defaultRounds)
	if of := f.share.of; !of.Whole() {
		p.name = fmt.Sprintf("%s-share-%d-of-%d", p.name, of.Index, of.Of)
		p.notes = append(p.notes, balance(of, spec.Storm))
	}
	p.comparisons, err = compare(spec)
	return p, err
}

// loaded turns the flags into a comparison and loads its storm.
func (f *runFlags) loaded(cmd *cobra.Command) (pipeline.Config, error) {
	spec, err := f.spec()
	if err != nil {
		return pipeline.Config{}, err
	}
	var own []fault.Spec
	if spec.Storm, own, err = f.load(cmd); err != nil {
		return pipeline.Config{}, err
	}
	spec.Faults, spec.Static = slices.Concat(own, f.faultsOf), f.static
	return spec, nil
}

// inferFamily takes the family that a pipeline is for, where only that or the storm
// is named.
func (f *runFlags) inferFamily(cmd *cobra.Command) {
	given := cmd.Flags().Changed
	switch {
	case f.family != "" || !(given("pipeline") || given("storm")):
	case f.pipeline == pipeline.KubeletPipeline:
		f.family = string(impls.Merge)
	default:
		f.family = string(impls.DeltaFIFO)
	}
}

// faultNames are the faults, for the help.
func faultNames() string {
	var names []string
	for _, n := range fault.Names() {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}

// parseFaults reads what --faults was given.
func parseFaults(texts []string) ([]fault.Spec, error) {
	var specs []fault.Spec
	for _, text := range texts {
		more, err := fault.ParseAll(text)
		if err != nil {
			return nil, badFlag("faults", err)
		}
		specs = append(specs, more...)
	}
	return specs, nil
}

// faultSpecs reads --faults, and checks where it and --static stand.
func (f *runFlags) faultSpecs(cmd *cobra.Command) ([]fault.Spec, error) {
	specs, err := parseFaults(f.faults)
	if err != nil {
		return nil, err
	}
	switch {
	case len(specs) > 0 && f.source != source.APIServerName:
		return nil, badFlag("faults", fmt.Errorf("needs --source %s", source.APIServerName))
	case f.static < 0:
		return nil, badFlag("static", fmt.Errorf("%d is negative", f.static))
	case cmd.Flags().Changed("static") && f.pipeline != pipeline.KubeletPipeline:
		return nil, badFlag("static", fmt.Errorf("needs --pipeline %s", pipeline.KubeletPipeline))
	}
	return specs, nil
}

// load makes or reads the storm, and the faults that come with it; once only where
// it is asked for again, as sweeps do.
func (f *runFlags) load(cmd *cobra.Command) (*storm.Storm, []fault.Spec, error) {
	if err := f.storm.check(cmd); err != nil {
		return nil, nil, err
	}
	if m := f.made; m != nil && m.of == f.storm && m.seed == f.seed {
		return m.storm, m.faults, nil
	}
	set, err := f.storm.load(f.seed)
	if err != nil {
		return nil, nil, badFlag("storm", err)
	}
	if len(set.Faults) > 0 && f.source != source.APIServerName {
		return nil, nil, badFlag("storm", fmt.Errorf("%s has faults, which need --source %s", f.storm.name, source.APIServerName))
	}
	s, err := f.dress(cmd, set.Storms[0])
	if err != nil {
		return nil, nil, err
	}
	f.made = &made{of: f.storm, seed: f.seed, storm: s, faults: set.Faults}
	return s, set.Faults, nil
}

// made is a storm with what it was made from.
type made struct {
	of     stormFlags
	seed   int64
	storm  *storm.Storm
	faults []fault.Spec
}

// dress makes the storm's pods from the manifests, where there are any.
func (f *runFlags) dress(cmd *cobra.Command, s *storm.Storm) (*storm.Storm, error) {
	if len(f.filenames) == 0 {
		return s, nil
	}
	objects, err := manifest.Load(cmd.Context(), manifest.Options{Filenames: f.filenames, Recursive: f.recursive, Stdin: cmd.InOrStdin()})
	if err != nil {
		return nil, badFlag("filename", err)
	}
	templates, err := manifest.PodTemplates(objects)
	if err != nil {
		return nil, badFlag("filename", err)
	}
	if s, err = s.WithPods(templates); err != nil {
		return nil, badFlag("filename", err)
	}
	return s, nil
}

// spec turns the flags into a comparison, without the storm.
func (f runFlags) spec() (pipeline.Config, error) {
	none := pipeline.Config{}
	if !slices.Contains(families(), f.family) {
		return none, badFlag("family", oneOf(f.family, families()...))
	}
	if !slices.Contains(pipeline.Names(), f.pipeline) {
		return none, badFlag("pipeline", oneOf(f.pipeline, pipeline.Names()...))
	}
	if !slices.Contains(source.Names(), f.source) {
		return none, badFlag("source", oneOf(f.source, append(source.Names(), clusterSource, applySource)...))
	}
	s := pipeline.Config{
		Family: impls.Family(f.family), Pipeline: f.pipeline, Source: f.source,
		Modes: f.delivery, Producers: f.producers, Events: f.events, Knobs: f.knobs, Seed: f.seed,
		Share: f.share.of,
	}
	if !slices.Equal(f.impls, []string{allImpls}) {
		s.Impls = f.impls
	}
	if err := f.side.apply(&s); err != nil {
		return none, err
	}
	var err error
	if s.Budget, err = pace.ParseBudget(f.budget); err != nil {
		return none, badFlag("lag-budget", err)
	}
	for _, text := range f.paces {
		p, err := pace.Parse(text)
		if err != nil {
			return none, badFlag("pace", err)
		}
		if slices.ContainsFunc(s.Paces, func(o pace.Pace) bool { return o.String() == p.String() }) {
			return none, badFlag("pace", fmt.Errorf("%s stands there twice", text))
		}
		s.Paces = append(s.Paces, p)
	}
	return s, nil
}

// compare makes the comparisons of a spec.
func compare(s pipeline.Config) ([]lab.Comparison, error) {
	comparisons, err := pipeline.Compare(s)
	switch {
	case errors.Is(err, impls.ErrUnknownVariant):
		return nil, badFlag("impl", err)
	case err != nil:
		return nil, usageError{err}
	}
	return comparisons, nil
}

// plays is what a verb does that plans a run and plays it.
func plays(args []string, planned func(*cobra.Command) (*plan, error)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		p, err := planned(cmd)
		if err != nil {
			return err
		}
		p.args = args
		return p.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
}

// run plays the plan and shows what came out.
func (p *plan) run(ctx context.Context, stdout, stderr io.Writer) error {
	m := modeOf(ctx)
	if m.to != nil {
		return m.playOne(ctx, p.comparisons)
	}
	if m.resume != "" {
		p.dir = m.resume
	}
	if err := p.checkHow(); err != nil {
		return err
	}
	for _, note := range p.notes {
		fmt.Fprintf(stderr, "watchlab: %s\n", note)
	}
	session, err := p.telemetry.start(ctx, runName(p.name, p.dir, time.Now()), stderr)
	if err != nil {
		return err
	}
	err = p.play(ctx, session, stdout, stderr)
	if p.stays && (err == nil || errors.Is(err, errInvalid)) {
		fmt.Fprintf(stderr, "watchlab: the run is over; %s stays until Ctrl-C\n", session.URL())
		<-ctx.Done()
	}
	session.Close(ctx, err)
	return err
}

// play plays the plan, with a session that is told, or nil.
func (p *plan) play(ctx context.Context, session *telemetry.Session, stdout, stderr io.Writer) error {
	m := modeOf(ctx)
	opts := lab.Options{
		Name: p.name, Rounds: p.rounds, Budget: p.budget, Seed: p.seed, NoAA: p.noAA, Dir: p.dir,
		Build: build(), Args: p.args,
	}
	opts.Resume = m.resume != ""
	if p.memory {
		opts.Fresh = p.fresh
	}
	if len(p.profiles) > 0 {
		opts.Profile = profile.NewProfiler(p.dir, p.profiles)
	}
	status := newStatus(stderr)
	defer status.clear()
	opts.Progress = session.Progress(status.show)
	o, err := lab.Run(ctx, session.Watch(p.comparisons), opts)
	status.clear()
	if p.cleanup != nil {
		err = errors.Join(err, p.cleanup())
	}
	switch {
	case errors.Is(err, lab.ErrExists):
		return badFlag("out", err)
	case o == nil && m.resume != "":
		return badFlag("resume", err)
	case o == nil:
		return err
	}
	// What is finished is shown and kept even if the run came to grief.
	errs := []error{err, p.found(o), p.show(stdout, o)}
	if p.dir != "" {
		if werr := report.Write(p.dir, o); werr != nil {
			errs = append(errs, werr)
		} else {
			fmt.Fprintf(stderr, "watchlab: results are in %s\n", p.dir)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if failed := o.Failed(); len(failed) > 0 {
		for _, f := range failed {
			fmt.Fprintf(stderr, "watchlab: %s\n", f)
		}
		return errInvalid
	}
	if o.Interrupted {
		finished, all := measurements(o)
		fmt.Fprintf(stderr, "watchlab: interrupted; %d of %d measurements were finished and are kept\n", finished, all)
		return errInterrupted
	}
	return nil
}

// found puts into the outcome what was searched for, and into its folder.
func (p *plan) found(o *lab.Outcome) error {
	if p.finish == nil {
		return nil
	}
	// What a run had found that was taken up again is found anew.
	o.Knees, o.Scalings, o.Surfaces = nil, nil, nil
	err := p.finish(o)
	if p.dir != "" {
		err = errors.Join(err, o.Save(p.dir))
	}
	return err
}

// measurements counts the rounds of all cells: those that were finished, and
// those that were planned.
func measurements(o *lab.Outcome) (finished, all int) {
	for _, c := range o.Comparisons {
		for _, cl := range c.Cells {
			finished += len(cl.Rounds)
			all += o.RoundsOf(c)
		}
	}
	return finished, all
}

// today is the date of a results folder.
func today() string { return time.Now().Format(time.DateOnly) }
