package apiserver

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

var (
	record = flag.String("record", "", "the kubeconfig of a new kube-apiserver, whose answers TestScripts writes to testdata/recorded")
	update = flag.Bool("update", false, "TestScripts writes the server's answers to testdata/script")
)

// A script is a list of requests with their answers, in blocks between empty lines. testdata/recorded has the
// answers of kube-apiserver v1.37.2; testdata/script has those that the simulated server is meant to give.
//
//	# comment
//	METHOD path [content-type] [accept=type] [code] [brief] [.path...]
//	body…
//	----
//	code and reason
//	the answer: its object or the given fields; the message and the causes of an error; the events of a watch
//	warnings
//
// $RV and $UID are the resourceVersion and the uid of the last answer; shown versions count from the setup; $NEXT is the last continue token, $WIDGETS is
// testdata/widgets.yaml. Uids and times are not shown, and a whole object has no resourceVersion. code shows the code
// only; brief shows the metadata, the status and the replicas only. Other blocks control the server:
//
//	server graceful retain=3 pods=200   opens another one, with a storm of pods
//	release 100                         makes the storm's events visible
//	wait 1m
type exchange struct {
	comment []string
	words   []string // of the first line; none for a comment
	body    string
	answer  string
}

func readScript(t *testing.T, path string) (script []exchange) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for block := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n\n") {
		var x exchange
		lines := strings.Split(block, "\n")
		for len(lines) > 0 && strings.HasPrefix(lines[0], "#") {
			x.comment, lines = append(x.comment, lines[0]), lines[1:]
		}
		if len(lines) > 0 {
			x.words = strings.Fields(lines[0])
			body, answer, _ := strings.Cut(strings.Join(lines[1:], "\n")+"\n", "----\n")
			x.body, x.answer = strings.TrimLeft(body, "\n"), strings.TrimSpace(answer)
		}
		script = append(script, x)
	}
	return script
}

func (x exchange) isRequest() bool {
	return len(x.words) > 0 && x.words[0] == strings.ToUpper(x.words[0])
}

func (x exchange) String() string {
	lines := slices.Clone(x.comment)
	if len(x.words) > 0 {
		lines = append(lines, strings.Join(x.words, " "))
	}
	if x.isRequest() {
		lines = append(lines, x.body+"----", x.answer)
	}
	return strings.Join(lines, "\n") + "\n"
}

// option returns the value of a word name=value.
func (x exchange) option(name string) string {
	for _, word := range x.words {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value
		}
	}
	return ""
}

func (x exchange) number(name string) int {
	n, _ := strconv.Atoi(x.option(name))
	return n
}

// scripted plays scripts, on the simulated server or on another one.
type scripted struct {
	*testing.T
	server *Server // nil for another one
	client http.RoundTripper
	host   string
	last   struct{ ResourceVersion, UID string }
	next   string // continue token
	base   int    // the version after the setup
	// recorded scripts have the answers of another server.
	recorded bool
}

func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(scripts) < 10 {
		t.Fatalf("%d scripts: %v", len(scripts), err)
	}
	for _, path := range scripts {
		recorded := strings.Contains(path, "recorded")
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			if *record != "" && recorded {
				config, err := clientcmd.BuildConfigFromFlags("", *record)
				if err != nil {
					t.Fatal(err)
				}
				client, err := rest.TransportFor(config)
				if err != nil {
					t.Fatal(err)
				}
				(&scripted{T: t, client: client, host: config.Host, recorded: true}).play(path, true)
				return
			}
			// The order of managed fields depends on whether a second has passed between two
			// requests. In a bubble none has.
			synctest.Test(t, func(t *testing.T) {
				s := &scripted{T: t, recorded: recorded}
				s.open(exchange{})
				defer func() { _ = s.server.Close() }()
				s.play(path, *update && !recorded)
			})
		})
	}
}

// open opens a simulated server.
func (s *scripted) open(x exchange) {
	s.Helper()
	opts := Options{Graceful: slices.Contains(x.words, "graceful"), Retain: x.number("retain")}
	var err error
	if n := x.number("pods"); n > 0 {
		s.server, err = New(pods(n), opts)
	} else {
		s.server, err = Open(opts)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.client, s.host = s.server.Transport("script"), "http://simulated"
}

// play sends the requests of a script and compares the answers, or writes them to the script.
func (s *scripted) play(path string, write bool) {
	s.Helper()
	for _, x := range readScript(s.T, "testdata/setup.txt") {
		s.ask(x)
	}
	s.base, _ = strconv.Atoi(s.last.ResourceVersion)
	if s.server == nil {
		time.Sleep(2 * time.Second) // A real server establishes the definition.
	}
	script := readScript(s.T, path)
	for i, x := range script {
		switch {
		case len(x.words) == 0:
			continue
		case x.isRequest():
		case x.words[0] == "server":
			if err := s.server.Close(); err != nil {
				s.Error(err)
			}
			s.open(x)
			s.base = 1
			continue
		case x.words[0] == "release":
			n, _ := strconv.Atoi(x.words[1])
			s.server.Release(uint64(n))
			continue
		default:
			d, err := time.ParseDuration(x.words[1])
			if x.words[0] != "wait" || err != nil {
				s.Fatalf("%s: %q", path, x.words)
			}
			time.Sleep(d)
			continue
		}
		got := s.ask(x)
		if write {
			script[i].answer = got
		} else if diff := gocmp.Diff(sortManaged(x.answer), sortManaged(got)); diff != "" {
			x.answer = ""
			s.Errorf("%s(-script +server)\n%s", x, diff)
		}
	}
	if !write {
		return
	}
	var out []string
	for _, x := range script {
		out = append(out, x.String())
	}
	if err := os.WriteFile(path, []byte(strings.Join(out, "\n")), 0o600); err != nil {
		s.Fatal(err)
	}
}

// ask sends a request and returns the answer as text.
func (s *scripted) ask(x exchange) string {
	s.Helper()
	widgets, err := os.ReadFile("testdata/widgets.yaml")
	if err != nil {
		s.Fatal(err)
	}
	fill := strings.NewReplacer("$RV", s.last.ResourceVersion, "$UID", s.last.UID, "$NEXT", s.next, "$WIDGETS", string(widgets))
	req, err := http.NewRequestWithContext(s.Context(), x.words[0], s.host+fill.Replace(x.words[1]), strings.NewReader(fill.Replace(x.body)))
	if err != nil {
		s.Fatal(err)
	}
	req.Header.Set("User-Agent", "recorded/1")
	if accept := x.option("accept"); accept != "" {
		req.Header.Set("Accept", accept)
	}
	var fields []string
	for _, word := range x.words[2:] {
		switch {
		case strings.HasPrefix(word, "."):
			fields = append(fields, word)
		case strings.Contains(word, "/") && !strings.Contains(word, "accept="):
			req.Header.Set("Content-Type", word)
		}
	}
	res, err := s.client.RoundTrip(req)
	for try := 0; s.server == nil && try < 8 && err == nil && res.StatusCode == http.StatusTooManyRequests; try++ {
		time.Sleep(2 * time.Second) // Its watch cache begins anew with a changed definition.
		_ = res.Body.Close()
		res, err = s.client.RoundTrip(req)
	}
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		s.Fatal(err)
	}
	lines := []string{strconv.Itoa(res.StatusCode)}
	var content map[string]any
	unknown := json.Unmarshal(body, &content)
	s.remember(content)
	switch {
	case slices.Contains(x.words, "code"):
	case strings.Contains(x.words[1], "watch=") && res.StatusCode == http.StatusOK:
		for line := range strings.Lines(string(body)) {
			lines = append(lines, s.event([]byte(line), fields))
		}
	case unknown != nil:
		lines = append(lines, strings.TrimSpace(string(body)))
	case content["kind"] == "Status":
		lines = s.status(body)
	case len(fields) > 0:
		lines = append(lines, s.fields(content, fields)...)
	default:
		lines = append(lines, s.object(content, slices.Contains(x.words, "brief"))...)
	}
	for _, w := range res.Header.Values("Warning") {
		text, err := strconv.Unquote(strings.TrimPrefix(w, "299 - "))
		if err != nil {
			s.Fatalf("%s: %v", w, err)
		}
		lines = append(lines, "warning: "+text)
	}
	text := different.ReplaceAllString(strings.Join(lines, "\n"), "…")
	return strings.NewReplacer("[]handlers.jsonPatchOp", "[]jsonPatchOp", "[]patch.jsonPatchOp", "[]jsonPatchOp").Replace(text)
}

// remember keeps what later requests may name.
func (s *scripted) remember(content map[string]any) {
	metadata, _ := content["metadata"].(map[string]any)
	text := func(field string) string {
		value, _ := metadata[field].(string)
		return value
	}
	if metadata != nil && content["kind"] != "Status" {
		s.last.ResourceVersion, s.last.UID = text("resourceVersion"), text("uid")
	}
	s.next = cmp.Or(text("continue"), s.next)
}

// different matches values that differ between runs.
var different = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\\"resourceVersion\\":\\"\d+\\"|revision=\d+|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// status describes a Status: code, reason, message and causes.
func (s *scripted) status(body []byte) []string {
	var status metav1.Status
	if err := json.Unmarshal(body, &status); err != nil {
		s.Fatal(err)
	}
	if status.APIVersion != "v1" || status.Status == metav1.StatusFailure && (status.Code < http.StatusBadRequest || status.Message == "") {
		s.Errorf("a status without version, code or message: %s", body)
	}
	code := int(status.Code)
	if code == 0 {
		code = http.StatusOK
	}
	var causes []string
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			causes = append(causes, fmt.Sprintf("cause: %s %s: %s", c.Type, c.Field, c.Message))
		}
	}
	// A real server validates schemas in map order and metadata twice.
	slices.Sort(causes)
	message := status.Message
	if head, _, several := strings.Cut(message, " is invalid: ["); several {
		message = head + " is invalid: […]"
	}
	lines := []string{strings.TrimSpace(fmt.Sprint(code, " ", status.Reason))}
	if message != "" {
		lines = append(lines, "message: "+message)
	}
	return append(lines, slices.Compact(causes)...)
}

// fields describes an answer by some of its fields, whose paths are JSON paths.
func (s *scripted) fields(content any, paths []string) (lines []string) {
	for _, path := range paths {
		p := jsonpath.New(path).AllowMissingKeys(true)
		if err := p.Parse("{" + path + "}"); err != nil {
			s.Fatal(err)
		}
		found, err := p.FindResults(content)
		if err != nil {
			s.Fatal(err)
		}
		var values []string
		for _, v := range found[0] {
			text, ok := v.Interface().(string)
			if strings.HasSuffix(path, "metadata.resourceVersion") {
				text = s.version(text)
			}
			if !ok {
				data, err := json.Marshal(v.Interface())
				if err != nil {
					s.Fatal(err)
				}
				text = string(data)
			}
			values = append(values, text)
		}
		lines = append(lines, strings.TrimSpace(path+": "+strings.Join(values, " ")))
	}
	return lines
}

// version shows a version: the first after the setup is 2. Versions of another server have gaps, and are not shown.
func (s *scripted) version(text string) string {
	n, err := strconv.Atoi(text)
	if s.recorded || err != nil {
		return "…"
	}
	return strconv.Itoa(n - s.base + 1)
}

// event describes an event of a watch: its type, and the name, the version and the given fields of its object.
func (s *scripted) event(line []byte, fields []string) string {
	var e struct {
		Type   string
		Object map[string]any
	}
	var object struct {
		Object metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(line, &e); err != nil {
		s.Fatalf("%v: %s", err, line)
	}
	if e.Type == "ERROR" {
		data, _ := json.Marshal(e.Object)
		return "ERROR " + s.status(data)[0]
	}
	if err := json.Unmarshal(line, &object); err != nil {
		s.Fatalf("%v: %s", err, line)
	}
	text := fmt.Sprintf("%s %s@%s", e.Type, object.Object.Name, s.version(object.Object.ResourceVersion))
	if object.Object.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
		text += " ends the initial events"
	}
	return strings.Join(append([]string{text}, s.fields(e.Object, fields)...), " ")
}

// object describes a whole object and its managed fields.
func (s *scripted) object(content map[string]any, brief bool) []string {
	metadata, _ := content["metadata"].(map[string]any)
	managed, _ := metadata["managedFields"].([]any)
	for _, k := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields"} {
		delete(metadata, k)
	}
	if brief {
		shown := map[string]any{"metadata": metadata, "status": content["status"]}
		if spec, ok := content["spec"].(map[string]any); ok {
			shown["replicas"] = spec["replicas"]
		}
		content, managed = shown, nil
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		s.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	for _, m := range managed {
		entry := m.(map[string]any)
		fields, err := json.Marshal(entry["fieldsV1"])
		if err != nil {
			s.Fatal(err)
		}
		line := fmt.Sprintf("managed: %v %v %v", entry["manager"], entry["operation"], entry["apiVersion"])
		if sub, ok := entry["subresource"]; ok {
			line += fmt.Sprintf("/%v", sub)
		}
		lines = append(lines, line+" "+string(fields))
	}
	return lines
}

// sortManaged sorts the lines of managed fields. Real servers order them by their times
// in seconds, which differ between runs.
func sortManaged(answer string) string {
	lines := strings.Split(answer, "\n")
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "managed: ") })
	if at < 0 {
		return answer
	}
	end := at
	for end < len(lines) && strings.HasPrefix(lines[end], "managed: ") {
		end++
	}
	slices.Sort(lines[at:end])
	return strings.Join(lines, "\n")
}
