//go:build unix

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/storm"
)

// asClient and asEncoding are the environment of the client's process.
const (
	asClient   = "WATCHLAB_TEST_CLIENT"
	asEncoding = "WATCHLAB_TEST_ENCODING"
)

// BenchmarkServer measures what the simulated server of a play takes, with its recorder and its cluster. The
// storm is paced: status updates of 5,000 pods, and leases and node statuses of 200 nodes. One client in another
// process has informers of the three resources over TLS. cpu-cores is the server's CPU time by the clock.
func BenchmarkServer(b *testing.B) {
	for _, rate := range []float64{500, 2000} {
		for _, encoding := range []string{"json", "protobuf"} {
			b.Run(fmt.Sprintf("impl=simulated/watchers=1/rate=%g/encoding=%s", rate, encoding), func(b *testing.B) {
				benchmarkServer(b, rate, encoding)
			})
		}
	}
}

func benchmarkServer(b *testing.B, rate float64, encoding string) {
	profile, err := storm.NewProfile("steady")
	if err != nil {
		b.Fatal(err)
	}
	const nodes = 200
	profile.Nodes, profile.Pods, profile.ChurnPerSecond = nodes, 5000, 0
	profile.Baseline, profile.Storm, profile.Drain = 0, 10*time.Second, 0
	profile.UpdatesPerSecond = rate - nodes/profile.LeasePeriod.Seconds()
	set, err := profile.Set(1)
	if err != nil {
		b.Fatal(err)
	}
	stages, err := lifecycle.ReadStages()
	if err != nil {
		b.Fatal(err)
	}
	var cpu, wall time.Duration
	var events, behind int64
	for b.Loop() {
		b.StopTimer()
		// A play encodes the events of its own storm.
		var storms []*apiserver.Prepared
		for _, s := range set.Storms {
			p, err := apiserver.PrepareWith(s, store.NewBudget(0))
			if err != nil {
				b.Fatal(err)
			}
			storms = append(storms, p)
		}
		var changes atomic.Int64
		rec := record.NewRecorder()
		faults, err := fault.New(nil, 1)
		if err != nil {
			b.Fatal(err)
		}
		server, err := newSimulated(Setup{
			Clients: []string{"controller-0"}, Wrap: wrap(rec, faults), Seed: 1, Speed: 1,
			Changed:  func(c apiserver.Change) { changes.Add(1); rec.Observe(c) },
			prepared: &prepared{seeded: seeded{set: set, storms: storms}, stages: stages},
		})
		if err != nil {
			b.Fatal(err)
		}
		stop := startClient(b, server, encoding)
		initial := changes.Load()
		b.StartTimer()
		from, began := cpuTime(b), time.Now()
		rec.Start(began)
		lagging, stopLags := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		most := 0
		wg.Go(func() {
			// As in a play.
			for lagging.Err() == nil {
				for _, l := range server.Lags() {
					most = max(most, l.Events)
				}
				select {
				case <-time.After(defaultTiming.sampling):
				case <-lagging.Done():
				}
			}
		})
		if err := server.Play(b.Context()); err != nil {
			b.Fatal(err)
		}
		wall += time.Since(began) // A slow client must not lengthen it.
		for !delivered(server.Lags()) {
			time.Sleep(time.Millisecond)
		}
		cpu += cpuTime(b) - from
		events += changes.Load() - initial
		behind = max(behind, int64(most))
		b.StopTimer()
		stopLags()
		wg.Wait()
		stop()
		if err := server.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(cpu.Seconds()/wall.Seconds(), "cpu-cores")
	b.ReportMetric(float64(events)/wall.Seconds(), "events/s")
	b.ReportMetric(float64(cpu)/float64(events), "cpu-ns/event")
	b.ReportMetric(float64(behind), "max-lag-events")
	b.ReportMetric(0, "ns/op")
}

func delivered(lags []record.Lag) bool {
	for _, l := range lags {
		if l.Events > 0 {
			return false
		}
	}
	return true
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startClient starts the client and waits for its watches.
func startClient(b *testing.B, server Server, encoding string) (stop func()) {
	b.Helper()
	config := filepath.Join(b.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(config, server.Kubeconfig("controller-0"), true); err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestClient$")
	cmd.Env = append(os.Environ(), asClient+"="+config, asEncoding+"="+encoding)
	cmd.Stderr = os.Stderr
	// The client ends with the pipe, and thus with this process.
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	if err := server.Await(ctx, func(open, _ int) bool { return open == 3 }); err != nil {
		b.Fatal(err)
	}
	// The initial events of a watch belong to the start.
	for !delivered(server.Lags()) {
		time.Sleep(time.Millisecond)
	}
	return func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			b.Error(err)
		}
	}
}

// TestClient is the client of BenchmarkServer.
func TestClient(t *testing.T) {
	path := os.Getenv(asClient)
	if path == "" {
		t.Skip("it runs in a process of BenchmarkServer")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.ContentType = "application/json"
	if os.Getenv(asEncoding) == "protobuf" {
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	config.AcceptContentTypes = config.ContentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer(), factory.Coordination().V1().Leases().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) { _ = now.(metav1.Object) }}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is closed
	cancel()
	factory.Shutdown()
}
