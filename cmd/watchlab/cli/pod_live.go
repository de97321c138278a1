package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
)

func (s *jobPod) listen(ctx context.Context) (*experiment.Plan, error) {
	if s.plan.Mode == fleet.ModeSharedServer {
		return s.listenToServer(ctx)
	}
	_, p, err := s.listenToWriters(ctx)
	return p, err
}

const serverLimit = 2 * time.Minute // least time for the start of the simulated API server

func (s *jobPod) listenToServer(ctx context.Context) (*experiment.Plan, error) {
	token, err := os.ReadFile(s.flags.tokenFile)
	if err != nil {
		return nil, badFlag("token-file", err)
	}
	c, err := cluster.For(&rest.Config{Host: s.server(), BearerToken: strings.TrimSpace(string(token))})
	if err != nil {
		return nil, err
	}
	r, err := find(ctx, c, cmp.Or(s.spec.Cluster.Resource, "pods"), max(serverLimit, s.plan.Barrier.Duration))
	if err != nil {
		return nil, badFlag("resource", err)
	}
	lw, err := c.ListerWatcher(r, cluster.Scope{})
	if err != nil {
		return nil, err
	}
	turn := &turns{list: lw}
	stream := pipeline.LiveConfig{Stream: "shared-server-" + r.GroupVersionResource.Resource}
	stream.Open = func() (*cluster.Tee, error) {
		if err := turn.next(ctx); err != nil {
			return nil, err
		}
		return cluster.NewTee(c, r, cluster.Scope{Namespace: s.spec.Cluster.Namespace}, pipeline.LiveRoom)
	}
	return experiment.NewLive(s.spec, stream)
}

// turns follows the repetitions of the simulated API server, which restarts the storm when all
// pods have closed their watches. That ends every open watch, so a pod opens its next one after.
type turns struct {
	list cache.ListerWatcher
	// first is the server's resourceVersion at the first look. The version grows within a turn,
	// and a restart resets it.
	first uint64
	seen  bool
}

const turnLimit = time.Minute // timeout of a restart: the slowest pod delays it

// next waits until the server has restarted the storm.
func (t *turns) next(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, turnLimit, true, func(ctx context.Context) (bool, error) {
		at, err := t.version(ctx)
		if last = err; err != nil {
			return false, nil //nolint:nilerr // It may be unreachable during the restart.
		}
		if !t.seen {
			t.first, t.seen = at, true
		}
		last = fmt.Errorf("it is at version %d, and was at %d", at, t.first)
		return at <= t.first, nil
	})
	if err != nil {
		return fmt.Errorf("the simulated API server did not restart within %v: %w", turnLimit, cmp.Or(last, err))
	}
	return nil
}

func (t *turns) version(ctx context.Context) (uint64, error) {
	list, err := cache.ToListerWatcherWithContext(t.list).ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(m.GetResourceVersion(), 10, 64)
}

// server returns the Service's address from the pod's environment, else its DNS name.
func (s *jobPod) server() string {
	server := fleet.ServerName(s.plan.Run)
	name := strings.ReplaceAll(strings.ToUpper(server), "-", "_")
	host := cmp.Or(os.Getenv(name+"_SERVICE_HOST"), server)
	port := cmp.Or(os.Getenv(name+"_SERVICE_PORT"), strconv.Itoa(fleet.ServerPort))
	return "http://" + net.JoinHostPort(host, port)
}

// find retries while the API server is not up yet.
func find(ctx context.Context, c *cluster.Cluster, name string, within time.Duration) (r cluster.Resource, err error) {
	_ = wait.PollUntilContextTimeout(ctx, 500*time.Millisecond, within, true, func(context.Context) (bool, error) {
		var unreachable net.Error
		r, err = c.Resource(name)
		return !errors.As(err, &unreachable), nil
	})
	return r, cmp.Or(ctx.Err(), err)
}

func (s *jobPod) listenToWriters(ctx context.Context) (experiment.Written, *experiment.Plan, error) {
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
	w, p, err := s.listenToWriters(ctx)
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
