// Package fidelity sends the same requests to two API servers and reports how their answers differ.
//
//  1. A [Question] is a script of requests in testdata/questions.txt. A player sends it to one server, in an empty
//     namespace, and records every answer: the code, the headers that clients act on, the whole body, the events
//     of watches (script_test.go).
//  2. Numbered placeholders replace values that differ between runs (versions, uids, generated names, times), in
//     order of appearance (normal_test.go). An unchanged version keeps its number.
//  3. The results are compared field by field (compare_test.go).
//  4. A question has the number of its known differences and their reason, which docs/fidelity.md lists. Any other
//     number is an error.
//
// Rejected: comparing the objects that client-go decodes. That hides differences that other clients see.
package fidelity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/loadgen/apiserver"
)

// Question is a script of requests.
type Question struct {
	// Area is the group of the question, such as "List".
	Area string
	// Title is the text of the question.
	Title string
	// Steps are its requests.
	Steps []step
	// Known is the number of known differences. Why is their reason.
	Known int
	Why   string
}

var errSetup = errors.New("setup failed")

// simulatedHistory is the number of events that the simulated server retains. It is small, so that
// [Server.Forget] can push versions out of it.
const simulatedHistory = 150

// ask sends a question to both servers concurrently and compares the answers. It creates the namespace and does
// not delete it.
func (q Question) ask(ctx context.Context, simulated, truth *Server, namespace string) ([]Difference, error) {
	var answers [2][]Answer
	var errs [2]error
	var wg sync.WaitGroup
	for i, s := range []*Server{truth, simulated} {
		wg.Go(func() { answers[i], errs[i] = s.run(ctx, q, namespace) })
	}
	wg.Wait()
	return compare(answers[0], answers[1]), errors.Join(errs[:]...)
}

// TestFidelity sends the same requests to a real kube-apiserver and to the simulated one. Their
// answers are equal, except for the known differences, which docs/fidelity.md lists with a reason each.
func TestFidelity(t *testing.T) {
	truth, simulated := realAnswers(t), simulatedAnswers(t)
	for _, s := range []*Server{truth, simulated} {
		s.define(t)
	}
	questions, err := Questions()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/fidelity.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, q := range questions {
		differences, err := q.ask(t.Context(), simulated, truth, fmt.Sprintf("fidelity-%d", i))
		if err == nil && len(differences) != q.Known {
			// A real server may end a watch at any time; it ends all of them at the
			// first burst of writes. A second attempt is not affected.
			differences, err = q.ask(t.Context(), simulated, truth, fmt.Sprintf("fidelity-%d", 1000+i))
		}
		if err != nil {
			t.Errorf("%s: %s: %v", q.Area, q.Title, err)
		} else if len(differences) != q.Known {
			t.Errorf("%s: %s: %d differences, want %d (%s):", q.Area, q.Title, len(differences), q.Known, q.Why)
			for _, d := range differences {
				t.Errorf("\t%s", d)
			}
		}
		if listed := fmt.Sprintf("* **%s: %s.** %s", q.Area, q.Title, sentence(q.Why)); q.Known > 0 && !strings.Contains(string(page), listed) {
			t.Errorf("docs/fidelity.md lacks the line %q", listed)
		}
	}
}

// sentence capitalises a reason.
func sentence(s string) string { return strings.ToUpper(s[:min(1, len(s))]) + s[min(1, len(s)):] + "." }

// Server is a server under comparison.
type Server struct {
	// Name is the server's name in reports, such as "kube-apiserver".
	Name string
	// Forget makes the server drop the history of widgets up to now.
	Forget func(context.Context) error

	config     *rest.Config
	client     *http.Client
	url        string
	kubeconfig string // path
}

func newServer(t *testing.T, name string, config *rest.Config) *Server {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "fidelity" // the default field manager
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &Server{Name: name, config: config, client: client, url: config.Host}
}

// define creates the custom resource of the questions and waits until it is served.
func (s *Server) define(t *testing.T) {
	t.Helper()
	p := &player{Server: s, namespace: "default", objects: map[string]map[string]any{}}
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if err := p.play(t.Context(), step{verb: "POST", given: true, target: definitions, body: "@widgets.yaml"}); err != nil {
		t.Fatal(err)
	}
	programs.Eventually(t, "custom resources are served", func() error {
		return p.play(t.Context(), step{verb: "GET", given: true, target: "widgets"})
	})
}

// realAnswers starts a kube-apiserver. It runs no controllers: their writes would
// appear in the answers of one server only.
func realAnswers(t *testing.T) *Server {
	cp := controlplane.ForTest(t, controlplane.Options{})
	s := newServer(t, "kube-apiserver "+cp.Release(), cp.Config())
	s.kubeconfig = cp.Kubeconfig()
	s.Forget = func(ctx context.Context) error { return compact(ctx, cp) }
	return s
}

// compact makes etcd drop all revisions before the current one.
func compact(ctx context.Context, cp *controlplane.ControlPlane) error {
	list, err := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	body := strings.NewReader(fmt.Sprintf(`{"revision":"%s"}`, list.ResourceVersion))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, cp.EtcdURL+"/v3/kv/compaction", body)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd compaction: %s", resp.Status)
	}
	return nil
}

// simulatedAnswers starts the server of `watchlab serve`.
func simulatedAnswers(t *testing.T) *Server {
	srv, err := apiserver.Open(apiserver.Options{Retain: simulatedHistory})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newServer(t, "watchlab serve", &rest.Config{Host: url})
	s.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := apiserver.WriteKubeconfig(s.kubeconfig, apiserver.Kubeconfig{Server: url}, false); err != nil {
		t.Fatal(err)
	}
	s.Forget = func(ctx context.Context) error { return outlive(ctx, s) }
	return s
}

// outlive writes more events than the simulated server retains.
func outlive(ctx context.Context, s *Server) error {
	p := &player{Server: s, namespace: "default", objects: map[string]map[string]any{}}
	widget := `{"apiVersion":"fidelity.watchlab.dev/v1","kind":"Widget","metadata":{"generateName":"outlive-"},"spec":{"size":"small"}}`
	for range simulatedHistory + 10 {
		if err := p.play(ctx, step{verb: "POST", given: true, target: "widgets", body: widget}); err != nil {
			return err
		}
	}
	return nil
}
