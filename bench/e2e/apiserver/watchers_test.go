package apiserver

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/e2e/controlplane"
	"watchlab/loadgen/trace"
)

var patched = flag.String("patched", "", "kube-apiserver under docs/found/watchlist-compression.patch, a third server of BenchmarkWatchers")

// BenchmarkWatchers measures what an event costs an API server for each watch: the CPU time of its process for updates of
// pods under watches that begin with the state, less that for as many updates without a watch. Each watch has a TLS
// connection of its own and gets an event by itself: the next update waits for all of them. The servers play in turn.
func BenchmarkWatchers(b *testing.B) {
	servers := map[string]func(testing.TB) (*rest.Config, int){
		"kube-apiserver": func(t testing.TB) (*rest.Config, int) { return plane(t, "") },
		"watchlab":       simulated,
	}
	names := []string{"kube-apiserver", "watchlab"}
	if *patched != "" {
		servers["kube-apiserver-patched"] = func(t testing.TB) (*rest.Config, int) { return plane(t, *patched) }
		names = append(names, "kube-apiserver-patched")
	}
	loads := map[string]*load{}
	for _, name := range names {
		loads[name] = newLoad(b, servers[name])
	}
	for _, watches := range []int{10, 100, 1000} {
		for _, encoding := range []string{"gzip", "identity"} {
			for _, name := range names {
				b.Run(fmt.Sprintf("server=%s/compression=%s/watches=%d", name, strings.Replace(encoding, "identity", "none", 1), watches), func(b *testing.B) {
					l, events := loads[name], max(100, 10_000/watches)
					idle, _ := l.play(b, 0, encoding, events)
					var used time.Duration
					var bytes int64
					for b.Loop() {
						u, n := l.play(b, watches, encoding, events)
						used, bytes = used+u-idle, bytes+n
					}
					delivered := float64(b.N * events * watches)
					b.ReportMetric(float64(used.Nanoseconds())/delivered, "cpu-ns/event")
					b.ReportMetric(float64(bytes)/delivered, "bytes/event")
				})
			}
		}
	}
}

// plane starts a control plane and returns the process id of its API server.
func plane(t testing.TB, program string) (*rest.Config, int) {
	p := controlplane.ForTest(t, controlplane.Options{APIServer: program})
	return p.Config(), p.APIServer()
}

// simulated starts `watchlab serve`.
func simulated(t testing.TB) (*rest.Config, int) {
	file, pid := serveProcess(t)
	config := must(clientcmd.BuildConfigFromFlags("", file))(t)
	return config, pid
}

// load updates the pods of a server.
type load struct {
	config *rest.Config
	pid    int
	client kubernetes.Interface
	pods   []string
	writes int
}

const (
	namespace = "watchers"
	updated   = 20 // pods
)

// newLoad starts a server and creates the first pods of a recorded rollout, with their status.
func newLoad(b *testing.B, start func(testing.TB) (*rest.Config, int)) *load {
	b.Helper()
	l := &load{}
	l.config, l.pid = start(b)
	l.config.QPS = -1
	l.client = kubernetes.NewForConfigOrDie(l.config)
	s := must(trace.Load("recorded-rollout"))(b)
	ctx := b.Context()
	if _, err := l.client.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	_, _ = l.client.CoreV1().ServiceAccounts(namespace).Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	pods := l.client.CoreV1().Pods(namespace)
	for _, e := range s.Events {
		pod := e.Object.(*v1.Pod).DeepCopy()
		if slices.Contains(l.pods, pod.Name) || len(l.pods) == updated {
			continue
		}
		pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Labels: pod.Labels, Annotations: pod.Annotations}
		made := must(pods.Create(ctx, pod, metav1.CreateOptions{}))(b)
		made.Status = pod.Status
		if _, err := pods.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
		l.pods = append(l.pods, pod.Name)
	}
	return l
}

// play updates pods under watches and returns the CPU time that the server used and the bytes that the watches got.
func (l *load) play(b *testing.B, watches int, encoding string, events int) (used time.Duration, bytes int64) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	got := make([]atomic.Int64, watches)
	for i := range got {
		body := l.watch(ctx, b, encoding)
		ended.Go(func() {
			defer func() { _ = body.Close() }()
			buf := make([]byte, 32<<10)
			for {
				n, err := body.Read(buf)
				got[i].Add(int64(n))
				if err != nil {
					return
				}
			}
		})
	}
	total := func() (sum int64) {
		for i := range got {
			sum += got[i].Swap(0)
		}
		return sum
	}
	// The state has come when nothing more comes.
	for first := true; first || total() > 0; first = false {
		time.Sleep(time.Second)
	}
	before := cpuTime(b, l.pid)
	for range events {
		l.writes++
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"watchers/write":"%d"}}}`, l.writes)
		if _, err := l.client.CoreV1().Pods(namespace).Patch(ctx, l.pods[l.writes%len(l.pods)], types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
		seen := make([]bool, watches)
		for left := watches; left > 0; {
			time.Sleep(time.Millisecond)
			for i := range got {
				if n := got[i].Swap(0); n > 0 {
					bytes += n
					if !seen[i] {
						seen[i], left = true, left-1
					}
				}
			}
		}
	}
	time.Sleep(100 * time.Millisecond)
	return cpuTime(b, l.pid) - before, bytes + total()
}

// watch opens a watch that begins with the state and returns its body as it is on the wire.
func (l *load) watch(ctx context.Context, b *testing.B, encoding string) io.ReadCloser {
	b.Helper()
	secure := must(rest.TLSConfigFor(l.config))(b)
	transport := &http.Transport{TLSClientConfig: secure, ForceAttemptHTTP2: true, DisableCompression: true}
	b.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.config.Host+"/api/v1/namespaces/"+namespace+
		"/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept", "application/vnd.kubernetes.protobuf")
	req.Header.Set("Accept-Encoding", encoding)
	req.Header.Set("Authorization", "Bearer "+l.config.BearerToken)
	res, err := transport.RoundTrip(req)
	if err != nil {
		b.Fatal(err)
	}
	if is := cmp.Or(res.Header.Get("Content-Encoding"), "identity"); res.StatusCode != http.StatusOK || is != encoding {
		b.Fatalf("%s, %s, want %s", res.Status, is, encoding)
	}
	return res.Body
}

// cpuTime returns the CPU time of a process; see proc_pid_stat(5). Its unit is 10 ms.
func cpuTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat := must(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(b)
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	user := must(strconv.ParseInt(fields[11], 10, 64))(b)
	system := must(strconv.ParseInt(fields[12], 10, 64))(b)
	return time.Duration(user+system) * 10 * time.Millisecond
}
