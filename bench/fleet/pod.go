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
	"watchlab/bench/pipeline"
	"watchlab/bench/telemetry"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

// The roles of a pod.
const (
	PodRole    = "pod"
	WriterRole = "writer"
)

// PodOptions configure a pod of a load Job, or a writer.
type PodOptions struct {
	Plan       string // path of the plan
	Role       string // [PodRole] or [WriterRole]
	Kubeconfig string // empty for the service account
	Build      lab.Build
	Args       []string // command line, for the results

	// Telemetry starts the server of metrics and health probes, and pprof profiles to a Pyroscope URL.
	Telemetry func(ctx context.Context, run, pyroscope string) (*telemetry.Session, error)
	Progress  func(lab.Progress)
	Warn      func(text string)
}

// jobPod is a pod of a load Job, or a writer.
type jobPod struct {
	PodOptions
	plan  Plan
	index int // in the Job, from 0

	pod, node, namespace string
	spec                 experiment.Spec
	cluster              *cluster.Cluster

	refused error // set if the API server rejected writes of the storm; no retry helps
}

// RunPod plays one share of a load Job, or writes it. The environment names the pod. The error of an option is a
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
	count := s.plan.Pods
	switch {
	case o.Role == WriterRole && s.plan.Mode == ModeCluster:
		count = s.plan.Writers
	case o.Role == WriterRole:
		return nil, manifest.BadField("role", fmt.Errorf("mode %s has no writers", s.plan.Mode))
	case o.Role != PodRole:
		return nil, manifest.BadField("role", experiment.OneOf(o.Role, PodRole, WriterRole))
	}
	text := os.Getenv(IndexVar)
	s.index, err = strconv.Atoi(text)
	if err != nil || s.index < 0 || s.index >= count {
		return nil, &manifest.Error{Err: fmt.Errorf("%s is %q, where %s has %ss 0 to %d", IndexVar, text, o.Plan, o.Role, count-1)}
	}
	return s, s.parse()
}

func (s *jobPod) parse() error {
	var err error
	if s.spec, err = experiment.Parse(s.Plan+": experiment", s.plan.Experiment); err != nil {
		return manifest.BadField("plan", err)
	}
	if path, why := refusedField(&s.spec, podRefuses); path != "" {
		return s.bad(fmt.Errorf("%s is not for pods: %s", path, why))
	}
	if live := s.spec.Source == experiment.ClusterSource || s.spec.Source == experiment.ApplySource; live != (s.plan.Mode != ModeSelf) {
		return s.bad(fmt.Errorf("source %s is not for mode %s", cmp.Or(s.spec.Source, "memory"), s.plan.Mode))
	}
	if s.plan.Mode == ModeSelf {
		s.spec.Share = storm.Share{Index: s.index, Count: s.plan.Pods}.String()
	}
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
	p, err := s.check(ctx)
	if err != nil {
		return s.bad(err)
	}
	// The health probes need this server, also while the pod waits at the barrier.
	session, err := s.Telemetry(ctx, s.plan.Run, s.plan.Pyroscope)
	if err != nil {
		return err
	}
	if s.Role == WriterRole {
		err = s.write(ctx)
	} else {
		err = s.play(ctx, p, session)
	}
	session.Close(ctx, err)
	return err
}

func (s *jobPod) check(ctx context.Context) (*experiment.Plan, error) {
	if s.plan.Mode != ModeSelf {
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
	opts.Name, opts.Build, opts.Args = s.plan.Run, s.Build, s.Args
	return opts
}

func (s *jobPod) join(ctx context.Context, plays int) (*Barrier, error) {
	if s.plan.Barrier.Duration == 0 {
		return nil, nil
	}
	leases, err := NewLeases(s.cluster.Config(), s.namespace)
	if err != nil {
		return nil, err
	}
	self := s.index
	if s.Role == WriterRole {
		self += s.plan.Pods
	}
	return JoinBarrier(ctx, BarrierOptions{
		Leases: leases, Run: s.plan.Run, Self: self, Pods: s.plan.Pods, Writers: s.plan.Writers,
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
	if s.plan.Mode != ModeSelf {
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
	return errors.Join(err, s.refused)
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

// listen returns the storm of the writers, and the plan of a pod that watches it.
func (s *jobPod) listen(ctx context.Context) (experiment.Written, *experiment.Plan, error) {
	w, err := s.spec.Written(ctx, s.cluster)
	if err != nil {
		return w, nil, s.bad(err)
	}
	p, err := experiment.NewLive(s.spec, pipeline.LiveConfig{Stream: w.Storm.Name, Open: func() (*cluster.Tee, error) {
		return cluster.NewTee(s.cluster, w.Resource, cluster.Scope{Selector: s.plan.WrittenBy()}, pipeline.LiveRoom)
	}})
	return w, p, err
}

// write writes its share of the storm in each round, and deletes it afterwards.
func (s *jobPod) write(ctx context.Context) (err error) {
	// Writers play as many rounds as the pods do.
	w, p, err := s.listen(ctx)
	if err != nil {
		return err
	}
	mine := storm.Share{Index: s.index, Count: s.plan.Writers}
	part := w.Storm.Select(0, mine.Has)
	writer, err := cluster.NewWriter(s.cluster, w.Resource, WriterRun(s.plan.Run, s.index))
	if err != nil {
		return s.bad(err)
	}
	plays := lab.Plays(p.Comparisons, s.options(p))
	b, err := s.join(ctx, plays)
	if err != nil {
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), experiment.CleanLimit)
		defer cancel()
		err = errors.Join(err, writer.Clean(clean), leave(ctx, b, err == nil))
	}()
	var refused int64
	var first error
	for at := 0; at < plays; at++ {
		if err := writer.Clear(ctx); err != nil {
			return err
		}
		if b != nil {
			began, err := b.Meet(ctx, at, fmt.Sprintf("writing, round %d", at), refused)
			if err != nil {
				return err
			}
			// A restarted writer continues at the round of the other pods.
			at = max(at, began.Position)
		}
		written, err := s.writeOnce(ctx, writer, part, w.Rate, p.Spec.Cluster.For.Duration)
		if err != nil {
			return err
		}
		refused, first = refused+written.Refused, cmp.Or(first, written.FirstRefusal)
	}
	if refused > 0 {
		return s.bad(fmt.Errorf("%w: %d writes of the storm, so the run is invalid; the first: %w", lab.ErrRefused, refused, first))
	}
	return nil
}

func (s *jobPod) writeOnce(ctx context.Context, writer *cluster.Writer, part storm.Selection, rate pace.Rate, round time.Duration) (cluster.Written, error) {
	window, cancel := context.WithTimeout(ctx, round)
	defer cancel()
	w, err := writer.Play(window, part.Storm, part.Schedule(rate))
	s.Warn(fmt.Sprintf("writer %d/%d: %d events written of %d, %d refused, %d late, %v at most",
		s.index, s.plan.Writers, w.Applied+w.Deleted, len(part.Events), w.Refused, w.Late, w.LagMax))
	switch {
	case ctx.Err() != nil:
		return w, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return w, nil // The report shows the unwritten events.
	case err != nil:
		return w, err
	}
	// Its events belong to the round: wait for the end.
	<-window.Done()
	if ctx.Err() != nil {
		return w, ctx.Err()
	}
	return w, nil
}
