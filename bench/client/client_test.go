package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/internal/golden"
)

const mark = "watchlab-test-view" // the first argument of this binary as a program

// TestMain is a view: of an informer, or one with a bug.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != mark {
		os.Exit(m.Run())
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		panic(err)
	}
	list := func() map[string]string { return map[string]string{} }
	switch os.Args[2] {
	case "informer":
		informers := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), 0, metav1.NamespaceDefault, nil)
		store := informers.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer().GetStore()
		informers.Start(context.Background().Done())
		list = func() map[string]string {
			seen := map[string]string{}
			for _, o := range store.List() {
				seen[o.(metav1.Object).GetName()] = o.(metav1.Object).GetResourceVersion()
			}
			return seen
		}
	case "once", "hammer":
		v := &simple{config: config, again: os.Args[2] == "hammer", seen: map[string]string{}}
		go v.follow()
		list = v.list
	case "ends":
		os.Exit(3)
	case "mute":
		time.Sleep(time.Hour)
	case "chatty":
		fmt.Println("hello")
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		for name, version := range list() {
			fmt.Println(name, version)
		}
		fmt.Println("end")
	}
	os.Exit(0)
}

// simple is a client that lists and watches once, or again at once whenever a watch ends.
type simple struct {
	config *rest.Config
	again  bool
	mu     sync.Mutex
	seen   map[string]string
}

func (v *simple) list() map[string]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.seen
}

func (v *simple) follow() {
	client, err := rest.HTTPClientFor(v.config)
	if err != nil {
		panic(err)
	}
	const path = "/api/v1/namespaces/default/configmaps"
	for first := true; first || v.again; first = false {
		var list metav1.PartialObjectMetadataList
		r, err := client.Get(v.config.Host + path)
		if err != nil {
			continue
		}
		failed := r.StatusCode != http.StatusOK || json.NewDecoder(r.Body).Decode(&list) != nil
		if _ = r.Body.Close(); failed {
			continue
		}
		seen := map[string]string{}
		for _, o := range list.Items {
			seen[o.Name] = o.ResourceVersion
		}
		v.mu.Lock()
		v.seen = seen
		v.mu.Unlock()
		if r, err = client.Get(v.config.Host + path + "?watch=1&resourceVersion=" + list.ResourceVersion); err != nil {
			continue
		}
		var event struct {
			Type   string
			Object metav1.PartialObjectMetadata
		}
		for d := json.NewDecoder(r.Body); d.Decode(&event) == nil && event.Type != "ERROR"; {
			v.mu.Lock()
			v.seen = mapped(v.seen, event.Type, event.Object)
			v.mu.Unlock()
		}
		_ = r.Body.Close()
	}
}

// mapped returns a copy: the former one may be read.
func mapped(seen map[string]string, event string, o metav1.PartialObjectMetadata) map[string]string {
	out := map[string]string{}
	for name, version := range seen {
		out[name] = version
	}
	if out[o.Name] = o.ResourceVersion; event == "DELETED" {
		delete(out, o.Name)
	}
	return out
}

// TestPlay plays behaviours to views that are right and to some with a bug.
func TestPlay(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var plays sync.WaitGroup
	const long, short = 5 * time.Minute, 2 * time.Second // A bug shows after any time.
	for _, c := range []struct {
		view, behaviour string
		within          time.Duration
		why             string // empty if it passes
	}{
		{"informer", "gzip", long, ""},
		{"informer", "unknown-fields", long, ""},
		{"informer", "no-watchlist", long, ""},
		{"informer", "gone-status", long, ""},
		{"informer", "close", long, ""},
		{"informer", "half-frame", long, ""},
		{"informer", "duplicate", long, ""},
		{"informer", "old-view", long, ""},
		{"once", "close", short, "objects: "},
		{"once", "skip", short, "objects: "},
		{"hammer", "throttle", long, "requests within 5s (at most 25)"},
		{"ends", "plain", long, "ended: exit status 3"},
		{"mute", "plain", short, "did not answer view within 2s"},
		{"chatty", "plain", long, `wrote "hello": neither NAME VERSION nor end`},
	} {
		plays.Go(func() { // They wait most of the time: all at once, and not as many as there are processors.
			name, all := c.view+"/"+c.behaviour, Behaviours()
			i := slices.IndexFunc(all, func(b Behaviour) bool { return b.Name == c.behaviour })
			p := play{Options: Options{Command: []string{self, mark, c.view}, Within: c.within, Dir: t.TempDir()}, Behaviour: all[i]}
			o, err := p.run(t.Context())
			if want := map[bool]string{true: Passed, false: Failed}[c.why == ""]; err != nil || o.Verdict != want || !strings.Contains(o.Why, c.why) {
				t.Errorf("%s: %v, %s: the program %s, %s; want %s, %s", name, err, o.Verdict, o.Why, o.Bytes, want, c.why)
			}
			requests, err := os.ReadFile(p.path("requests.json"))
			if n := bytes.Count(requests, []byte(`"configmaps"`)); err != nil || n != o.Requests {
				t.Errorf("%s: %v, %d requests, want %d", name, err, n, o.Requests)
			}
		})
	}
	plays.Wait()
}

// TestRun: the outcomes of an interrupted run are those that were finished, and a program that fails plain plays nothing else.
func TestRun(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var done []string
	all, err := Named([]string{"empty", "silence"})
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Command: []string{self, mark, "informer"}, Behaviours: all, Within: 5 * time.Minute, Dir: t.TempDir(), Done: func(o Outcome) {
		if done = append(done, o.Behaviour); o.Behaviour == "empty" {
			cancel()
		}
	}}
	r, err := Run(ctx, opts)
	if err != nil || !r.Interrupted || !slices.Equal(done, []string{"plain", "empty"}) || len(r.Outcomes) != 2 {
		t.Errorf("%v, %v, %+v", err, done, r)
	}
	opts.Command, opts.Done = []string{self, mark, "ends"}, nil
	if r, err = Run(t.Context(), opts); err != nil || !r.Failed() || len(r.Outcomes) != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestText(t *testing.T) {
	var out strings.Builder
	for _, outcomes := range [][]Outcome{
		{{Behaviour: "plain", Does: "lists and watches", Verdict: Passed, After: 200e6, Requests: 1}},
		{
			{Behaviour: "plain", Does: "lists and watches", Verdict: Passed, After: 200e6, Requests: 1},
			{Behaviour: "gzip", Does: "compresses", Verdict: Failed, Requests: 12, Why: "after 1m30s, of 46 objects: 6 missing", Bytes: `the last of 12 bytes of the last watch, which is open: "x"`},
			{Behaviour: "vanish", Does: "vanishes", Verdict: Skipped, Why: errors.ErrUnsupported.Error()},
		},
		{{Behaviour: "plain", Does: "lists and watches", Verdict: Failed, Why: "ended: exit status 1", Bytes: "there was no watch"}},
	} {
		if err := (&Result{Outcomes: outcomes}).Text(&out); err != nil {
			t.Fatal(err)
		}
		out.WriteString("---\n")
	}
	golden.Check(t, "text.txt", out.String())
}
