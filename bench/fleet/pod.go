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

	namespace string
	cluster   *cluster.Cluster
}

// RunPod plays one share of a load Job. The environment names the pod. The error of an option is a
// [*manifest.Error] with its flag; a cancelled ctx ends the pod after the upload of what is finished.
func RunPod(ctx context.Context, o PodOptions) error {
	s := &jobPod{PodOptions: o}
	var err error
	if s.plan, err = ReadPlan(s.Plan); err != nil {
		return manifest.BadField("plan", err)
	}
	text := os.Getenv(IndexVar)
	s.index, err = strconv.Atoi(text)
	if err != nil || s.index < 0 || s.index >= s.plan.Pods {
		return &manifest.Error{Err: fmt.Errorf("%s is %q, where %s has pods 0 to %d", IndexVar, text, s.Plan, s.plan.Pods-1)}
	}
	spec, err := experiment.Parse(s.Plan+": experiment", s.plan.Experiment)
	if err != nil {
		return manifest.BadField("plan", err)
	}
	bad := func(err error) error { return manifest.BadField("plan", fmt.Errorf("%s: experiment: %w", s.Plan, err)) }
	if path, why := refusedField(&spec); path != "" {
		return bad(fmt.Errorf("%s is not for pods: %s", path, why))
	}
	if s.cluster, err = cluster.Connect(s.Kubeconfig, ""); err != nil {
		return manifest.BadField("kubeconfig", err)
	}
	s.namespace = cmp.Or(os.Getenv(NamespaceVar), s.cluster.Namespace)
	// A field that the quick experiment refuses, which has parts of its own.
	spec.Share = storm.Share{Index: s.index, Count: s.plan.Pods}.String()
	if spec.HasParts() {
		return bad(errors.New("an experiment with parts has several storms"))
	}
	cell.MeasureGCPrice() // before the storm is in the heap
	p, err := experiment.New(spec)
	if err != nil {
		return bad(err)
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

// Timeouts of the end of a pod. endLimit applies after an interruption.
const (
	uploadLimit = 5 * time.Minute
	endLimit    = 40 * time.Second
	leaveLimit  = 5 * time.Second
)

func (s *jobPod) play(ctx context.Context, p *experiment.Plan, session *telemetry.Session) (err error) {
	opts := p.Options
	opts.Name, opts.Build, opts.Args = s.plan.Run, s.Build, s.Args
	// The Job controller counts the earlier pods of this index.
	failures, _ := strconv.Atoi(os.Getenv(FailuresVar))
	ignored, _ := strconv.Atoi(os.Getenv(IgnoredVar))
	mine := lab.Share{
		Index: s.index, Of: s.plan.Pods, Pod: os.Getenv(PodVar), Node: os.Getenv(NodeVar), Attempt: failures + ignored, Whole: wholes(p.Comparisons),
	}
	if wait := s.plan.Barrier.Duration; wait > 0 {
		leases, failed := NewLeases(s.cluster.Config(), s.namespace)
		if failed != nil {
			return failed
		}
		b, failed := JoinBarrier(ctx, BarrierOptions{
			Leases: leases, Run: s.plan.Run, Self: s.index, Pods: s.plan.Pods, Plays: lab.Plays(p.Comparisons, opts), Wait: wait, Warn: s.Warn,
		})
		if failed != nil {
			return failed
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
			defer cancel()
			err = errors.Join(err, b.Leave(ctx, err == nil))
		}()
		opts.BeforeRun = func(ctx context.Context, p lab.Play) error {
			began, err := b.Meet(ctx, p.Position, fmt.Sprintf("round %d of %s", p.Round, p.Cell))
			if err == nil {
				began.Comparison, began.Cell, began.Round = p.Comparison, p.Cell, p.Round
				mine.Starts = append(mine.Starts, began)
			}
			return err
		}
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
