package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

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
	writer, err := cluster.NewWriter(s.cluster, w.Resource, fleet.WriterRun(s.plan.Run, s.index))
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
	warn(s.stderr, "writer %d/%d: %d events written of %d, %d refused, %d late, %v at most",
		s.index, s.plan.Writers, w.Applied+w.Deleted, len(part.Events), w.Refused, w.Late, w.LagMax)
	switch {
	case ctx.Err() != nil:
		return w, errInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return w, nil // The report shows the unwritten events.
	case err != nil:
		return w, err
	}
	// Its events belong to the round: wait for the end.
	<-window.Done()
	if ctx.Err() != nil {
		return w, errInterrupted
	}
	return w, nil
}
