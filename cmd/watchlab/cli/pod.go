package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/fleet"
	"watchlab/bench/fleet/barrier"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
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
	fl.StringVar(&f.metricsAddr, "metrics-addr", fleet.MetricsAddr, "host:port to serve metrics and probes on, from the start; that of the plan's flags comes first")
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

	playing *runFlags
	given   *cobra.Command

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
		return nil, badFlag("role", oneOf(f.role, podRole, writerRole))
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

// shardRefuses are the flags of run that are not for shards.
var shardRefuses = map[string]string{
	"out":     "results go where the plan's upload says",
	"resume":  "a shard that fails is begun again",
	"profile": "profiles are files of a results folder, which shards have none of",
	"memory":  "a pod is a process of its own already",
	"share":   "each shard gets its own",
	"budget":  "all shards have to play the same rounds: --rounds says how many",
}

// parse reads the plan's flags.
func (s *shard) parse() error {
	s.playing = &runFlags{}
	s.given = &cobra.Command{Use: "run"}
	s.playing.addAll(s.given)
	if err := s.given.ParseFlags(s.plan.Args); err != nil {
		return s.bad(err)
	}
	if rest := s.given.Flags().Args(); len(rest) > 0 {
		return s.bad(fmt.Errorf("run takes no argument %q, only flags", rest[0]))
	}
	var err error
	s.given.Flags().Visit(func(fl *pflag.Flag) {
		if why, refused := shardRefuses[fl.Name]; refused && err == nil {
			err = s.bad(fmt.Errorf("--%s is not for shards: %s", fl.Name, why))
		}
	})
	if err != nil {
		return err
	}
	switch f := s.playing; {
	case s.plan.Mode == fleet.ModeSelf && liveSource(f.source):
		return s.bad(fmt.Errorf("--source %s is not for mode %s", f.source, s.plan.Mode))
	case s.plan.Mode != fleet.ModeSelf && s.given.Flags().Changed("source") && f.source != clusterSource:
		return s.bad(fmt.Errorf("--source %s is not for mode %s", f.source, s.plan.Mode))
	}
	if s.playing.telemetry.addr == "" {
		s.playing.telemetry.addr = s.flags.metricsAddr
	}
	if s.plan.Mode != fleet.ModeSelf {
		return nil
	}
	return s.given.Flags().Set("share", share.Of{Index: s.index, Of: s.plan.Pods}.String())
}

// bad says that the plan is wrong.
func (s *shard) bad(err error) error {
	return badFlag("plan", fmt.Errorf("%s: args: %w", s.flags.plan, err))
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
	s.given.SetContext(ctx)
	if err := s.connect(); err != nil {
		return err
	}
	sink, err := s.way.Sink(upload.Environment{Client: s.client, Namespace: s.namespace, Log: stdout, Getenv: os.Getenv})
	if err != nil {
		return badFlag("plan", fmt.Errorf("%s: deliver: %w", s.flags.plan, err))
	}
	p, err := s.check()
	if err != nil {
		return err
	}
	for _, note := range p.notes {
		fmt.Fprintf(stderr, "watchlab: %s\n", note)
	}
	// Probes are answered from here on, while it waits, too.
	session, err := p.telemetry.start(ctx, s.plan.Run, stderr)
	if err != nil {
		return err
	}
	switch {
	case s.flags.role == writerRole:
		err = s.write(ctx, p, stderr)
	default:
		err = s.play(ctx, p, session, sink, stdout, stderr)
	}
	session.Close(ctx, err)
	return err
}

// check plans what can be planned without the cluster.
func (s *shard) check() (*plan, error) {
	if s.plan.Mode == fleet.ModeSelf {
		return s.playing.plan(s.given)
	}
	s.playing.source = clusterSource
	if s.plan.Mode == fleet.ModeSharedServer {
		s.playing.faults = nil // They are the server's.
	}
	p, err := s.playing.check(s.given)
	if err != nil {
		return nil, err
	}
	if s.playing.family == "" {
		s.playing.family = defaultFamily
	}
	return p, s.playing.checkLive(s.given)
}

// options are what the shard's run is played with.
func (s *shard) options(p *plan) lab.Options {
	return lab.Options{
		Name: s.plan.Run, Rounds: p.rounds, Seed: p.seed, NoAA: p.noAA, Build: build(),
		Args: slices.Concat([]string{"run"}, s.plan.Args),
	}
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
func (s *shard) play(ctx context.Context, p *plan, session *telemetry.Session, sink upload.Sink, stdout, stderr io.Writer) (err error) {
	if err := s.listen(ctx, p); err != nil {
		return err
	}
	opts := s.options(p)
	b, err := s.join(ctx, lab.Plays(p.comparisons, opts), stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(ctx, b, err == nil)) }()
	mine := lab.Share{Index: s.index, Of: s.plan.Pods, Pod: s.pod, Node: s.node, Whole: wholes(p.comparisons)}
	if b != nil {
		mine.Attempt = b.Attempt()
		opts.Gate = s.gate(b, &mine.Starts)
	}
	status := newStatus(stderr)
	defer status.clear()
	opts.Progress = session.Progress(status.show)
	mine.Outcome, err = lab.Run(ctx, session.Watch(p.comparisons), opts)
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
