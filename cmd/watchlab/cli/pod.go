package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/fleet/barrier"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/report"
	"watchlab/bench/telemetry"
	"watchlab/loadgen/share"
)

// The roles of a pod.
const (
	podRole    = "pod"
	writerRole = "writer"
)

// podFlags are the flags of shard.
type podFlags struct {
	plan        string
	role        string
	tokenFile   string
	kubeconfig  string
	metricsAddr string
}

func newPod() *cobra.Command {
	f := podFlags{}
	cmd := &cobra.Command{
		Use:   "pod",
		Short: "Be one of the shards of a run: what the pods of its Job do",
		Long: `pod plays one shard's part of a run, waits for the others before each play, and
delivers what it measured. It is what the pods of an Indexed Job run, but does so
anywhere: the plan says what is played (see watchlab cluster run, which writes it),
and the environment which shard this is: ` + fleet.IndexVar + `, and
` + fleet.PodVar + `, ` + fleet.NodeVar + ` and ` + fleet.NamespaceVar + ` where that is known.

In mode self a shard plays its share of the storm; in mode shared-server it watches
the simulated API server of the run; in mode cluster it watches what the writers of the
run make in the cluster, and with --role writer it is one of them.

Exit code: 0 once the result is delivered, whatever the verdicts in it say; 1 if
something failed; 2 for bad input; 130 if it was ended before its time, with what was
finished delivered.`,
		Example: `  # The second of four shards, by hand
  ` + fleet.IndexVar + `=1 watchlab pod --plan plan.yaml --kubeconfig ~/.kube/config`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.shard(os.LookupEnv)
			if err != nil {
				return err
			}
			return s.run(cmd)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.plan, "plan", fleet.PlanFile, "the run's plan")
	fl.StringVar(&f.role, "role", podRole, "what this pod is: "+podRole+", or "+writerRole+" in mode cluster")
	fl.StringVar(&f.tokenFile, "token-file", fleet.TokenFile, "file with the token of the simulated API server, in mode shared-server")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account; elsewhere as kubectl finds it)")
	fl.StringVar(&f.metricsAddr, "metrics-addr", fleet.MetricsAddr, "host:port to serve metrics and probes on, from the start")
	return cmd
}

// shard is one of the shards, or writers, of a run.
type shard struct {
	flags     podFlags
	plan      fleet.Plan
	way       upload.Target
	index     int
	pod, node string
	lookup    func(string) (string, bool)

	spec      experiment.Spec
	telemetry telemetryFlags

	config    *rest.Config
	client    kubernetes.Interface
	namespace string
}

// shard reads the plan, and which shard this is of it.
func (f podFlags) shard(lookup func(string) (string, bool)) (*shard, error) {
	s := &shard{flags: f, lookup: lookup}
	var err error
	if s.plan, err = fleet.ReadPlan(f.plan); err != nil {
		return nil, badFlag("plan", err)
	}
	if s.way, err = upload.ParseTarget(s.plan.Upload); err != nil {
		return nil, badFlag("plan", fmt.Errorf("%s: %w", f.plan, err))
	}
	count := s.plan.Pods
	switch {
	case f.role == writerRole && s.plan.Mode == fleet.ModeCluster:
		count = s.plan.Writers
	case f.role == writerRole:
		return nil, badFlag("role", fmt.Errorf("mode %s has no writers", s.plan.Mode))
	case f.role != podRole:
		return nil, badFlag("role", experiment.OneOf(f.role, podRole, writerRole))
	}
	text, _ := lookup(fleet.IndexVar)
	s.index, err = strconv.Atoi(text)
	if err != nil || s.index < 0 || s.index >= count {
		return nil, usageError{fmt.Errorf("%s is %q, where %s has %ss 0 to %d", fleet.IndexVar, text, f.plan, f.role, count-1)}
	}
	s.node, _ = lookup(fleet.NodeVar)
	s.namespace, _ = lookup(fleet.NamespaceVar)
	if s.pod, _ = lookup(fleet.PodVar); s.pod == "" {
		// Whoever it is, it is not the other one with this index.
		host, _ := os.Hostname()
		s.pod = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	return s, s.parse()
}

// podRefuses are the fields of a Spec that pods of a load Job have no use for.
var podRefuses = map[string]string{
	"profiles": "profiles are files of a results folder, which pods have none of",
	"memory":   "a pod is a process of its own already",
	"share":    "each pod gets its own",
	"budget":   "all pods have to play the same rounds: --rounds says how many",
}

// parse reads the plan's experiment.
func (s *shard) parse() error {
	var err error
	if s.spec, err = experiment.Parse(s.flags.plan+": experiment", s.plan.Experiment); err != nil {
		return badFlag("plan", err)
	}
	if path, why := refusedField(&s.spec, podRefuses); path != "" {
		return s.bad(fmt.Errorf("%s is not for pods: %s", path, why))
	}
	if live := s.spec.Source == experiment.ClusterSource || s.spec.Source == experiment.ApplySource; live != (s.plan.Mode != fleet.ModeSelf) {
		return s.bad(fmt.Errorf("source %s is not for mode %s", cmp.Or(s.spec.Source, "memory"), s.plan.Mode))
	}
	s.telemetry = telemetryFlags{addr: s.flags.metricsAddr, push: s.plan.PushMetrics, pyroscope: s.plan.Pyroscope}
	if err := s.telemetry.check(false); err != nil {
		return err
	}
	if s.plan.Mode == fleet.ModeSelf {
		s.spec.Share = share.Of{Index: s.index, Of: s.plan.Pods}.String()
	}
	return nil
}

// refusedField returns the first field that has a value, and is refused.
func refusedField(s *experiment.Spec, refuses map[string]string) (path, why string) {
	for _, f := range experiment.Given(s) {
		if why, refused := refuses[f.Path]; refused {
			return f.Path, why
		}
	}
	return "", ""
}

// bad says that the plan is wrong.
func (s *shard) bad(err error) error {
	return badFlag("plan", fmt.Errorf("%s: experiment: %w", s.flags.plan, err))
}

// connect makes the client of the cluster that the run is in, where it needs one.
func (s *shard) connect() error {
	if s.plan.Barrier.Duration == 0 && s.way.Kind != upload.ConfigMapTarget && s.plan.Mode != fleet.ModeCluster {
		return nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = s.flags.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	config, err := loaded.ClientConfig()
	if err != nil {
		return badFlag("kubeconfig", err)
	}
	if s.namespace == "" {
		if s.namespace, _, err = loaded.Namespace(); err != nil {
			return badFlag("kubeconfig", err)
		}
	}
	config.QPS = -1
	config.UserAgent = "watchlab-shard"
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		return badFlag("kubeconfig", err)
	}
	s.config = config
	return nil
}

// run plays this shard's part.
func (s *shard) run(cmd *cobra.Command) error {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := s.connect(); err != nil {
		return err
	}
	sink, err := s.way.Sink(upload.Environment{Client: s.client, Namespace: s.namespace, Log: stdout, Getenv: os.Getenv})
	if err != nil {
		return badFlag("plan", fmt.Errorf("%s: deliver: %w", s.flags.plan, err))
	}
	p, err := s.check(ctx)
	if err != nil {
		return s.bad(err)
	}
	for _, note := range p.Notes {
		fmt.Fprintf(stderr, "watchlab: %s\n", note)
	}
	// Probes are answered from here on, while it waits, too.
	session, err := s.telemetry.start(ctx, s.plan.Run, stderr)
	if err != nil {
		return err
	}
	switch {
	case s.flags.role == writerRole:
		err = s.write(ctx, stderr)
	default:
		err = s.play(ctx, p, session, sink, stdout, stderr)
	}
	session.Close(ctx, err)
	return err
}

// check plans what can be planned without the cluster.
func (s *shard) check(ctx context.Context) (*experiment.Plan, error) {
	if s.plan.Mode != fleet.ModeSelf {
		return experiment.NewLive(s.spec, pipeline.LiveConfig{})
	}
	p, err := experiment.New(ctx, s.spec, nil)
	if err == nil && len(p.Spec.Parts) > 0 {
		err = errors.New("an experiment with parts has no storm to share")
	}
	return p, err
}

// options are what the shard's run is played with.
func (s *shard) options(p *experiment.Plan) lab.Options {
	opts := p.Options
	opts.Name, opts.Build, opts.Args = s.plan.Run, build(), os.Args[1:]
	return opts
}

// join joins the others, where they wait for each other.
func (s *shard) join(ctx context.Context, plays int, stderr io.Writer) (*barrier.Barrier, error) {
	if s.plan.Barrier.Duration == 0 {
		return nil, nil
	}
	return barrier.Join(ctx, barrier.Options{
		Client: s.client, Namespace: s.namespace, Run: s.plan.Run,
		Self: barrier.Member{Writer: s.flags.role == writerRole, Index: s.index}, Holder: s.pod,
		Pods: s.plan.Pods, Writers: s.plan.Writers, Plays: plays, Wait: s.plan.Barrier.Duration,
		Warn: func(text string) { fmt.Fprintf(stderr, "watchlab: %s\n", text) },
	})
}

// leave has nobody wait any more. The run is over, however it goes.
func leave(ctx context.Context, b *barrier.Barrier, done bool) error {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	return b.Leave(ctx, done)
}

// How long the end of a shard may take, which may have to be one before its time.
const (
	deliverLimit = 5 * time.Minute
	endLimit     = 40 * time.Second
	leaveLimit   = 5 * time.Second
)

// play plays the comparisons, and delivers what came of them.
func (s *shard) play(ctx context.Context, p *experiment.Plan, session *telemetry.Session, sink upload.Sink, stdout, stderr io.Writer) (err error) {
	if s.plan.Mode != fleet.ModeSelf {
		if p, err = s.listen(ctx); err != nil {
			return err
		}
	}
	opts := s.options(p)
	b, err := s.join(ctx, lab.Plays(p.Comparisons, opts), stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(ctx, b, err == nil)) }()
	mine := lab.Share{Index: s.index, Of: s.plan.Pods, Pod: s.pod, Node: s.node, Whole: wholes(p.Comparisons)}
	if b != nil {
		mine.Attempt = b.Attempt()
		opts.BeforeRun = s.gate(b, &mine.Starts)
	}
	status := newStatus(stderr)
	defer status.clear()
	opts.Progress = session.Progress(status.show)
	mine.Outcome, err = lab.Run(ctx, session.Watch(p.Comparisons), opts)
	status.clear()
	if mine.Outcome == nil {
		return err
	}
	err = errors.Join(err, report.Table(stdout, mine.Outcome), s.deliver(ctx, sink, &mine, stderr))
	if err == nil && mine.Outcome.Interrupted {
		return errInterrupted
	}
	return err
}

// wholes are the digests of what all shards play; nil where it has none.
func wholes(comparisons []lab.Comparison) []string {
	var all []string
	for _, c := range comparisons {
		if c.Whole == "" {
			return nil
		}
		all = append(all, c.Whole)
	}
	return all
}

// gate has each play wait for the others, and notes how it began.
func (s *shard) gate(b *barrier.Barrier, starts *[]lab.Start) func(context.Context, lab.Play) error {
	return func(ctx context.Context, p lab.Play) error {
		what := fmt.Sprintf("round %d", p.Round)
		if p.Cell != "" {
			what += " of " + p.Cell
		}
		began, err := b.Meet(ctx, p.Position, what)
		if err != nil {
			return err
		}
		start := lab.Start{Comparison: p.Comparison, Cell: p.Cell, Round: p.Round, Late: began.Late}
		for _, m := range began.Absent {
			if m.Writer {
				err = errors.Join(err, fmt.Errorf("%v did not come, whose part of the storm would be missing", m))
			} else {
				start.Absent = append(start.Absent, m.Index)
			}
		}
		*starts = append(*starts, start)
		return err
	}
}

// deliver hands over what was measured, even if the run was ended before its time.
func (s *shard) deliver(ctx context.Context, sink upload.Sink, mine *lab.Share, stderr io.Writer) error {
	limit := deliverLimit
	if ctx.Err() != nil {
		limit = endLimit
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	bundle, err := upload.Encode(s.plan.Run, mine)
	if err == nil {
		err = sink.Upload(ctx, bundle)
	}
	if err != nil {
		return fmt.Errorf("the result could not be delivered: %w", err)
	}
	fmt.Fprintf(stderr, "watchlab: shard %d/%d delivered %d bytes to %s\n", s.index, s.plan.Pods, len(bundle.Data), s.way.Kind)
	return nil
}
