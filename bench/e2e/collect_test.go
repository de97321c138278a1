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

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/share"
	"watchlab/loadgen/source"
	"watchlab/loadgen/trace"
)

// The run whose results are collected: three variants behind an informer, unpaced and
// at a rate, five rounds; with the A/A pair seven cells.
var (
	collectImpls = []string{"clientgo-realfifo-batch", "cond", "ring"}
	collectPaces = []pace.Pace{{}, pace.Rate(5_000).Pace()}
)

const (
	collectRounds = 5
	// collectPlayed shards are really played; the others have what one of these measured.
	collectPlayed = 2
)

// playedShards are shards of a run that were really played, one after the other.
func playedShards(tb testing.TB, rounds int) []*lab.Share {
	tb.Helper()
	s, err := trace.Load("recorded-gang")
	if err != nil {
		tb.Fatal(err)
	}
	// How well the schedule is kept is not what is looked at here, and what isn't kept is
	// not delivered.
	budget, err := pace.ParseBudget("1m")
	if err != nil {
		tb.Fatal(err)
	}
	var shards []*lab.Share
	for i := range collectPlayed {
		comparisons, err := pipeline.Compare(pipeline.Config{
			Family: impls.DeltaFIFO, Pipeline: pipeline.InformerPipeline, Source: source.MemoryName, Modes: []string{"in-order"},
			Impls: collectImpls, Storm: share.Share{Index: i, Count: collectPlayed}.Storm(s), Paces: collectPaces, Budget: budget, Duration: 300 * time.Millisecond,
		})
		if err != nil {
			tb.Fatal(err)
		}
		o, err := lab.Run(tb.Context(), comparisons, lab.Options{Name: "scale", Rounds: rounds, Seed: 1, Build: lab.Build{Commit: "e2e"}})
		if err != nil {
			tb.Fatal(err)
		}
		shard := &lab.Share{Index: i, Node: "node", Outcome: o}
		for _, c := range o.Comparisons[0].Cells {
			for _, r := range c.Rounds {
				shard.Starts = append(shard.Starts, lab.Start{Cell: c.BenchName(), Round: r.Round, Late: time.Duration(i) * time.Microsecond})
			}
		}
		shards = append(shards, shard)
	}
	return shards
}

// nth is shard i of so many, with what one of the played ones measured.
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

// counting counts requests and the bytes of answers.
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

type countingBody struct {
	counted
	io.Closer
}

// countedClient returns a client whose requests are counted.
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

// deliverAll delivers n shards, so many at the same time, and returns the bytes.
func deliverAll(tb testing.TB, to upload.Sink, of []*lab.Share, n, atOnce int) int64 {
	tb.Helper()
	var bytes atomic.Int64
	var workers sync.WaitGroup
	next := make(chan int)
	for range atOnce {
		workers.Go(func() {
			for i := range next {
				p, err := upload.Encode("scale", nth(of, i, n))
				if err == nil {
					err = to.Upload(tb.Context(), p)
				}
				if err != nil {
					tb.Error(err)
				}
				bytes.Add(int64(len(p.Data)))
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
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

// TestCollectFromARealServer: what shards leave in ConfigMaps of a real API server, more
// than a page of them and some in two parts, is what they would have left in a folder.
func TestCollectFromARealServer(t *testing.T) {
	const shards = 30
	cp := controlplane.ForTest(t, controlplane.Options{})
	client, _ := countedClient(t, cp)
	makeNamespace(t, client, "results")
	of := playedShards(t, 1)
	// More than fits into one.
	noise := make([]byte, 1100<<10)
	for i := range noise {
		noise[i] = byte(i*i>>7) ^ byte(i*2654435761>>13)
	}
	of[1].Outcome.Env.Args = []string{fmt.Sprintf("%x", noise)}
	maps := upload.ConfigMaps{Client: client, Namespace: "results"}
	folder := upload.Dir(t.TempDir())
	for _, sink := range []upload.Sink{maps, maps, folder} {
		deliverAll(t, sink, of, shards, 4)
	}
	var merged []*lab.Outcome
	for _, r := range []upload.Reader{maps, folder} {
		c, err := upload.Collect(t.Context(), r, "", shards, t.TempDir(), lab.MergeOptions{})
		if err != nil || len(c.Damaged) > 0 || c.Bundles != shards || c.Run != "scale" {
			t.Fatalf("%d bundles of %q, damaged %v, error %v", c.Bundles, c.Run, c.Damaged, err)
		}
		merged = append(merged, c.Outcome)
	}
	if diff := cmp.Diff(merged[1], merged[0]); diff != "" {
		t.Errorf("(-folder +ConfigMaps):\n%s", diff)
	}
	if got := len(merged[0].Merged.Shares); got != shards {
		t.Errorf("%d shards are merged", got)
	}
	list, err := client.CoreV1().ConfigMaps("results").List(t.Context(), metav1.ListOptions{LabelSelector: upload.PodLabel})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) <= shards {
		t.Errorf("%d ConfigMaps: none is in two parts", len(list.Items))
	}
	// One is lost, and its shard is named.
	if err := client.CoreV1().ConfigMaps("results").Delete(t.Context(), list.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c, err := upload.Collect(t.Context(), maps, "scale", shards, t.TempDir(), lab.MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if missing := c.Outcome.Merged.Missing; len(missing) != 1 || strconv.Itoa(missing[0]) != list.Items[0].Labels[upload.PodLabel] {
		t.Errorf("missing: %v", missing)
	}
}

// BenchmarkCollect measures what it takes to deliver the results of so many shards, and
// to collect and merge them: of a run of seven cells over five rounds, through a folder,
// and through ConfigMaps of a real API server, which 16 shards write to at a time. Two
// shards were really played, the others have what one of them measured.
//
// deliver-s and collect-s are the times of the two, for all, and collect-cpu-s is how much
// processor time the latter takes, whatever else the machine does; result-B is a shard's result
// as it is delivered, rounds how many of a cell it has, those left out that a machine had
// spoiled; peak-heap-B is the collector's; for ConfigMaps,
// requests count those of the collector, written-requests those of all shards,
// received-B what the former got, and etcd-B is by how much the store grew.
func BenchmarkCollect(b *testing.B) {
	of := playedShards(b, collectRounds)
	rounds := 0.0
	for _, s := range of {
		for _, c := range s.Outcome.Comparisons[0].Cells {
			rounds += float64(len(c.Rounds)) / float64(len(of))
		}
	}
	// What all of them share ends with the last.
	outer := b
	var cp *controlplane.ControlPlane
	for _, way := range []string{"folder", "configmap"} {
		for _, n := range []int{10, 100, 1000} {
			b.Run(fmt.Sprintf("way=%s/shards=%d", way, n), func(b *testing.B) {
				var sink upload.Sink = upload.Dir(b.TempDir())
				var counts counting
				var client kubernetes.Interface
				before := 0.0
				if way == "configmap" {
					if cp == nil {
						cp = controlplane.ForTest(outer, controlplane.Options{})
					}
					client, counts = countedClient(b, cp)
					makeNamespace(b, client, fmt.Sprintf("results-%d", n))
					before = stored(b, client)
					sink = upload.ConfigMaps{Client: client, Namespace: fmt.Sprintf("results-%d", n)}
				}
				for b.Loop() {
					if client != nil {
						counts.requests.Store(0)
					}
					began := time.Now()
					bytes := deliverAll(b, sink, of, n, 16)
					b.ReportMetric(time.Since(began).Seconds(), "deliver-s")
					b.ReportMetric(float64(bytes)/float64(n), "result-B")
					b.ReportMetric(rounds, "rounds")
					if client != nil {
						b.ReportMetric(float64(counts.requests.Swap(0)), "written-requests")
						counts.received.Store(0)
					}
					peak := watchHeap(b)
					began = time.Now()
					cpu := cpuTime(b)
					c, err := upload.Collect(b.Context(), sink.(upload.Reader), "", n, b.TempDir(), lab.MergeOptions{})
					took := time.Since(began)
					b.ReportMetric(peak(), "peak-heap-B")
					if err != nil || c.Bundles != n || len(c.Outcome.Merged.Missing) > 0 {
						b.Fatalf("%d bundles: %v", c.Bundles, err)
					}
					b.ReportMetric(took.Seconds(), "collect-s")
					b.ReportMetric((cpuTime(b) - cpu).Seconds(), "collect-cpu-s")
					if client != nil {
						b.ReportMetric(float64(counts.requests.Load()), "requests")
						b.ReportMetric(float64(counts.received.Load()), "received-B")
						b.ReportMetric(stored(b, client)-before, "etcd-B")
					}
				}
			})
		}
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

// watchHeap samples the live heap and returns a function that returns the peak.
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

// stored returns the size of the API server's store.
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
	tb.Fatal("the API server doesn't tell how large its store is")
	return 0
}
