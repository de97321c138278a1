package main_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/impls/conformance"
)

const (
	// deliveryObjects is the number of objects.
	deliveryObjects = 100
	// deliveryWriters is the number of concurrent writers.
	deliveryWriters = 4
	deliveryLimit   = 2 * time.Minute
)

// BenchmarkDelivery compares the watch throughput and latency of the real kube-apiserver
// and of `watchlab serve`.
//
// Each server is a separate process and serves over TLS. Both serve the same objects to
// the same clients. Each watcher is a REST client of client-go with its own connection,
// which opens before the clock starts. Watchers count frames and do not decode them:
// decoding would be the bottleneck long before the server.
//
//   - mode=backlog: the events are written first, 1,000 of pods or 5,000 of small
//     objects. A real server's watch cache keeps them for a minute. Then the watches
//     start before the first event. This is the server's own speed. events/s is events
//     times watchers, divided by the time until the last watcher has the last event.
//   - mode=paced: the watches start first, then 20 events/s are written, a rate that both
//     servers sustain. p50-ms and p99-ms are the time from a write's intended time until
//     a watcher has its event, over all watchers. write-p50-ms is the time from the
//     intended time to the answer of the write. lag-max-ms is the largest delay of the
//     start of a write.
//
// server-RSS-MB is the resident memory of the server's process at the end, and
// server-peak-RSS-MB its peak during the measurement. Both exclude etcd.
// server-cpu-ns/event is the server's CPU time per delivered event, from the first watch
// on. The clients share the server's cores and cost about the same for both servers.
func BenchmarkDelivery(b *testing.B) {
	for _, start := range []struct {
		name string
		up   func(testing.TB) server
	}{
		{"kube-apiserver", realServer},
		{"watchlab", simulatedServer},
	} {
		// All measurements share one server of each kind: a start takes up to a minute.
		var s server
		for _, object := range []deliveryObject{podObject, leaseSized} {
			for _, encoding := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				for _, watchers := range []int{1, 10, 100} {
					for _, mode := range []string{"backlog", pacedMode} {
						_, short, _ := strings.Cut(encoding, "/")
						short = short[strings.LastIndex(short, ".")+1:]
						name := fmt.Sprintf("server=%s/object=%s/encoding=%s/watchers=%d/mode=%s", start.name, object.name, short, watchers, mode)
						b.Run(name, func(b *testing.B) {
							if s.config == nil {
								s = start.up(b)
							}
							s.measure(b, object, encoding, watchers, mode)
						})
					}
				}
			}
		}
		if s.stop != nil {
			s.stop()
		}
	}
}

// server is a running server.
type server struct {
	config *rest.Config
	pid    int
	stop   func()
}

// outliving is a testing.TB for a server that outlives the test.
type outliving struct {
	testing.TB
	cleanups []func()
}

func (o *outliving) Cleanup(f func())         { o.cleanups = append(o.cleanups, f) }
func (o *outliving) Context() context.Context { return context.Background() }
func (o *outliving) end() {
	for _, f := range o.cleanups {
		f()
	}
}

func realServer(b testing.TB) server {
	o := &outliving{TB: b}
	cp := controlplane.ForTest(o, controlplane.Options{Controllers: true})
	programs.Eventually(b, "the default service account is made", func() error {
		_, err := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ServiceAccounts("default").Get(context.Background(), "default", metav1.GetOptions{})
		return err
	})
	return server{config: cp.Config(), pid: cp.APIServerPID(), stop: o.end}
}

// simulatedServer starts `watchlab serve`.
func simulatedServer(b testing.TB) server {
	dir, err := os.MkdirTemp("", "watchlab-serve-")
	if err != nil {
		b.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	cmd := exec.Command(programs.Watchlab(b), "serve", "--kubeconfig-out", kubeconfig)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		if err := <-ended; err != nil {
			b.Errorf("watchlab serve: %v", err)
		}
		_ = os.RemoveAll(dir)
	}
	var config *rest.Config
	programs.Eventually(b, "watchlab serves", func() error {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			return err
		}
		_, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion()
		return err
	})
	return server{config: config, pid: cmd.Process.Pid, stop: stop}
}

// deliveryObject is a kind of object to write.
type deliveryObject struct {
	name string
	// resource is a resource of the core group.
	resource string
	// events is the number of events of a round.
	events int
	of     func(i int) runtime.Object
}

var (
	// podObject is a recorded pod, 11.6 kB of JSON. No scheduler runs.
	podObject = deliveryObject{"pod-12kB", "pods", 1000, func(i int) runtime.Object {
		p := conformance.RealisticPod(i)
		p.ObjectMeta = metav1.ObjectMeta{
			Name: fmt.Sprintf("delivery-%03d", i), Labels: p.Labels, Annotations: p.Annotations,
		}
		p.Status = v1.PodStatus{}
		p.Spec.NodeName = ""
		p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "", ""
		p.Spec.Priority, p.Spec.PreemptionPolicy, p.Spec.PriorityClassName = nil, nil, ""
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "watchlab.dev/not-to-be-run"}}
		automount := false
		p.Spec.AutomountServiceAccountToken = &automount
		var volumes []v1.Volume
		for _, v := range p.Spec.Volumes {
			if v.Projected == nil {
				volumes = append(volumes, v)
			}
		}
		p.Spec.Volumes = volumes
		for _, cs := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
			for j := range cs {
				var mounts []v1.VolumeMount
				for _, m := range cs[j].VolumeMounts {
					for _, v := range volumes {
						if v.Name == m.Name {
							mounts = append(mounts, m)
						}
					}
				}
				cs[j].VolumeMounts = mounts
			}
		}
		return p
	}}
	// leaseSized is a ConfigMap of the size of a Lease.
	leaseSized = deliveryObject{"configmap-0.5kB", "configmaps", 5000, func(i int) runtime.Object {
		return &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("delivery-%03d", i)},
			Data:       map[string]string{"held-by": "node-7d9c6c5f4-2b7rl", "renewed": "2026-11-21T10:20:30.123456Z"},
		}
	}}
)

func (s server) measure(b *testing.B, object deliveryObject, encoding string, watchers int, mode string) {
	client := kubernetes.NewForConfigOrDie(unlimited(s.config)).CoreV1().RESTClient()
	version := makeObjects(b, client, object)
	events, elapsed := 0, time.Duration(0)
	bytes := int64(0)
	var cpu time.Duration
	// mu guards the results of a paced round.
	var mu sync.Mutex
	var latencies, writes []time.Duration
	var lag time.Duration
	for b.Loop() {
		ctx, cancel := context.WithTimeout(context.Background(), deliveryLimit)
		after := version
		if mode == "backlog" {
			version = change(b, client, object)
		}
		written, done := make(chan struct{}), make(chan error, watchers)
		var opened sync.WaitGroup
		var read atomic.Int64
		opened.Add(watchers)
		clients := make([]rest.Interface, watchers)
		for i := range clients {
			var err error
			if clients[i], err = s.connect(ctx, encoding); err != nil {
				b.Fatal(err)
			}
		}
		forgetPeak(b, s.pid)
		before := cpuOf(b, s.pid)
		begin := time.Now()
		for _, c := range clients {
			go func() {
				if mode == pacedMode {
					took, err := watchPaced(ctx, c, object, encoding, after, &opened)
					mu.Lock()
					latencies = append(latencies, took...)
					mu.Unlock()
					done <- err
					return
				}
				done <- watch(ctx, c, object, encoding, after, &opened, &read)
			}()
		}
		if mode == pacedMode {
			opened.Wait()
			begin = time.Now()
			go func() {
				defer close(written)
				written, late := changePaced(ctx, client, object)
				mu.Lock()
				writes, lag = append(writes, written...), max(lag, late)
				mu.Unlock()
			}()
		} else {
			close(written)
		}
		for range watchers {
			if err := <-done; err != nil {
				b.Error(err)
			}
		}
		elapsed += time.Since(begin)
		<-written
		cpu += cpuOf(b, s.pid) - before
		cancel()
		if mode == pacedMode {
			version = present(b, client, object)
			events += pacedEvents * watchers
		} else {
			events += object.events * watchers
		}
		bytes += read.Load()
	}
	b.ReportMetric(0, "ns/op")
	if mode == pacedMode {
		b.ReportMetric(quantile(latencies, 0.5), "p50-ms")
		b.ReportMetric(quantile(latencies, 0.99), "p99-ms")
		b.ReportMetric(quantile(writes, 0.5), "write-p50-ms")
		b.ReportMetric(float64(lag)/1e6, "lag-max-ms")
	} else {
		b.ReportMetric(float64(bytes)/elapsed.Seconds()/1e6, "MB/s")
	}
	b.ReportMetric(float64(cpu)/float64(events), "server-cpu-ns/event")
	b.ReportMetric(float64(events)/elapsed.Seconds(), "events/s")
	b.ReportMetric(memoryOf(b, s.pid, "VmRSS"), "server-RSS-MB")
	b.ReportMetric(memoryOf(b, s.pid, "VmHWM"), "server-peak-RSS-MB")
}

func unlimited(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.QPS = -1
	return c
}

// makeObjects creates missing objects and returns the collection's resourceVersion.
func makeObjects(b *testing.B, client rest.Interface, object deliveryObject) string {
	for i := range deliveryObjects {
		err := client.Post().Namespace("default").Resource(object.resource).Body(object.of(i)).Do(b.Context()).Error()
		if err != nil && !strings.Contains(err.Error(), "already exists") {
			b.Fatal(err)
		}
	}
	return present(b, client, object)
}

// present returns the resourceVersion of a collection.
func present(b *testing.B, client rest.Interface, object deliveryObject) string {
	var list struct {
		Metadata metav1.ListMeta `json:"metadata"`
	}
	raw, err := client.Get().Namespace("default").Resource(object.resource).
		SetHeader("Accept", runtime.ContentTypeJSON).Do(context.Background()).Raw()
	if err == nil {
		err = json.Unmarshal(raw, &list)
	}
	if err != nil || list.Metadata.ResourceVersion == "" {
		b.Fatalf("a list of %s has no version: %v", object.resource, err)
	}
	return list.Metadata.ResourceVersion
}

// change writes the events: it annotates the objects in turn. It returns the last resourceVersion.
func change(b *testing.B, client rest.Interface, object deliveryObject) string {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range deliveryWriters {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(object.events) {
					return
				}
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"watchlab.dev/n":"%d-%d"}}}`, time.Now().UnixNano(), i)
				err := client.Patch(types.MergePatchType).Namespace("default").Resource(object.resource).
					Name(fmt.Sprintf("delivery-%03d", i%deliveryObjects)).Body([]byte(patch)).Do(context.Background()).Error()
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return present(b, client, object)
}

// connect returns a client with an open connection of its own.
func (s server) connect(ctx context.Context, encoding string) (rest.Interface, error) {
	config := unlimited(s.config)
	// Clients with equal configurations share connections in client-go. A separate
	// dialer prevents that.
	config.Dial = (&net.Dialer{}).DialContext
	config.APIPath = "/api"
	config.GroupVersion = &v1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.AcceptContentTypes = encoding
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return client, client.Get().AbsPath("/version").SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Error()
}

// openWatch opens a watch that starts after a resourceVersion.
func openWatch(ctx context.Context, client rest.Interface, object deliveryObject, encoding, version string) (io.ReadCloser, error) {
	accept := encoding
	if encoding == runtime.ContentTypeProtobuf {
		accept += ";stream=watch"
	}
	return client.Get().Namespace("default").Resource(object.resource).SetHeader("Accept", accept).
		VersionedParams(&metav1.ListOptions{Watch: true, ResourceVersion: version}, scheme.ParameterCodec).Stream(ctx)
}

// watch opens a watch and reads the events of a round.
func watch(ctx context.Context, client rest.Interface, object deliveryObject, encoding, version string, opened *sync.WaitGroup, read *atomic.Int64) error {
	once := sync.OnceFunc(opened.Done)
	defer once()
	stream, err := openWatch(ctx, client, object, encoding, version)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	once()
	in := bufio.NewReaderSize(counted{stream, read}, 256<<10)
	for range object.events {
		if encoding == runtime.ContentTypeProtobuf {
			err = skipFrame(in)
		} else {
			err = skipLine(in)
		}
		if err != nil {
			return fmt.Errorf("a watch ended early: %w", err)
		}
	}
	return nil
}

// counted counts the bytes that a reader returns.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n.Add(int64(n))
	return n, err
}

func skipLine(in *bufio.Reader) error {
	for {
		switch _, err := in.ReadSlice('\n'); {
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return err
		}
	}
}

// skipFrame skips a length-prefixed frame.
func skipFrame(in *bufio.Reader) error {
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return err
	}
	_, err := in.Discard(int(binary.BigEndian.Uint32(size[:])))
	return err
}

// forgetPeak resets the kernel's peak of a process's memory.
func forgetPeak(b *testing.B, pid int) {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
}

// memoryOf returns the resident memory of a process in MB: VmRSS is the current value,
// VmHWM the peak.
func memoryOf(b *testing.B, pid int, which string) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == which+":" {
			kB, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kB / 1e3
		}
	}
	b.Fatalf("/proc/%d/status does not say %s", pid, which)
	return 0
}

// cpuOf returns the CPU time of a process.
func cpuOf(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The process name, in parentheses, may contain spaces. Cut it off.
	_, rest, _ := strings.Cut(string(text), ") ")
	f := strings.Fields(rest)
	const tick = 10 * time.Millisecond
	var total time.Duration
	for _, n := range []int{11, 12} {
		ticks, err := strconv.Atoi(f[n])
		if err != nil {
			b.Fatal(err)
		}
		total += time.Duration(ticks) * tick
	}
	return total
}
