package cluster

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"watchlab/loadgen/pace"
)

var (
	pods      = schema.GroupResource{Resource: "pods"}
	forbidden = apierrors.NewForbidden(pods, "p", errors.New("no rules yet"))
	unready   = apierrors.NewForbidden(pods, "p", errors.New("not yet ready to handle request"))
	internal  = apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
)

// TestRetryLimit: temporary errors are retried until success, or for a minute; permanent errors
// are not. Forbidden is temporary just after an outage.
func TestRetryLimit(t *testing.T) {
	for _, tt := range []struct {
		name string
		errs []error
		// want is the error, tries the number of attempts; 0 means until the limit.
		want  error
		tries int
	}{
		{"at once", []error{nil}, nil, 1},
		{"unreachable", []error{syscall.ECONNREFUSED, io.ErrUnexpectedEOF, nil}, nil, 3},
		{"unreachable, then not ready", []error{syscall.ECONNREFUSED, unready, forbidden, nil}, nil, 4},
		{"not ready", []error{unready, nil}, nil, 2},
		{"etcd unreachable", []error{internal, apierrors.NewTimeoutError("etcd", 0), apierrors.NewTooManyRequestsError("wait"), nil}, nil, 4},
		{"forbidden", []error{forbidden}, forbidden, 1},
		{"not ours", []error{ErrNotOurs}, ErrNotOurs, 1},
		{"invalid", []error{syscall.ECONNREFUSED, apierrors.NewBadRequest("no"), nil}, apierrors.NewBadRequest("no"), 2},
		{"away for good", []error{syscall.ECONNREFUSED}, syscall.ECONNREFUSED, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var p retrier
				tries, begin := 0, time.Now()
				took, err := p.do(t.Context(), func() error {
					err := tt.errs[min(tries, len(tt.errs)-1)]
					tries++
					return err
				})
				if (err == nil) != (tt.want == nil) || err != nil && err.Error() != tt.want.Error() {
					t.Errorf("%v, want %v", err, tt.want)
				}
				passed := time.Since(begin)
				switch {
				case took != passed, tt.tries == 1 && took != 0:
					t.Errorf("elapsed %v, want %v", took, passed)
				case tt.tries > 0 && tries != tt.tries:
					t.Errorf("tried %d times, want %d", tries, tt.tries)
				case tt.tries == 0 && (passed < retryLimit || passed > retryLimit+2*longestPause):
					t.Errorf("tried for %v", passed)
				}
			})
		})
	}
}

// TestForbiddenLater: long after an outage, Forbidden is permanent.
func TestForbiddenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p retrier
		away := true
		if _, err := p.do(t.Context(), func() (err error) {
			if away {
				err = syscall.ECONNREFUSED
			}
			away = false
			return err
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(settling)
		tries := 0
		if _, err := p.do(t.Context(), func() error { tries++; return forbidden }); !apierrors.IsForbidden(err) || tries != 1 {
			t.Errorf("tried %d times: %v", tries, err)
		}
	})
}

// TestWriterOutage: a writer survives an outage of the API server and reports its cost.
// If the outage does not end, it reports the number of events left.
func TestWriterOutage(t *testing.T) {
	s := changing(60)
	for _, tt := range []struct {
		name string
		// The API server is unavailable from its 40th request on, for this time.
		away    time.Duration
		written int64
		ctx     error
	}{
		{"comes back", 5 * time.Second, 140, nil},
		{"stays away", time.Hour, 0, context.DeadlineExceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewSimpleDynamicClient(runtime.NewScheme())
				requests, since := 0, time.Time{}
				client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
					if requests++; requests == 40 {
						since = time.Now()
					}
					if requests >= 40 && time.Since(since) < tt.away {
						return true, nil, syscall.ECONNREFUSED
					}
					return true, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": map[string]any{RunLabel: "run"}}}}, nil
				})
				w := must(NewWriter(&Cluster{dynamic: client}, podResource, "run"))(t)
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				got, err := w.Play(ctx, s, pace.Unpaced)
				if !errors.Is(err, tt.ctx) {
					t.Errorf("error %v, want %v", err, tt.ctx)
				}
				if got.Applied+got.Deleted+got.Left != 140 || got.Refused != 0 || tt.written > 0 && got.Left != 0 || tt.written == 0 && got.Left == 0 {
					t.Errorf("%+v", got)
				}
				if got.Retried == 0 || got.Outage == 0 || got.Outage > 31*time.Second {
					t.Errorf("no outage is counted: %+v", got)
				}
			})
		})
	}
}
