package cli

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/fleet"
)

// knock is a request of a stranger.
type knock struct {
	token, password, host string
	want                  int // 0 for 401 or 403
}

// knocks sends a request for each of them.
func knocks(t *testing.T, client *http.Client, method, url string, all ...knock) {
	t.Helper()
	for _, k := range all {
		req := must(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
		if k.token != "" {
			req.Header.Set("Authorization", "Bearer "+k.token)
		}
		if k.password != "" {
			req.SetBasicAuth("any", k.password)
		}
		if k.host != "" {
			req.Host = k.host
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		refused := res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden
		if k.want == 0 && !refused || k.want != 0 && res.StatusCode != k.want {
			t.Errorf("%s %s as %+v: %s", method, url, k, res.Status)
		}
	}
}

// TestStrangers: nothing of serve answers without the token, nor with the token for the name of another site. A pod
// serves metrics and probes only. Pages and listeners have their own tests in bench/telemetry and
// loadgen/apiserver.
func TestStrangers(t *testing.T) {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport}
	defer transport.CloseIdleConnections()
	t.Run("API", func(t *testing.T) {
		kubeconfig := filepath.Join(t.TempDir(), "kc")
		_, end := serving(t, "--storm", tiny, "--kubeconfig-out", kubeconfig)
		config := must(clientcmd.BuildConfigFromFlags("", kubeconfig))(t)
		token := config.BearerToken
		for _, path := range []string{"/", "/api", "/apis", "/openapi/v2", "/version", "/healthz", "/metrics", "/debug/pprof/",
			"/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/namespaces/default/pods/one", "/apis/apps/v1/deployments"} {
			for _, method := range []string{http.MethodGet, http.MethodOptions, http.MethodPost, http.MethodPatch, http.MethodDelete} {
				knocks(t, client, method, config.Host+path, knock{}, knock{token: "wrong"}, knock{password: token}, knock{token: token, host: "rebound.example.com"})
			}
		}
		knocks(t, client, http.MethodGet, config.Host+"/api/v1/pods", knock{token: token, want: http.StatusOK})
		if code, errs := end(); code != exitOK || errs != "" {
			t.Errorf("exit code %d, stderr %q", code, errs)
		}
	})
	t.Run("pod", func(t *testing.T) {
		// The run is longer than this test, so that the listener stays.
		plan := planned(t, "0", `
run: stranger
pods: 1
experiment: {family: queue, variants: [cond], storm: {name: `+tiny+`}, rounds: 1000000, events: 2000}
barrier: 0s
`)
		stderr := newOutput()
		end := starting(t, stderr, []string{"pod", "--plan", plan, "--kubeconfig", simulated(t, nil), "--metrics-addr", "0.0.0.0:0"})
		url := regexp.MustCompile(`(http://\S+)/metrics is for`).FindStringSubmatch(stderr.String())
		for path, want := range map[string]int{"/metrics": http.StatusOK, "/healthz": http.StatusOK, "/readyz": http.StatusOK,
			"/": http.StatusNotFound, "/debug/pprof/heap": http.StatusNotFound} {
			knocks(t, client, http.MethodGet, url[1]+path, knock{want: want})
		}
		transport.CloseIdleConnections()
		end()
	})
}

// starting runs a command until its standard error has what it waits for. end interrupts it.
func starting(t *testing.T, stderr *output, args []string) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx, args, io.Discard, stderr)
	}()
	end = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(end)
	stderr.await(t, "/metrics is for Prometheus")
	return end
}

// planned writes a plan and sets the environment of one of its pods.
func planned(t *testing.T, index, plan string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "plan.yaml")
	noError(t, os.WriteFile(file, []byte(plan), 0o600))
	t.Setenv(fleet.IndexVar, index)
	t.Setenv(fleet.PodVar, "pod-"+index)
	return file
}
