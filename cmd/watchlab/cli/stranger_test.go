package cli

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"watchlab/bench/fleet"
)

// knock is a request of a stranger.
type knock struct {
	token, password, host string
	browser               string // cookie of the link
	site                  string // whose page sends it, as browsers say
	want                  int    // 0 for 401 or 403
}

// knocks sends a request for each of them.
func knocks(t *testing.T, client *http.Client, method, url string, all ...knock) {
	t.Helper()
	for _, k := range all {
		req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if k.token != "" {
			req.Header.Set("Authorization", "Bearer "+k.token)
		}
		if k.password != "" {
			req.SetBasicAuth("any", k.password)
		}
		if k.browser != "" {
			req.Header.Set("Cookie", k.browser)
		}
		if k.site != "" {
			req.Header.Set("Sec-Fetch-Site", k.site)
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
// serves metrics and probes only. Pages and listeners have their own tests in bench/telemetry/live and
// loadgen/apiserver.
func TestStrangers(t *testing.T) {
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport}
	defer transport.CloseIdleConnections()
	t.Run("API", func(t *testing.T) {
		kubeconfig := filepath.Join(t.TempDir(), "kc")
		_, end := serving(t, "--storm", tiny, "--kubeconfig-out", kubeconfig)
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
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
	t.Run("page", func(t *testing.T) { strangersOfPage(t, client, nil) })
	t.Run("page with a token", func(t *testing.T) {
		strangersOfPage(t, client, []string{"--token-file", filepath.Join(t.TempDir(), "token")})
	})
	t.Run("pod", func(t *testing.T) {
		// The run is longer than this test, so that the listener stays.
		plan := planned(t, "0", `
run: stranger
mode: self
pods: 1
experiment: {family: queue, variants: [cond], storm: {name: `+tiny+`}, rounds: 1000000, events: 2000}
barrier: 0s
`)
		stderr := newOutput()
		end := starting(t, stderr, []string{"pod", "--plan", plan, "--kubeconfig", simulated(t, nil), "--metrics-addr", "0.0.0.0:0"})
		url := regexp.MustCompile(`(http://\S+)/metrics is for`).FindStringSubmatch(stderr.String())
		for path, want := range map[string]int{"/metrics": http.StatusOK, "/healthz": http.StatusOK, "/readyz": http.StatusOK,
			"/": http.StatusNotFound, "/updates": http.StatusNotFound, "/debug/pprof/heap": http.StatusNotFound} {
			knocks(t, client, http.MethodGet, url[1]+path, knock{want: want})
		}
		transport.CloseIdleConnections()
		end()
	})
}

// strangersOfPage come to the page and the transport of a storm.
func strangersOfPage(t *testing.T, client *http.Client, args []string) {
	token := "mine"
	if len(args) > 0 {
		if err := os.WriteFile(args[1], []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, end := serving(t, slices.Concat([]string{"--storm", tiny, "--tls=false", "--page", "--start", "0", "--speed", "0.000001"}, args)...)
	if len(args) == 0 {
		token = printedToken(t, out.String())
	} else if strings.Contains(out.String(), token) {
		t.Errorf("the token that the user has is printed:\n%s", out)
	}
	cookie := visit(t, client, out.String())
	base, _, _ := strings.Cut(pageLink.FindString(out.String()), "/?")
	for _, path := range []string{"/", "/storm.js", "/page.css", "/chart.css", "/status"} {
		knocks(t, client, http.MethodGet, base+path, strangers(token, cookie)...)
	}
	for _, path := range []string{"/pause", "/resume", "/step", "/seek", "/speed"} {
		all := strangers(token, cookie)
		for i := range all {
			if all[i].want != 0 {
				all[i].want = http.StatusUnsupportedMediaType
			}
		}
		for _, site := range []string{"cross-site", "same-site"} { // the page of another port is of the same site
			all = append(all, knock{browser: cookie, site: site}, knock{token: token, site: site})
		}
		knocks(t, client, http.MethodPost, base+path, all...)
	}
	if code, errs := end(); code != exitOK || errs != "" {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

// strangers come to what needs the token, and after them its owner and the browser with the link's cookie.
func strangers(token, cookie string) []knock {
	const site = "rebound.example.com"
	return []knock{
		{}, {token: "wrong"}, {password: "wrong"}, {browser: cookie + "x"},
		{host: site}, {token: token, host: site}, {browser: cookie, host: site},
		{token: token, want: http.StatusOK}, {password: token, want: http.StatusOK}, {browser: cookie, want: http.StatusOK},
	}
}

var pageLink = regexp.MustCompile(`http://\S+/\?token=\w+`)

// printedToken returns the token that a command printed.
func printedToken(t *testing.T, text string) string {
	t.Helper()
	m := regexp.MustCompile(`password of any user: (\w+)\n`).FindAllStringSubmatch(text, -1)
	if len(m) != 1 {
		t.Fatalf("%d tokens in\n%s", len(m), text)
	}
	return m[0][1]
}

// visit opens the link that a command printed, as a browser, and returns the cookie.
func visit(t *testing.T, client *http.Client, text string) string {
	t.Helper()
	once := *client
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := once.Get(pageLink.FindString(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	_ = res.Body.Close()
	if cookies := res.Cookies(); len(cookies) == 1 && res.StatusCode == http.StatusSeeOther {
		return cookies[0].Name + "=" + cookies[0].Value
	}
	t.Fatalf("the link answers %s, %v", res.Status, res.Header)
	return ""
}

// starting runs a command until it serves metrics. end interrupts it.
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
	if err := os.WriteFile(file, []byte(plan), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(fleet.IndexVar, index)
	t.Setenv(fleet.PodVar, "pod-"+index)
	return file
}
