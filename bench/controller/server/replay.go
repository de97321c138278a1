package server

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/storm"
)

// writers is the number of connections that play a storm. The events of a key stay in order.
const writers = 16

// replay writes a part of a storm to a server that takes no events, but requests: an event is a create, a patch of what has
// changed, of the status apart, or a delete.
type replay struct {
	*writer
	storm *storm.Storm
	part  int                                   // of the keys
	last  map[string]*unstructured.Unstructured // by key
}

// createStorms writes the initial states of the storms.
func (s *real) createStorms(w *writer) error {
	for _, prepared := range s.setup.Storms {
		st := prepared.Storm()
		made := map[string]bool{}
		for i := range st.Events {
			if namespace, _ := apart(st.Events[i].Key); !made[namespace] {
				made[namespace] = true
				if err := s.ensure(w, namespace); err != nil {
					return err
				}
			}
		}
		for part := range writers {
			one, err := s.writer(record.ByStorm)
			if err != nil {
				return err
			}
			s.replays = append(s.replays, &replay{one, st, part, map[string]*unstructured.Unstructured{}})
		}
	}
	return s.replay(s.ctx, true)
}

// Play plays the storms as open loops: an event that is late does not delay those of other keys.
func (s *real) Play(ctx context.Context) error { return s.replay(ctx, false) }

func (s *real) replay(ctx context.Context, initial bool) error {
	var wg sync.WaitGroup
	var mu sync.Mutex // guards the fields below
	refused, first := 0, error(nil)
	for _, r := range s.replays {
		events := r.storm.Events[:r.storm.Initial]
		if !initial {
			events = r.storm.Events[r.storm.Initial:]
		}
		wg.Go(func() {
			for i := range events {
				e := &events[i]
				if int(e.KeyIndex)%writers != r.part {
					continue
				}
				due := time.Now()
				if !initial {
					due = s.began.Add(time.Duration(float64(e.At) / s.setup.Speed))
				}
				select {
				case <-time.After(time.Until(due)):
				case <-ctx.Done():
					return
				}
				if err := r.apply(apiserver.WithIntended(ctx, due), e); err != nil && ctx.Err() == nil {
					mu.Lock()
					if refused++; first == nil {
						first = fmt.Errorf("%s %s: %w", e.Type, e.Key, err)
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if refused > 0 {
		s.setup.Notify(fmt.Sprintf("the server refused %d events of the storm, such as %v", refused, first))
	}
	return ctx.Err()
}

// apply writes an event.
func (r *replay) apply(ctx context.Context, e *storm.Event) error {
	u, err := plain(e.Object, r.storm.Kind)
	if err != nil {
		return err
	}
	client := r.client.Resource(r.storm.Resource).Namespace(u.GetNamespace())
	last := r.last[e.Key]
	r.last[e.Key] = u
	switch {
	case e.Type == watch.Deleted:
		delete(r.last, e.Key)
		if err := client.Delete(ctx, u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); !apierrors.IsNotFound(err) {
			return err
		}
		return nil
	case last == nil:
		return r.create(ctx, r.storm.Resource, u)
	}
	if last.GetDeletionTimestamp() == nil && u.GetDeletionTimestamp() != nil {
		if err := client.Delete(ctx, u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: u.GetDeletionGracePeriodSeconds()}); err != nil {
			return err
		}
	}
	for _, of := range []struct {
		fields      func(*unstructured.Unstructured) map[string]any
		subresource []string
	}{{r.own, nil}, {r.status, []string{"status"}}} {
		from, errFrom := json.Marshal(of.fields(last))
		to, errTo := json.Marshal(of.fields(u))
		if errFrom != nil || errTo != nil {
			return fmt.Errorf("%w%w", errFrom, errTo)
		}
		patch, err := jsonpatch.CreateMergePatch(from, to)
		if err != nil {
			return err
		}
		if string(patch) == "{}" {
			continue
		}
		if _, err := client.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, of.subresource...); err != nil {
			return err
		}
	}
	return nil
}

// own are the fields of an object that its status is not part of.
func (r *replay) own(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	r.renew(u)
	delete(u.Object, "status")
	return u.Object
}

func (r *replay) status(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	r.renew(u)
	return map[string]any{"status": u.Object["status"]}
}
