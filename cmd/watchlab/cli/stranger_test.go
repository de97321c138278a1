package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// listeners are all calls that listen outside of tests: by file, what answers, and the test that comes to it as
// a stranger.
var listeners = map[string]string{
	"loadgen/apiserver/access.go":            "the rule for all others: TestListen, TestOtherSites and TestRequestBounds of its package",
	"cmd/watchlab/cli/serve.go":              "the simulated API server, with a token: TestStrangerOfServe",
	"bench/controller/server.go":             "the API server of a controller under test, with a token for each client: TestStranger of its package",
	"bench/telemetry/live/server.go":         "live page, metrics, pprof: TestStrangerOfPages",
	"bench/telemetry/live/storm.go":          "the pages of serve and controller, on loopback only, with a token: TestStrangerOfPages",
	"loadgen/apiserver/server.go":            "the API server of a run, on loopback only: TestOtherSites of its package",
	"bench/pipeline/kubelet_static.go":       "made-up static pods, on loopback only: TestOtherSites of loadgen/apiserver",
	"bench/controller/program/program.go":    "nothing: it looks for a free port",
	"bench/e2e/programs/programs.go":         "nothing: tests look for a free port",
	"bench/e2e/controlplane/controlplane.go": "nothing: tests look for a free port",
}

// TestListeners: every listener is in the list, and goes by the rule of apiserver.Access.
func TestListeners(t *testing.T) {
	listens := regexp.MustCompile(`\bnet\.Listen(\w*\(|Config)|\btls\.(Listen|NewListener)\(|\bListenAndServe|\bhttptest\.New\w*Server\(|\bAccess\{|\baccess\.Listen\(`)
	root := os.DirFS("../../..")
	var found []string
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, path)
		if err != nil || !listens.Match(text) {
			return err
		}
		found = append(found, path)
		if listeners[path] == "" {
			t.Errorf("%s has %q: add it to the list, with a test that comes to it without a token", path, listens.Find(text))
		}
		if plain := regexp.MustCompile(`\bnet\.Listen(\w*\(|Config)`); plain.Match(text) && path != "loadgen/apiserver/access.go" && !strings.HasPrefix(path, "bench/e2e/") {
			t.Errorf("%s listens without apiserver.Access", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range listeners {
		if !slices.Contains(found, path) {
			t.Errorf("%s does not listen", path)
		}
	}
}

// knock is a request of a stranger.
type knock struct {
	token, password, host string
	browser               string // cookie of the link
	site                  string // whose page sends it, as browsers say
	want                  int    // 0 for 401 or 403
}

// knocks sends a request for each of them and returns the body of the last one.
func knocks(t *testing.T, client *http.Client, method, url string, all ...knock) (body []byte) {
	t.Helper()
	for _, k := range all {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, method, url, nil)
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
		refused := res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden
		if k.want == 0 && !refused || k.want != 0 && res.StatusCode != k.want {
			t.Errorf("%s %s as %+v: %s", method, url, k, res.Status)
		}
		if k.want == 0 || !strings.HasSuffix(url, "/updates") { // which has no end
			if body, err = io.ReadAll(res.Body); err != nil {
				t.Fatal(err)
			}
		}
		_ = res.Body.Close()
		cancel()
	}
	return body
}

// TestStrangerOfServe: no verb of no path of the API answers without the token, nor with the token for the
// name of another site.
func TestStrangerOfServe(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kc")
	_, end := serving(t, "--storm", tiny, "--kubeconfig-out", kubeconfig)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	token := config.BearerToken
	transport := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	client := &http.Client{Transport: transport}
	defer transport.CloseIdleConnections()
	strangers := []knock{{}, {token: "wrong"}, {password: token}, {token: token, host: "rebound.example.com"}}

	var api struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(knocks(t, client, http.MethodGet, config.Host+"/openapi/v2", knock{token: token, want: http.StatusOK}), &api); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for path, operations := range api.Paths {
		path = strings.NewReplacer("{namespace}", "default", "{name}", "one", "{path}", "", "{logpath}", "").Replace(path)
		for method := range operations {
			if method != "parameters" {
				asked++
				knocks(t, client, strings.ToUpper(method), config.Host+path, strangers...)
			}
		}
		knocks(t, client, http.MethodGet, config.Host+path+"?watch=1", strangers...)
	}
	for _, path := range []string{"/", "/api", "/apis", "/openapi/v2", "/openapi/v3", "/version", "/healthz", "/livez", "/readyz", "/metrics", "/debug/pprof/"} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodConnect, http.MethodTrace} {
			if method != http.MethodConnect || path == "/" {
				knocks(t, client, method, config.Host+path, strangers...)
			}
		}
	}
	if asked < 500 {
		t.Errorf("the API has %d operations only", asked)
	}
	if code, errs := end(); code != exitOK || errs != "" {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}

// TestStrangerOfPages: pages of storms and pprof answer with the token or the link's cookie only, live pages and
// metrics for loopback only; beyond it, with the token only. Pods serve metrics and probes.
func TestStrangerOfPages(t *testing.T) {
	transport := &http.Transport{}
	client := &http.Client{Transport: transport}
	defer transport.CloseIdleConnections()
	foreign := knock{host: "rebound.example.com"}
	figures := []string{"/metrics", "/healthz", "/readyz"}
	live := slices.Concat([]string{"/", "/page.js", "/page.css", "/chart.css", "/updates", "/report.html",
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/goroutine", "/debug/pprof/profile?seconds=1", "/debug/pprof/trace", "/debug/pprof/symbol"}, figures)

	for name, args := range map[string][]string{
		"serve":              nil,
		"serve with a token": {"--token-file", filepath.Join(t.TempDir(), "token")},
	} {
		t.Run(name, func(t *testing.T) { strangerOfStorm(t, client, args) })
	}
	for name, args := range map[string][]string{
		"dash":           {"--metrics-addr", "127.0.0.1:0"},
		"dash in public": {"--metrics-addr", "0.0.0.0:0", "--insecure-listen"},
	} {
		t.Run(name, func(t *testing.T) {
			stderr := &heard{said: make(chan struct{}), want: "stays until Ctrl-C"}
			end := starting(t, stderr, slices.Concat([]string{"dash"}, atOnce, args))
			url := shown.FindStringSubmatch(stderr.String())
			if url == nil {
				t.Fatalf("stderr %q", stderr)
			}
			token, cookie := printedToken(t, stderr.String()), visit(t, client, stderr.String())
			loopback := len(args) == 2
			for _, path := range live {
				guarded := strangers(token, cookie, loopback)
				if loopback && !strings.HasPrefix(path, "/debug/") {
					guarded = []knock{foreign, {want: http.StatusOK}}
				}
				if strings.Contains(path, "profile?") || strings.HasSuffix(path, "/trace") {
					guarded = slices.DeleteFunc(guarded, func(k knock) bool { return k.want != 0 }) // these take a second
				}
				knocks(t, client, http.MethodGet, url[1]+path, guarded...)
			}
			transport.CloseIdleConnections()
			end()
		})
	}
	t.Run("pod", func(t *testing.T) {
		// The run is longer than this test, so that the listener stays.
		plan := planned(t, "0", `
run: stranger
mode: self
pods: 1
experiment: {family: queue, variants: [cond], storm: {name: `+tiny+`}, rounds: 1000000, events: 2000}
barrier: 0s
`)
		stderr := &heard{said: make(chan struct{}), want: "/metrics is for Prometheus"}
		end := starting(t, stderr, []string{"pod", "--plan", plan, "--kubeconfig", simulated(t, nil), "--metrics-addr", "0.0.0.0:0"})
		url := regexp.MustCompile(`(http://\S+)/metrics is for`).FindStringSubmatch(stderr.String())
		for _, path := range live {
			k := knock{want: http.StatusNotFound}
			if slices.Contains(figures, path) {
				k.want = http.StatusOK
			}
			knocks(t, client, http.MethodGet, url[1]+path, k)
		}
		transport.CloseIdleConnections()
		end()
	})
}

// strangerOfStorm comes to the page and the transport of a storm.
func strangerOfStorm(t *testing.T, client *http.Client, args []string) {
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
		knocks(t, client, http.MethodGet, base+path, strangers(token, cookie, true)...)
	}
	for _, path := range []string{"/pause", "/resume", "/step", "/seek", "/speed"} {
		all := strangers(token, cookie, true)
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
func strangers(token, cookie string, loopback bool) []knock {
	all := []knock{{}, {token: "wrong"}, {password: "wrong"}, {browser: cookie + "x"}, {host: "rebound.example.com"}}
	if loopback { // Elsewhere the server may have any name.
		all = append(all, knock{token: token, host: "rebound.example.com"}, knock{browser: cookie, host: "rebound.example.com"})
	}
	return append(all, knock{token: token, want: http.StatusOK}, knock{password: token, want: http.StatusOK}, knock{browser: cookie, want: http.StatusOK})
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

// starting runs a command until its standard error has what it waits for. end interrupts it.
func starting(t *testing.T, stderr *heard, args []string) (end func()) {
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
	select {
	case <-stderr.said:
	case <-done:
		t.Fatalf("%v ended: %s", args, stderr)
	}
	return end
}
