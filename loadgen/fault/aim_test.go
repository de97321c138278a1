package fault

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"watchlab/loadgen/apiserver/wire"
)

// TestAimed plays requests to a server with aimed faults. The texts are what reached the server, what was answered, and what
// crashed, in order.
func TestAimed(t *testing.T) {
	const cm, pods, jobs = "/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/pods", "/apis/batch/v1/namespaces/a/jobs"
	for _, c := range []struct{ name, faults, requests, want string }{
		{"crash after the second create", "crash:after=create configmaps,nth=2,duration=3s", "POST " + cm + " POST " + pods + " POST " + cm + " POST " + cm,
			"server POST configmaps, 201, server POST pods, 201, server POST configmaps, crash me 3s, aborted, server POST configmaps, 201"},
		{"crash before a write to a subresource", "crash:before=write jobs.batch/status", "PUT " + jobs + "/x PUT " + jobs + "/x/status",
			"server PUT x, 201, crash me 200ms, aborted"},
		{"terminated after a write", "terminate:after=create configmaps", "POST " + cm, "server POST configmaps, terminate me 200ms, 201"},
		{"crash of another client", "crash:before=create pods,client=other", "POST " + pods, "server POST pods, 201"},
		{"a lost answer, once", "lost-answer:resource=pods,verb=create,before=create pods", "POST " + pods + " POST " + pods,
			"server POST pods, 504, server POST pods, 201"},
		{"a conflict, once", "conflict:resource=configmaps,at=0s", "POST " + cm + " PUT " + cm + "/x PUT " + cm + "/x",
			"server POST configmaps, 201, 409, server PUT x, 201"},
		{"throttled creates of one resource", "throttle:resource=jobs,verb=create", "POST " + jobs + " GET " + jobs + " POST " + pods,
			"429, server GET jobs, 200, server POST pods, 201"},
		{"no watch list", "no-watchlist:resource=configmaps,duration=1h",
			"GET " + cm + "?watch=1&sendInitialEvents=true GET " + pods + "?watch=1&sendInitialEvents=true GET " + cm, "422, server GET pods, 200, server GET configmaps, 200"},
		{"dry runs trigger nothing", "crash:before=create pods", "POST " + pods + "?dryRun=All", "server POST pods, 201"},
		{"an old view", "old-view:resource=configmaps,before=create configmaps",
			"GET " + cm + " POST " + cm + " GET " + cm + "?resourceVersion=0 GET " + cm + "?watch=1&sendInitialEvents=true GET " + pods + " GET " + cm + "/x",
			"server GET configmaps, 200, server POST configmaps, 201, server GET configmaps resourceVersion=8&resourceVersionMatch=Exact, 200, 422, server GET pods, 200, server GET x, 200"},
		{"no old view for who asks for the newest state, or a newer one", "old-view:resource=configmaps,before=create configmaps",
			"POST " + cm + " GET " + cm + " GET " + cm + "?resourceVersion=8 GET " + cm + "?resourceVersion=9",
			"server POST configmaps, 201, server GET configmaps, 200, server GET configmaps resourceVersion=8&resourceVersionMatch=Exact, 200, server GET configmaps, 200"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			add := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
			specs, err := ParseAll(c.faults)
			if err != nil {
				t.Fatal(err)
			}
			inj, err := NewHooked(specs, 1, Hooks{
				Client: func(context.Context) string { return "me" },
				Crash:  func(client string, down time.Duration) { add("crash %s %v", client, down) },

				Terminate: func(client string, down time.Duration) { add("terminate %s %v", client, down) },
			})
			if err != nil {
				t.Fatal(err)
			}
			version := 7
			h := inj.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.RawQuery, "limit=1") {
					version++
					fmt.Fprintf(w, `{"metadata":{"resourceVersion":"%d"}}`, version)
					return
				}
				text := "server " + r.Method + " " + r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
				if strings.Contains(r.URL.RawQuery, "Exact") {
					text += " " + r.URL.RawQuery
				}
				add("%s", text)
				if r.Method != http.MethodGet {
					w.WriteHeader(http.StatusCreated)
				}
				_, _ = io.WriteString(w, "{}")
			}))
			if err := inj.Start(); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // until what is due at once has happened
			words := strings.Fields(c.requests)
			for i := 0; i < len(words); i += 2 {
				func() {
					defer func() {
						if recover() != nil {
							add("aborted")
						}
					}()
					rec := httptest.NewRecorder()
					h.ServeHTTP(rec, httptest.NewRequest(words[i], words[i+1], nil))
					add("%d", rec.Code)
				}()
			}
			inj.Stop()
			if text := strings.Join(got, ", "); text != c.want {
				t.Errorf("%s:\n%s, want\n%s", c.name, text, c.want)
			}
		})
	}
}

// TestAimedWatches: a fault hits the watches that it is aimed at. A skip ends them without what it held back, a close without
// a word.
func TestAimedWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil, "duplicate:resource=configmaps,at=100ms", "close:resource=configmaps,at=1s")
		b.start()
		w := b.watch(encoding{wire.JSON}, "resourceVersion=1")
		<-w.ended
		frames := strings.Split(strings.TrimSpace(string(w.got)), "\n")
		if twice := len(frames) - len(slices.Compact(slices.Clone(frames))); twice != 1 || strings.Contains(frames[len(frames)-1], "ERROR") {
			t.Errorf("%d of %d frames came twice; the last one is %s", twice, len(frames), frames[len(frames)-1])
		}
	})
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil, "skip:resource=configmaps,at=100ms,duration=1s", "stall:resource=pods,at=100ms,duration=1h")
		b.start()
		w := b.watch(encoding{wire.JSON}, "resourceVersion=1")
		<-w.ended
		frames := strings.Split(strings.TrimSpace(string(w.got)), "\n")
		if n := len(frames); n < 5 || n > 12 || !strings.Contains(frames[n-1], `"code":410`) || time.Since(b.startTime) < 1100*time.Millisecond {
			t.Errorf("%d frames in %v, the last one %s", n, time.Since(b.startTime), frames[n-1])
		}
		if log := b.Log(); !slices.ContainsFunc(log, func(in Injection) bool { return in.Fault == Stall && in.Path == "" }) {
			t.Errorf("the stall of pods hit something: %+v", log)
		}
	})
}
