package main_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// The collected run: three variants behind an informer, unpaced and at 5,000 events/s,
// in five rounds. The A/A pair is the seventh cell.
var (
	collectImpls = []string{"clientgo-realfifo-batch", "cond", "ring"}
	collectPaces = []pace.Pace{{}, pace.Rate(5_000).Pace()}
)

const (
	collectRounds = 5
	// collectPlayed pods are really played. All other pods get copies of their results.
	collectPlayed = 2
)

// playedPods plays collectPlayed pods of a run one after the other and returns their results.
func playedPods(tb testing.TB, rounds int) []*lab.Share {
	tb.Helper()
	s, err := trace.Load("recorded-gang")
	if err != nil {
		tb.Fatal(err)
	}
	// A large lag budget: a round that misses the schedule would not be uploaded, and
	// this test ignores lag.
	budget, err := pace.ParseBudget("1m")
	if err != nil {
		tb.Fatal(err)
	}
	var pods []*lab.Share
	for i := range collectPlayed {
		comparisons, err := pipeline.Compare(pipeline.Config{
			Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline, Source: source.MemoryName, Modes: []string{"in-order"},
			Impls: collectImpls, Storm: s.Select(0, storm.Share{Index: i, Count: collectPlayed}.Has).Storm, Paces: collectPaces, Budget: budget, Duration: 300 * time.Millisecond,
		})
		if err != nil {
			tb.Fatal(err)
		}
		o, err := lab.Run(tb.Context(), comparisons, lab.Options{Name: "scale", Rounds: rounds, Seed: 1, IgnoreHost: true, Build: lab.Build{Commit: "e2e"}})
		if err != nil {
			tb.Fatal(err)
		}
		result := &lab.Share{Index: i, Node: "node", Outcome: o}
		for _, c := range o.Comparisons[0].Cells {
			for _, r := range c.Rounds {
				result.Starts = append(result.Starts, lab.Start{Cell: c.BenchName(), Round: r.Round, Late: time.Duration(i) * time.Microsecond})
			}
		}
		pods = append(pods, result)
	}
	return pods
}

// nth returns pod i of n, with the results of a played pod.
func nth(of []*lab.Share, i, n int) *lab.Share {
	s := *of[i%len(of)]
	o := *s.Outcome
	o.Comparisons = append([]lab.ComparisonResult(nil), o.Comparisons...)
	for c := range o.Comparisons {
		o.Comparisons[c].Input = fmt.Sprintf("part %d", i)
	}
	s.Index, s.Of, s.Pod, s.Outcome = i, n, fmt.Sprintf("watchlab-scale-%d-xxxxx", i), &o
	return &s
}

// counting counts requests and the bytes of both directions.
type counting struct {
	http.RoundTripper
	requests, sent, received *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	c.sent.Add(max(r.ContentLength, 0))
	resp, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = countingBody{counted{resp.Body, c.received}, resp.Body}
	}
	return resp, err
}

// countingBody is the body of an answer that counting counts.
type countingBody struct {
	counted
	io.Closer
}

// countedClient returns a client and the counters of its requests.
func countedClient(tb testing.TB, cp *controlplane.ControlPlane) (kubernetes.Interface, counting) {
	tb.Helper()
	c := counting{nil, new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)}
	config := cp.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.QPS = -1
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		with := c
		with.RoundTripper = rt
		return with
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return client, c
}

// uploadAll uploads n pods, atOnce of them concurrently, and returns the bytes.
func uploadAll(tb testing.TB, to fleet.ConfigMaps, of []*lab.Share, n, atOnce int) int64 {
	tb.Helper()
	var bytes atomic.Int64
	var workers sync.WaitGroup
	for worker := range atOnce {
		workers.Go(func() {
			for i := worker; i < n; i += atOnce {
				size, err := to.Upload(tb.Context(), "scale", nth(of, i, n))
				if err != nil {
					tb.Error(err)
				}
				bytes.Add(int64(size))
			}
		})
	}
	workers.Wait()
	return bytes.Load()
}

// makeNamespace creates a namespace for results.
func makeNamespace(tb testing.TB, client kubernetes.Interface, name string) {
	tb.Helper()
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(tb.Context(), ns, metav1.CreateOptions{}); err != nil {
		tb.Fatal(err)
	}
}

// TestCollectFromAPIServer uploads to ConfigMaps of a real API server, twice, and merges them. Some pods
// need two ConfigMaps.
func TestCollectFromAPIServer(t *testing.T) {
	const pods = 30
	cp := controlplane.ForTest(t, controlplane.Options{})
	client, _ := countedClient(t, cp)
	makeNamespace(t, client, "results")
	of := playedPods(t, 1)
	// More than one ConfigMap can hold: 1,100 KiB, hardly compressible.
	noise := make([]byte, 1100<<10)
	for i := range noise {
		noise[i] = byte(i*i>>7) ^ byte(i*2654435761>>13)
	}
	of[1].Outcome.Env.Args = []string{fmt.Sprintf("%x", noise)}
	maps := fleet.ConfigMaps{Client: client.CoreV1().ConfigMaps("results")}
	for range 2 {
		uploadAll(t, maps, of, pods, 4)
	}
	c, err := maps.Collect(t.Context(), "scale", pods, t.TempDir(), lab.MergeOptions{})
	if err != nil || len(c.Damaged) > 0 || c.Results != pods || len(c.Outcome.Merged.Shares) != pods {
		t.Fatalf("%d bundles, damaged %v, error %v", c.Results, c.Damaged, err)
	}
	list, err := client.CoreV1().ConfigMaps("results").List(t.Context(), metav1.ListOptions{LabelSelector: fleet.PodLabel})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) <= pods {
		t.Errorf("%d ConfigMaps: no result has two parts", len(list.Items))
	}
	// Collect names the pod of a lost ConfigMap.
	if err := client.CoreV1().ConfigMaps("results").Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if c, err = maps.Collect(t.Context(), "scale", pods, t.TempDir(), lab.MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	if missing := c.Outcome.Merged.Missing; len(missing) != 1 || strconv.Itoa(missing[0]) != list.Items[0].Labels[fleet.PodLabel] {
		t.Errorf("missing: %v", missing)
	}
}

// BenchmarkCollect measures the upload of the results of 10 to 1,000 pods, and their collection and
// merge, through ConfigMaps of a real API server with 16 concurrent writers. The run has seven cells
// and five rounds. Two pods are really played; the others get copies of their results.
//
//   - upload-s, collect-s: time of all uploads, and of collection with merge
//   - collect-cpu-s: CPU time of collection with merge
//   - result-B: uploaded bytes per pod
//   - rounds: valid rounds per pod, summed over the cells
//   - peak-heap-B: largest live heap of the collector
//   - requests, received-B: requests of the collector, and the bytes of the answers
//   - written-requests: requests of all pods
//   - etcd-B: growth of the API server's store
func BenchmarkCollect(b *testing.B) {
	of := playedPods(b, collectRounds)
	rounds := 0.0
	for _, s := range of {
		for _, c := range s.Outcome.Comparisons[0].Cells {
			rounds += float64(len(c.Rounds)) / float64(len(of))
		}
	}
	cp := controlplane.ForTest(b, controlplane.Options{})
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("pods=%d", n), func(b *testing.B) {
			client, counts := countedClient(b, cp)
			ns := fmt.Sprintf("results-%d", n)
			makeNamespace(b, client, ns)
			before := stored(b, client)
			maps := fleet.ConfigMaps{Client: client.CoreV1().ConfigMaps(ns)}
			for b.Loop() {
				counts.requests.Store(0)
				began := time.Now()
				bytes := uploadAll(b, maps, of, n, 16)
				b.ReportMetric(time.Since(began).Seconds(), "upload-s")
				b.ReportMetric(float64(bytes)/float64(n), "result-B")
				b.ReportMetric(rounds, "rounds")
				b.ReportMetric(float64(counts.requests.Swap(0)), "written-requests")
				counts.received.Store(0)
				peak := watchHeap(b)
				began = time.Now()
				cpu := cpuTime(b)
				c, err := maps.Collect(b.Context(), "scale", n, b.TempDir(), lab.MergeOptions{})
				took := time.Since(began)
				b.ReportMetric(peak(), "peak-heap-B")
				if err != nil || c.Results != n || len(c.Outcome.Merged.Missing) > 0 {
					b.Fatalf("%d bundles: %v", c.Results, err)
				}
				b.ReportMetric(took.Seconds(), "collect-s")
				b.ReportMetric((cpuTime(b) - cpu).Seconds(), "collect-cpu-s")
				b.ReportMetric(float64(counts.requests.Load()), "requests")
				b.ReportMetric(float64(counts.received.Load()), "received-B")
				b.ReportMetric(stored(b, client)-before, "etcd-B")
			}
		})
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// watchHeap samples the live heap every 2 ms. The returned function ends the sampling
// and returns the peak in bytes.
func watchHeap(tb testing.TB) (peak func() float64) {
	tb.Helper()
	runtime.GC()
	ctx, cancel := context.WithCancel(context.Background())
	var most uint64
	var done sync.WaitGroup
	done.Go(func() {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for ctx.Err() == nil {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			time.Sleep(2 * time.Millisecond)
		}
	})
	return func() float64 {
		cancel()
		done.Wait()
		return float64(most)
	}
}

// stored returns the size of the API server's store in bytes.
func stored(tb testing.TB, client kubernetes.Interface) float64 {
	tb.Helper()
	text, err := client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_storage_size_bytes{") {
			v, err := strconv.ParseFloat(strings.Fields(line)[1], 64)
			if err != nil {
				tb.Fatal(err)
			}
			return v
		}
	}
	tb.Fatal("the API server does not report the size of its store")
	return 0
}
