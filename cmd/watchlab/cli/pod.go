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

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/bench/report"
	"watchlab/bench/telemetry"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

const (
	podRole    = "pod"
	writerRole = "writer"
)

type podFlags struct {
	plan, role, kubeconfig, metricsAddr string
}

func newPod() *cobra.Command {
	f := podFlags{}
	cmd := &cobra.Command{
		Use:   "pod",
		Short: "Play one share of a load Job",
		Long: `pod plays one share of a load Job, starts each cell together with the other pods, and uploads
its result. watchlab cluster run writes the plan. The environment names the pod: ` + fleet.IndexVar + `,
and ` + fleet.PodVar + `, ` + fleet.NodeVar + ` and ` + fleet.NamespaceVar + ` if known.

Exit code: 0 after the upload, whatever the verdicts; 130 after an interruption, with
finished rounds uploaded.`,
		Example: `  ` + fleet.IndexVar + `=1 watchlab pod --plan plan.yaml --kubeconfig ~/.kube/config`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := f.open(cmd)
			if err != nil {
				return err
			}
			return s.run(cmd.Context())
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.plan, "plan", fleet.PlanFile, "plan of the run")
	fl.StringVar(&f.role, "role", podRole, "role: "+podRole+", "+writerRole)
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the service account)")
	fl.StringVar(&f.metricsAddr, "metrics-addr", fleet.MetricsAddr, "address of metrics and probes")
	return cmd
}

// jobPod is a pod of a load Job, or a writer.
type jobPod struct {
	flags podFlags
	plan  fleet.Plan
	index int // in the Job, from 0

	pod, node      string
	stdout, stderr io.Writer

	spec      experiment.Spec
	telemetry telemetryFlags

	cluster   *cluster.Cluster
	namespace string

	refused error // set if the API server rejected writes of the storm; no retry helps
}

func (f podFlags) open(cmd *cobra.Command) (*jobPod, error) {
	s := &jobPod{
		flags: f, pod: os.Getenv(fleet.PodVar), node: os.Getenv(fleet.NodeVar), namespace: os.Getenv(fleet.NamespaceVar),
		stdout: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(),
	}
	var err error
	if s.plan, err = fleet.ReadPlan(f.plan); err != nil {
		return nil, badFlag("plan", err)
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
	text := os.Getenv(fleet.IndexVar)
	s.index, err = strconv.Atoi(text)
	if err != nil || s.index < 0 || s.index >= count {
		return nil, usageError{fmt.Errorf("%s is %q, where %s has %ss 0 to %d", fleet.IndexVar, text, f.plan, f.role, count-1)}
	}
	if s.pod == "" {
		// The host name distinguishes this pod from a predecessor with the same index.
		host, _ := os.Hostname()
		s.pod = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
	return s, s.parse()
}

// podRefuses are fields of a Spec that pods of a load Job cannot use.
var podRefuses = map[string]string{
	"profiles": "pods have no results folder",
	"memory":   "a pod is one process",
	"share":    "each pod has its own",
	"budget":   "all pods play the same --rounds",
}

func (s *jobPod) parse() error {
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
	s.telemetry = telemetryFlags{addr: s.flags.metricsAddr, public: true, pyroscope: s.plan.Pyroscope}
	if err := s.telemetry.check(false); err != nil {
		return err
	}
	if s.plan.Mode == fleet.ModeSelf {
		s.spec.Share = storm.Share{Index: s.index, Count: s.plan.Pods}.String()
	}
	return nil
}

func refusedField(s *experiment.Spec, refuses map[string]string) (path, why string) {
	for _, f := range experiment.Given(s) {
		if why, refused := refuses[f.Path]; refused {
			return f.Path, why
		}
	}
	return "", ""
}

func (s *jobPod) bad(err error) error {
	return badFlag("plan", fmt.Errorf("%s: experiment: %w", s.flags.plan, err))
}

func (s *jobPod) connect() error {
	var err error
	if s.cluster, err = cluster.Connect(s.flags.kubeconfig, ""); err != nil {
		return badFlag("kubeconfig", err)
	}
	s.namespace = cmp.Or(s.namespace, s.cluster.Namespace)
	return nil
}

func (s *jobPod) run(ctx context.Context) error {
	if err := s.connect(); err != nil {
		return err
	}
	p, err := s.check(ctx)
	if err != nil {
		return s.bad(err)
	}
	// The health probes need this server, also while the pod waits at the barrier.
	session, err := s.telemetry.start(ctx, s.plan.Run, s.stderr)
	if err != nil {
		return err
	}
	if s.flags.role == writerRole {
		err = s.write(ctx)
	} else {
		err = s.play(ctx, p, session)
	}
	session.Close(ctx, err)
	return err
}

func (s *jobPod) warn(text string) { warn(s.stderr, "%s", text) }

func (s *jobPod) check(ctx context.Context) (*experiment.Plan, error) {
	if s.plan.Mode != fleet.ModeSelf {
		return experiment.NewLive(s.spec, pipeline.LiveConfig{})
	}
	if s.spec.HasParts() {
		return nil, errors.New("an experiment with parts has several storms")
	}
	cell.MeasureGCPrice() // before the storm is in the heap
	return experiment.New(ctx, s.spec, nil)
}

func (s *jobPod) options(p *experiment.Plan) lab.Options {
	opts := p.Options
	opts.Name, opts.Build, opts.Args = s.plan.Run, build(), os.Args[1:]
	return opts
}

func (s *jobPod) join(ctx context.Context, plays int) (*fleet.Barrier, error) {
	if s.plan.Barrier.Duration == 0 {
		return nil, nil
	}
	leases, err := fleet.NewLeases(s.cluster.Config(), s.namespace)
	if err != nil {
		return nil, err
	}
	self := s.index
	if s.flags.role == writerRole {
		self += s.plan.Pods
	}
	return fleet.JoinBarrier(ctx, fleet.BarrierOptions{
		Leases: leases, Run: s.plan.Run, Self: self, Pods: s.plan.Pods, Writers: s.plan.Writers,
		Plays: plays, Wait: s.plan.Barrier.Duration, Warn: s.warn,
	})
}

func leave(ctx context.Context, b *fleet.Barrier, done bool) error {
	if b == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	return b.Leave(ctx, done)
}

// Timeouts of the end of a pod. endLimit applies after an interruption.
const (
	uploadLimit = 5 * time.Minute
	endLimit    = 40 * time.Second
	leaveLimit  = 5 * time.Second
)

func (s *jobPod) play(ctx context.Context, p *experiment.Plan, session *telemetry.Session) (err error) {
	if s.plan.Mode != fleet.ModeSelf {
		if _, p, err = s.listen(ctx); err != nil {
			return err
		}
	}
	opts := s.options(p)
	b, err := s.join(ctx, lab.Plays(p.Comparisons, opts))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(ctx, b, err == nil)) }()
	mine := lab.Share{Index: s.index, Of: s.plan.Pods, Pod: s.pod, Node: s.node, Attempt: attempt(), Whole: wholes(p.Comparisons)}
	if b != nil {
		opts.BeforeRun = s.start(b, &mine.Starts)
	}
	status := newStatus(s.stderr)
	defer status.clear()
	opts.Progress = session.Progress(status.show)
	mine.Outcome, err = lab.Run(ctx, session.Watch(p.Comparisons), opts)
	session.Over(mine.Outcome)
	status.clear()
	if mine.Outcome == nil {
		return err
	}
	err = errors.Join(err, report.Table(s.stdout, mine.Outcome), s.upload(ctx, &mine))
	if err == nil && mine.Outcome.Interrupted {
		return errInterrupted
	}
	return errors.Join(err, s.refused)
}

// attempt returns the number of earlier pods of this index; 0 without the Job controller.
func attempt() int {
	failures, _ := strconv.Atoi(os.Getenv(fleet.FailuresVar))
	ignored, _ := strconv.Atoi(os.Getenv(fleet.IgnoredVar))
	return failures + ignored
}

// wholes returns the digests of the whole storms; nil if one has none.
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

func (s *jobPod) start(b *fleet.Barrier, starts *[]lab.Start) func(context.Context, lab.Play) error {
	return func(ctx context.Context, p lab.Play) error {
		what := fmt.Sprintf("round %d", p.Round)
		if p.Cell != "" {
			what += " of " + p.Cell
		}
		began, err := b.Meet(ctx, p.Position, what, 0)
		if err != nil {
			return err
		}
		start := lab.Start{Comparison: p.Comparison, Cell: p.Cell, Round: p.Round, Late: began.Late}
		for _, m := range began.Absent {
			if m >= s.plan.Pods {
				err = errors.Join(err, fmt.Errorf("writer %d is absent, and its share of the storm is missing", m-s.plan.Pods))
			} else {
				start.Absent = append(start.Absent, m)
			}
		}
		if began.Refused > 0 {
			refused := fmt.Errorf("%w: %d writes of the storm; the writers' logs have the first", lab.ErrRefused, began.Refused)
			s.refused, err = s.bad(refused), errors.Join(err, refused)
		}
		*starts = append(*starts, start)
		return err
	}
}

// upload uploads the result, also after an interruption.
func (s *jobPod) upload(ctx context.Context, mine *lab.Share) error {
	limit := uploadLimit
	if ctx.Err() != nil {
		limit = endLimit
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	maps, err := fleet.NewConfigMaps(s.cluster.Config(), s.namespace)
	size := 0
	if err == nil {
		size, err = maps.Upload(ctx, s.plan.Run, mine)
	}
	if err != nil {
		return fmt.Errorf("upload of the result: %w", err)
	}
	warn(s.stderr, "pod %d/%d uploaded %d bytes", s.index, s.plan.Pods, size)
	return nil
}
