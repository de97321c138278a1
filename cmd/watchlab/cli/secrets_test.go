package cli

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"watchlab/bench/fleet"
	"watchlab/bench/telemetry"
)

// canaries are secrets, each planted in one place, and the text forms that betray them.
type canaries struct {
	rng     *rand.Rand
	planted map[string]string // place by secret
	forms   map[string]string // secret by form
}

func newCanaries(t *testing.T) *canaries {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return &canaries{rng: rand.New(rand.NewPCG(seed, 0)), planted: map[string]string{}, forms: map[string]string{}}
}

// plant returns a new secret for a place. It has hexadecimal digits, which URLs and JSON leave as they are.
func (c *canaries) plant(place string) string {
	secret := fmt.Sprintf("%016x%016x", c.rng.Uint64(), c.rng.Uint64())
	c.planted[secret] = place
	c.forms[secret] = secret
	for before := range 3 { // the three positions in base64
		for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
			text := enc.EncodeToString(append(make([]byte, before), secret...))
			c.forms[text[(8*before+5)/6:8*(before+len(secret))/6]] = secret
		}
	}
	return secret
}

// find returns the places of the secrets in data, also in its compressed parts.
func (c *canaries) find(data []byte) (places []string) {
	for form, secret := range c.forms {
		if bytes.Contains(data, []byte(form)) {
			places = append(places, c.planted[secret])
		}
	}
	for magic, open := range map[string]func(io.Reader) (io.Reader, error){
		"\x1f\x8b\x08":     func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		"\x28\xb5\x2f\xfd": func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r, zstd.WithDecoderConcurrency(1)) },
	} {
		for at := 0; ; at++ {
			next := bytes.Index(data[at:], []byte(magic))
			if next < 0 {
				break
			}
			at += next
			if r, err := open(bytes.NewReader(data[at:])); err == nil {
				inner, _ := io.ReadAll(r) // What follows the part is an error.
				places = append(places, c.find(inner)...)
				if d, ok := r.(*zstd.Decoder); ok {
					d.Close()
				}
			}
		}
	}
	return places
}

// secretCall is a call of the command in the presence of canaries.
type secretCall struct {
	args  []string
	stdin string
	until string   // text after which it is interrupted; empty: it ends by itself
	fetch []string // paths of its page, read before
}

// guarded is the surroundings of the calls.
type guarded struct {
	*canaries
	t       *testing.T
	in, out string   // folders of what is planted and what is written
	cluster []string // flags of a simulated API server that accepts all
	server  string   // answers 200 below /ok, and else 401 with what it was sent
	calls   int
	passed  map[string]bool // verbs with a call that succeeded
	files   int
}

// url returns a URL of the server with a user and a parameter.
func (g *guarded) url(path, flag string) string {
	return strings.Replace(g.server, "://", "://user:"+g.plant("the password of "+flag)+"@", 1) + path + "?region=x&access_token=" + g.plant("the parameter of "+flag)
}

func (g *guarded) file(name, text string) string {
	g.t.Helper()
	path := filepath.Join(g.in, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		g.t.Fatal(err)
	}
	return path
}

func (g *guarded) to(name string) string { return filepath.Join(g.out, name) }

// pod returns a Pod with canaries.
func (g *guarded) pod(name string) string {
	return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"shop","uid":"u-%s","resourceVersion":"5","annotations":{"example.com/password":%q,`+
		`"kubectl.kubernetes.io/last-applied-configuration":"{\"env\":\"%s\"}"},`+
		`"managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{"f:%s":{}}}}}]},`+
		`"spec":{"nodeName":"node-1","containers":[{"name":"web","image":"web:1","args":["--password=%s"],"env":[{"name":"PASSWORD","value":%q}]}]},"status":{"phase":"Running"}}`,
		name, name, g.plant("an annotation"), g.plant("the last applied configuration"), g.plant("the managed fields"), g.plant("an argument of a pod"), g.plant("the environment of a pod"))
}

// secret returns a Secret with canaries. A server answers stringData as data.
func (g *guarded) secret() string {
	return fmt.Sprintf(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":"keys","namespace":"shop","uid":"u-keys","resourceVersion":"5"},"data":{"key":%q},"stringData":{"text":%q}}`,
		base64.StdEncoding.EncodeToString([]byte(g.plant("the data of a Secret"))), g.plant("the stringData of a Secret"))
}

// guard plants secrets in the environment and starts the server.
func guard(t *testing.T) *guarded {
	g := &guarded{cluster: []string{"--kubeconfig", simulated(t, nil), "--context", "one"}, passed: map[string]bool{}, canaries: newCanaries(t), t: t, in: t.TempDir(), out: t.TempDir()}
	answers := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, ".yaml"):
			fmt.Fprintln(w, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fetched, namespace: shop}")
		case strings.HasPrefix(r.URL.Path, "/ok"):
		default:
			http.Error(w, fmt.Sprintf("%s with Authorization: %s", r.URL, r.Header.Get("Authorization")), http.StatusUnauthorized)
		}
	}))
	t.Cleanup(answers.Close)
	g.server = answers.URL
	temp := g.to("tmp")
	noError(t, os.Mkdir(temp, 0o755))
	for name, value := range map[string]string{
		"TMPDIR":                temp,
		asCommand:               "1",
		"AWS_ACCESS_KEY_ID":     g.plant("AWS_ACCESS_KEY_ID"),
		"AWS_SECRET_ACCESS_KEY": g.plant("AWS_SECRET_ACCESS_KEY"),
		"AWS_SESSION_TOKEN":     g.plant("AWS_SESSION_TOKEN"),
		"GITHUB_STEP_SUMMARY":   g.to("summary.md"),
	} {
		t.Setenv(name, value)
	}
	return g
}

// telemetry sends spans and profiles to a path of the server.
func (g *guarded) telemetry(path string) {
	g.t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", g.url(path, "OTEL_EXPORTER_OTLP_ENDPOINT"))
	g.t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20"+g.plant("OTEL_EXPORTER_OTLP_HEADERS"))
	g.t.Setenv(telemetry.PyroscopeVar, g.url(path, telemetry.PyroscopeVar))
}

// kubeconfig has a context for each kind of credential.
func (g *guarded) kubeconfig() string {
	key := base64.StdEncoding.EncodeToString([]byte(g.plant("the client key of a kubeconfig")))
	return g.file("kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- {name: refuses, cluster: {server: %q}}
- {name: url, cluster: {server: %q}}
- {name: tls, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: %s}}
users:
- {name: token, user: {token: %q}}
- {name: basic, user: {username: u, password: %q}}
- {name: key, user: {client-certificate-data: %s, client-key-data: %s}}
- {name: exec, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /does/not/exist, interactiveMode: Never, args: [%q], env: [{name: X, value: %q}]}}}
contexts:
- {name: token, context: {cluster: refuses, user: token}}
- {name: basic, context: {cluster: refuses, user: basic}}
- {name: key, context: {cluster: tls, user: key}}
- {name: exec, context: {cluster: refuses, user: exec}}
- {name: url, context: {cluster: url, user: token}}
current-context: token
`, g.server, g.url("/", "a kubeconfig"), key, g.plant("the token of a kubeconfig"), g.plant("the password of a kubeconfig"), key, key,
		g.plant("an argument of a kubeconfig's plugin"), g.plant("the environment of a kubeconfig's plugin")))
}

// call calls the command and fails the test if it wrote a canary.
func (g *guarded) call(verb string, c secretCall) {
	g.t.Helper()
	g.calls++
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	said, code := newOutput(), make(chan int, 1)
	stdin, err := os.Open(g.file("stdin", c.stdin))
	if err != nil {
		g.t.Fatal(err)
	}
	original := os.Stdin
	os.Stdin = stdin
	defer func() {
		os.Stdin = original
		_ = stdin.Close()
	}()
	go func() { code <- run(ctx, append(strings.Fields(verb), c.args...), said, said) }()
	if c.until != "" {
		said.await(g.t, c.until)
		if c.fetch != nil {
			g.read(said, c.fetch)
		}
		cancel()
	}
	got := <-code
	if got == exitOK || got == exitCannotTell {
		g.passed[verb] = true
	}
	what := fmt.Sprintf("watchlab %s %q, exit code %d", verb, c.args, got)
	if places := g.find([]byte(said.String())); len(places) > 0 {
		g.t.Errorf("%s: the output has %q:\n%s", what, places, said)
	}
	g.search(what)
}

// read appends paths of a page, read with the token that the command printed, to the output.
func (g *guarded) read(said *output, paths []string) {
	g.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	page, token := shown.FindStringSubmatch(said.String()), regexp.MustCompile(`password of any user: (\w+)\n`).FindStringSubmatch(said.String())
	if page == nil || token == nil {
		g.t.Fatalf("neither address nor token in\n%s", said)
	}
	for _, p := range paths {
		req, err := http.NewRequest(http.MethodGet, page[1]+p, nil)
		if err != nil {
			g.t.Fatal(err)
		}
		req.SetBasicAuth("any", token[1])
		res, err := client.Do(req)
		if err != nil {
			g.t.Fatal(err)
		}
		first := make([]byte, 1<<20)
		n, err := io.ReadFull(res.Body, first)
		_ = res.Body.Close()
		if ok := res.StatusCode == http.StatusOK; ok == strings.HasSuffix(p, "/cmdline") {
			g.t.Errorf("GET %s: %s", p, res.Status)
		}
		fmt.Fprintf(said, "GET %s: %s, %d bytes, %v\n%s\n", p, res.Status, n, err, first[:n])
	}
}

// search looks for canaries in all files that were written, and removes those of the temporary folder.
func (g *guarded) search(what string) {
	g.t.Helper()
	err := filepath.WalkDir(g.out, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		g.files++
		if places := g.find(data); len(places) > 0 {
			g.t.Errorf("%s: %s has %q", what, path, places)
			return os.Remove(path) // Each call is blamed for its own.
		}
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
}

// shared are the flags of run that any verb of its family takes.
func (g *guarded) shared(storm string) []string {
	return []string{"--family", "queue", "--impl", "clientgo-fifo,ring", "--storm", storm, "--events", "200", "--rounds", "1"}
}

// secretCalls returns good and failing calls of each verb.
func (g *guarded) secretCalls() map[string][]secretCall {
	kubeconfig := g.kubeconfig()
	var lines, watch strings.Builder
	for i := range 5 {
		fmt.Fprintf(&lines, `{"offsetNs":%d,"event":{"type":"ADDED","object":%s}}`+"\n", i+1, g.pod(fmt.Sprintf("web-%d", i)))
		fmt.Fprintf(&watch, `{"type":"ADDED","object":%s}`+"\n", g.pod(fmt.Sprintf("web-%d", i)))
	}
	fmt.Fprintf(&watch, `{"type":"ADDED","object":%s}`+"\n", g.secret())
	storm := g.file("storm.jsonl", lines.String())
	torn := g.file("torn.jsonl", lines.String()+`{"offsetNs":9,"event":{"type":"ADDED","object":{"kind":"Pod","data":"`+g.plant("a torn line")+"\n")
	broken := g.file("broken.yaml", "family: queue\npassword: "+g.plant("an unknown field")+"\n")
	manifest := g.file("manifest.yaml", strings.ReplaceAll(`{"kind":"List","apiVersion":"v1","items":[`+g.pod("mine")+","+g.secret()+"]}", `,"resourceVersion":"5"`, ""))
	wrong := g.file("wrong.yaml", strings.Replace(g.pod("mine"), `"containers"`, `"contaners"`, 1))
	token := g.file("token", g.plant("a token file"))
	plan := g.file("plan.yaml", "run: alone\npods: 2\nexperiment: {family: queue, variants: [cond], storm: {name: "+storm+"}, rounds: 1, events: 2000}\nbarrier: 0s\n")
	bad := []string{"--pyroscope", "ftp://user:" + g.plant("--pyroscope of another scheme") + "@127.0.0.1"}
	telemetry := []string{"--pyroscope", g.url("/ok", "--pyroscope")}
	refused := []string{"--pyroscope", g.url("/refused", "--pyroscope")}
	unparsed := []string{"--pyroscope", "http://user:" + g.plant("--pyroscope that is no URL") + "/x@127.0.0.1:%zz"}
	self, err := os.Executable()
	if err != nil {
		g.t.Fatal(err)
	}
	place := func(args ...string) (calls []secretCall) {
		for _, name := range []string{"token", "basic", "key", "exec", "url", "none"} {
			calls = append(calls, secretCall{args: with([]string{"--kubeconfig", kubeconfig, "--context", name}, args...)})
		}
		return calls
	}
	over := func(args ...string) []secretCall { // of a verb like run
		return []secretCall{{args: with(with(bad, g.shared(storm)...), args...)}, {args: with(with(unparsed, g.shared(storm)...), args...)}, {args: []string{kubeconfig}}}
	}
	return map[string][]secretCall{
		"list": {{}}, "storm": {{}, {args: []string{kubeconfig}}}, "trace": {{}}, "cluster": {{}},
		"storm list": {{}},
		"storm show": {{args: []string{"gang"}}, {args: []string{kubeconfig}}, {args: []string{broken}}, {args: []string{storm}}},
		"run": append(over(),
			secretCall{args: with(with(g.shared(storm), telemetry...), "--out", g.to("run"), "--metrics-addr", "127.0.0.1:0")},
			secretCall{args: with(with(g.shared(storm), refused...), "--out", g.to("refused"), "-o", "json")},
			secretCall{args: with(g.shared(storm), "--out", g.to("profiled"), "--profile", "cpu,heap", "--profile", "allocs")},
			secretCall{args: with(g.shared(storm), "--out", g.to("fresh"), "--memory")},
			secretCall{args: []string{"--resume", g.to("run")}}, secretCall{args: []string{"--resume", g.in}},
			secretCall{args: g.shared(torn)}, secretCall{args: []string{broken}}, secretCall{args: []string{"--experiment", kubeconfig}},
		),
		"dash": append(over(), secretCall{args: with(with(g.shared(storm), telemetry...), "--metrics-addr", "127.0.0.1:0", "--out", g.to("dash")), until: "stays until Ctrl-C",
			fetch: []string{"/", "/metrics", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/cmdline"}}),
		"knee": over(), "scale": over(),
		"reproduce":     {{args: []string{"--list"}}, {args: []string{kubeconfig}}, {args: []string{broken}}, {args: []string{"--resume", g.in}}},
		"cell":          {{args: []string{"Queue/impl=ring"}}},
		"compare":       {{args: []string{g.to("run"), g.to("run")}}, {args: []string{kubeconfig, g.to("run")}}},
		"gate":          {{args: []string{g.to("run"), "--against", g.to("run")}}, {args: []string{kubeconfig, "--against", kubeconfig}}},
		"gate init":     {{}, {args: []string{"controller"}}, {args: []string{kubeconfig}}},
		"report":        {{args: []string{g.to("run")}}, {args: []string{kubeconfig}}, {args: []string{g.in}}},
		"trace inspect": {{args: []string{storm}}, {args: []string{torn}}, {args: []string{kubeconfig}}, {args: []string{storm, "-o", "json"}}},
		"trace convert": {{args: []string{storm, g.to("anonymous.jsonl.zst"), "--anonymise"}}, {args: []string{storm, g.to("anonymous.jsonl"), "--anonymise"}},
			{args: []string{storm, filepath.Join(g.in, "kept.jsonl.zst")}}, {args: []string{torn, g.to("torn.jsonl.zst"), "--anonymise"}}, {args: []string{kubeconfig, g.to("none.jsonl.zst")}}},
		"record": append(place("--resource", "pods,secrets", "--for", "1s", "-o", g.to("refused.jsonl.zst"), "--overwrite"),
			secretCall{args: []string{"-", "-o", g.to("pipe.jsonl.zst")}, stdin: watch.String()},
			secretCall{args: []string{"-", "-o", g.to("torn-pipe.jsonl.zst")}, stdin: watch.String() + `{"type":"ADDED","object":{"data":"` + g.plant("a torn watch")},
			secretCall{args: []string{"-", "-o", g.to("no-watch.jsonl.zst")}, stdin: `{"kind":"Secret","data":"` + g.plant("stdin that is no watch") + `"}`},
			secretCall{args: []string{"-", "--keep", "-o", filepath.Join(g.in, "kept-pipe.jsonl.zst")}, stdin: watch.String()}),
		"serve": {
			{args: []string{"--storm", storm, "--manifest", manifest, "--kubeconfig-out", filepath.Join(g.in, "served"), "--token-file", token, "--start", "0"}, until: "Ctrl-C"},
			{args: []string{"--manifest", wrong, "--tls=false"}}, {args: []string{"--storm", torn, "--tls=false"}}, {args: []string{"--manifest", g.url("/none", "--manifest"), "--tls=false"}},
			{args: []string{"--kubeconfig-out", kubeconfig}}, {args: []string{"--token-file", storm, "--kubeconfig-out", filepath.Join(g.in, "other")}},
		},
		"controller": {
			{args: []string{"--storm", storm, "--manifest", manifest, "--manifest", g.url("/x.yaml", "--manifest"), "--speed", "100", "--faults", "none", "--out", g.to("controller"), "--metrics", g.url("/refused", "--metrics"), "--",
				self, "record", "--resource", "pods,secrets", "-o", "{dir}/pods.jsonl.zst"}},
			{args: []string{"--out", g.to("ended"), "--manifest", manifest, "--", self, "record", "--push", g.url("/", "an argument of a program")}},
			{args: []string{"--out", g.to("none"), "--manifest", wrong, "--", self}}, {args: []string{"--spec", kubeconfig, "--", self}}, {args: []string{"--workload", broken, "--", self}}, {args: []string{"--rules", kubeconfig, "--", self}},
		},
		"client": {{args: []string{"--out", g.to("client"), "--", self, "record", "--push", g.url("/", "an argument of a client")}}, {args: []string{"--behaviours", "nope", "--", self}}},
		"size": {
			{args: []string{"--out", g.to("size"), "--manifest", manifest, "--grow", "configmaps=1,2", "--", self, "record", "--push", g.url("/", "an argument of a sized program")}},
			{args: []string{"--out", g.to("none"), "--manifest", wrong, "--", self}}, {args: []string{"--grow", "nope", "--", self}},
		},
		"cluster run": append(place("--", "--family", "queue", "--storm", "gang", "--scale", "0.01"),
			secretCall{args: with(g.cluster, "--name", "alone", "--pods", "2", "--wait=false", "--", "--family", "queue", "--storm", storm)}),
		"cluster status":  place("--name", "alone"),
		"cluster clean":   place("--name", "alone"),
		"cluster collect": append(place("--name", "alone"), secretCall{args: []string{kubeconfig}}),
		"pod":             {{args: []string{"--plan", plan, "--kubeconfig", g.cluster[1], "--metrics-addr", "127.0.0.1:0"}}, {args: []string{"--plan", broken}}, {args: []string{"--plan", kubeconfig}}},
	}
}

// failing are verbs without a good call: those of a cluster need one, cell a pipe of run --memory, client a watch client, size a controller.
// knee and scale write as run does.
var failing = []string{"cluster status", "cluster clean", "cell", "knee", "scale", "client", "size"}

// verbs are all commands below the root.
func verbs(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, c := range cmd.Commands() {
		all = append(all, verbs(c)...)
	}
	return all
}

// TestSecrets plants secrets wherever a user has them and calls each verb with good and failing input. None is
// in what the command prints, writes or serves, except where the user asks for it: record --keep, trace convert
// without --anonymise, the kubeconfig of serve. Those go to the folder that is not searched.
func TestSecrets(t *testing.T) {
	if testing.Short() {
		t.Skip("plays and serves")
	}
	g := guard(t)
	all := g.secretCalls()
	t.Setenv(fleet.IndexVar, "0")
	t.Setenv(fleet.PodVar, "alone-0")
	t.Setenv(fleet.NamespaceVar, "watchlab")
	order := []string{"run"} // whose results others read
	for _, cmd := range verbs(newRoot(nil)) {
		verb := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), "watchlab"), " ")
		if verb != "" && len(all[verb]) == 0 {
			t.Errorf("%s has no calls: add some", verb)
		}
		if verb != "run" {
			order = append(order, verb)
		}
	}
	for i, verb := range order {
		g.telemetry([]string{"/ok", "/refused"}[i%2])
		for _, c := range all[verb] {
			g.call(verb, c)
		}
	}
	g.record()
	t.Setenv(fleet.IndexVar, "1")
	g.call("pod", all["pod"][0])
	g.call("cluster collect", secretCall{args: with(g.cluster, "--name", "alone", "--out", g.to("collected"))})
	if _, err := os.Stat(g.to("run/report.html")); err != nil {
		t.Error(err)
	}
	for _, verb := range order {
		if verb != "" && !g.passed[verb] && !slices.Contains(failing, verb) {
			t.Errorf("no call of %s succeeded: it wrote nothing", verb)
		}
	}
	t.Logf("%d canaries, %d verbs, %d calls, %d files read", len(g.planted), len(order)-1, g.calls, g.files)
}

// record records the objects of a server.
func (g *guarded) record() {
	g.t.Helper()
	kubeconfig := filepath.Join(g.in, "recorded")
	_, end := serving(g.t, "--storm", filepath.Join(g.in, "storm.jsonl"), "--manifest", filepath.Join(g.in, "manifest.yaml"), "--kubeconfig-out", kubeconfig, "--token-file", filepath.Join(g.in, "token"))
	g.call("record", secretCall{args: []string{"--kubeconfig", kubeconfig, "--resource", "pods,secrets", "--for", "1s", "-o", g.to("recorded.jsonl.zst")}})
	if code, errs := end(); code != exitOK {
		g.t.Errorf("exit code %d: %s", code, errs)
	}
	trace, err := os.ReadFile(g.to("recorded.jsonl.zst"))
	if err != nil || len(trace) < 1000 {
		g.t.Errorf("a trace of %d bytes, %v", len(trace), err)
	}
}
