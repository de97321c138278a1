package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"watchlab/bench/cell"
	"watchlab/bench/experiment"
	"watchlab/bench/lab"
	"watchlab/bench/telemetry"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

// PodOptions configure a pod of a load Job.
type PodOptions struct {
	Plan       string // path of the plan
	Kubeconfig string // empty for the service account
	Build      lab.Build
	Args       []string // command line, for the results

	// Telemetry starts the server of metrics and health probes, and pprof profiles to a Pyroscope URL.
	Telemetry func(ctx context.Context, run, pyroscope string) (*telemetry.Session, error)
	Progress  func(lab.Progress)
	Warn      func(text string)
}

// jobPod is a pod of a load Job.
type jobPod struct {
	PodOptions
	plan  Plan
	index int // in the Job, from 0

	pod, node, namespace string
	spec                 experiment.Spec
	cluster              *cluster.Cluster
}

// RunPod plays one share of a load Job. The environment names the pod. The error of an option is a
// [*manifest.Error] with its flag; a cancelled ctx ends the pod after the upload of what is finished.
func RunPod(ctx context.Context, o PodOptions) error {
	s, err := openPod(o)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

func openPod(o PodOptions) (*jobPod, error) {
	s := &jobPod{PodOptions: o, pod: os.Getenv(PodVar), node: os.Getenv(NodeVar), namespace: os.Getenv(NamespaceVar)}
	var err error
	if s.plan, err = ReadPlan(o.Plan); err != nil {
		return nil, manifest.BadField("plan", err)
	}
	text := os.Getenv(IndexVar)
	s.index, err = strconv.Atoi(text)
	if err != nil || s.index < 0 || s.index >= s.plan.Pods {
		return nil, &manifest.Error{Err: fmt.Errorf("%s is %q, where %s has pods 0 to %d", IndexVar, text, o.Plan, s.plan.Pods-1)}
	}
	return s, s.parse()
}

func (s *jobPod) parse() error {
	var err error
	if s.spec, err = experiment.Parse(s.Plan+": experiment", s.plan.Experiment); err != nil {
		return manifest.BadField("plan", err)
	}
	if path, why := refusedField(&s.spec); path != "" {
		return s.bad(fmt.Errorf("%s is not for pods: %s", path, why))
	}
	s.spec.Share = storm.Share{Index: s.index, Count: s.plan.Pods}.String()
	return nil
}

func (s *jobPod) bad(err error) error {
	return manifest.BadField("plan", fmt.Errorf("%s: experiment: %w", s.Plan, err))
}

func (s *jobPod) run(ctx context.Context) error {
	var err error
	if s.cluster, err = cluster.Connect(s.Kubeconfig, ""); err != nil {
		return manifest.BadField("kubeconfig", err)
	}
	s.namespace = cmp.Or(s.namespace, s.cluster.Namespace)
	p, err := s.check()
	if err != nil {
		return s.bad(err)
	}
	// The health probes need this server, also while the pod waits at the barrier.
	session, err := s.Telemetry(ctx, s.plan.Run, s.plan.Pyroscope)
	if err != nil {
		return err
	}
	err = s.play(ctx, p, session)
	session.Close(ctx, err)
	return err
}

func (s *jobPod) check() (*experiment.Plan, error) {
	if s.spec.HasParts() {
		return nil, errors.New("an experiment with parts has several storms")
	}
	cell.MeasureGCPrice() // before the storm is in the heap
	return experiment.New(s.spec)
}

func (s *jobPod) join(ctx context.Context, plays int) (*Barrier, error) {
	if s.plan.Barrier.Duration == 0 {
		return nil, nil
	}
	leases, err := NewLeases(s.cluster.Config(), s.namespace)
	if err != nil {
		return nil, err
	}
	return JoinBarrier(ctx, BarrierOptions{
		Leases: leases, Run: s.plan.Run, Self: s.index, Pods: s.plan.Pods,
		Plays: plays, Wait: s.plan.Barrier.Duration, Warn: s.Warn,
	})
}

func leave(ctx context.Context, b *Barrier, done bool) error {
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
	opts := p.Options
	opts.Name, opts.Build, opts.Args = s.plan.Run, s.Build, s.Args
	b, err := s.join(ctx, lab.Plays(p.Comparisons, opts))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, leave(ctx, b, err == nil)) }()
	mine := lab.Share{Index: s.index, Of: s.plan.Pods, Pod: s.pod, Node: s.node, Attempt: attempt(), Whole: wholes(p.Comparisons)}
	if b != nil {
		opts.BeforeRun = s.start(b, &mine.Starts)
	}
	opts.Progress = session.Progress(s.Progress)
	mine.Outcome, err = lab.Run(ctx, session.Watch(p.Comparisons), opts)
	session.Over(mine.Outcome)
	if mine.Outcome == nil {
		return err
	}
	err = errors.Join(err, s.upload(ctx, &mine))
	if err == nil && mine.Outcome.Interrupted {
		return context.Canceled
	}
	return err
}

// attempt returns the number of earlier pods of this index; 0 without the Job controller.
func attempt() int {
	failures, _ := strconv.Atoi(os.Getenv(FailuresVar))
	ignored, _ := strconv.Atoi(os.Getenv(IgnoredVar))
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

func (s *jobPod) start(b *Barrier, starts *[]lab.Start) func(context.Context, lab.Play) error {
	return func(ctx context.Context, p lab.Play) error {
		began, err := b.Meet(ctx, p.Position, fmt.Sprintf("round %d of %s", p.Round, p.Cell))
		if err != nil {
			return err
		}
		began.Comparison, began.Cell, began.Round = p.Comparison, p.Cell, p.Round
		*starts = append(*starts, began)
		return nil
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
	maps, err := NewConfigMaps(s.cluster.Config(), s.namespace)
	size := 0
	if err == nil {
		size, err = maps.Upload(ctx, s.plan.Run, mine)
	}
	if err != nil {
		return fmt.Errorf("upload of the result: %w", err)
	}
	s.Warn(fmt.Sprintf("pod %d/%d uploaded %d bytes", s.index, s.plan.Pods, size))
	return nil
}
