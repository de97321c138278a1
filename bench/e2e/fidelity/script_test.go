package fidelity

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/discovery"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// patience is the time limit for an expected watch event. A missing event is recorded as "nothing".
const patience = 30 * time.Second

// step is a line of a question; testdata/questions.txt has the grammar.
type step struct {
	label, verb, target, body string
	given                     bool
	header                    http.Header
}

var stepLine = regexp.MustCompile(`^(?:(\w+) = )?(given )?([A-Z]+)(?: (\S+))?((?: [A-Z][\w-]*:\S+)*)(?: (.*))?$`)

// Questions reads the questions.
func Questions() (all []Question, err error) {
	text, err := os.ReadFile(filepath.Join("testdata", "questions.txt"))
	if err != nil {
		return nil, err
	}
	_, script, _ := strings.Cut(string(text), "\n\n# ")
	area := ""
	for n, line := range strings.Split("# "+script, "\n") {
		q := &Question{}
		if len(all) > 0 {
			q = &all[len(all)-1]
		}
		switch m := stepLine.FindStringSubmatch(line); {
		case line == "":
		case strings.HasPrefix(line, "# "):
			area = line[2:]
		case strings.HasPrefix(line, "## "):
			all = append(all, Question{Area: area, Title: line[3:]})
		case strings.HasPrefix(line, "why "):
			known, why, _ := strings.Cut(line[4:], ": ")
			if q.Known, err = strconv.Atoi(known); err != nil {
				return nil, fmt.Errorf("line %d of the questions: %q", n, line)
			}
			q.Why = why
		case m != nil:
			s := step{label: m[1], given: m[2] != "", verb: m[3], target: m[4], body: m[6], header: http.Header{}}
			for field := range strings.FieldsSeq(m[5]) {
				name, value, _ := strings.Cut(field, ":")
				s.header.Set(name, value)
			}
			q.Steps = append(q.Steps, s)
		default:
			return nil, fmt.Errorf("line %d of the questions: %q", n, line)
		}
	}
	return all, nil
}

// Answer is one recorded response or watch event.
type Answer struct {
	// Call is the request: method and path, or "watch" for an event.
	Call string
	// Said is the answer as decoded JSON.
	Said map[string]any
}

// player plays a question to a server.
type player struct {
	*Server
	namespace string
	answers   []Answer
	objects   map[string]map[string]any // by label
	watches   map[string]chan frame
}

type frame struct {
	Type   string
	Object map[string]any
	member any // of a compressed watch: its number and its gzip header
}

// run runs a question in a new namespace that accepts pods.
func (s *Server) run(ctx context.Context, q Question, namespace string) ([]Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &player{Server: s, namespace: namespace, objects: map[string]map[string]any{}, watches: map[string]chan frame{}}
	steps := append([]step{
		{verb: "POST", given: true, target: "/api/v1/namespaces", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"$NS"}}`},
		{verb: "POST", given: true, target: "serviceaccounts", body: `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`},
	}, q.Steps...)
	for _, step := range steps {
		if err := p.play(ctx, step); err != nil {
			return nil, fmt.Errorf("%s: %w: %s %s: %w", s.Name, errSetup, step.verb, step.target, err)
		}
	}
	n := newNames()
	for i, a := range p.answers {
		said, _ := n.normal(a.Said).(map[string]any)
		p.answers[i] = Answer{n.text(a.Call), said}
	}
	return p.answers, nil
}

func (p *player) play(ctx context.Context, s step) error {
	switch s.verb {
	case "FORGET":
		return p.Forget(ctx)
	case "DISCOVER":
		return p.discover(s.target)
	case "READ":
		p.read(s)
		return nil
	}
	return p.request(ctx, s)
}

func (p *player) add(call string, said map[string]any) {
	p.answers = append(p.answers, Answer{call, said})
}

// prefixes are the paths of resources outside of the core group.
var prefixes = map[string]string{
	"deployments": "/apis/apps/v1", "leases": "/apis/coordination.k8s.io/v1", "widgets": "/apis/fidelity.watchlab.dev/v1",
	"v1beta1": "/apis/fidelity.watchlab.dev/v1beta1",
}

// patches are the media types of PATCH.
var patches = map[string]string{
	"MERGE": "application/merge-patch+json", "JSONPATCH": "application/json-patch+json",
	"STRATEGIC": "application/strategic-merge-patch+json", "APPLY": "application/apply-patch+yaml",
}

// request sends a request and records its answer.
func (p *player) request(ctx context.Context, s step) error {
	target, err := p.expand(s.target)
	if err != nil {
		return err
	}
	path, query, _ := strings.Cut(target, "?")
	if path[0] != '/' {
		kind, _, _ := strings.Cut(path, "/")
		prefix, ok := prefixes[kind]
		if !ok {
			prefix = "/api/v1"
		}
		path = prefix + "/namespaces/" + p.namespace + "/" + strings.TrimPrefix(path, "v1beta1/")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return err
	}
	method, media := s.verb, s.header.Get("Content-Type")
	if patch, ok := patches[s.verb]; ok {
		method = http.MethodPatch
		if media == "" {
			media = patch
		}
	}
	if method == "WATCH" {
		method = http.MethodGet
		values.Set("watch", "true")
	}
	body, err := p.bodyOf(s.body, media)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.URL.RawQuery = values.Encode()
	req.Header.Set("Accept", runtime.ContentTypeJSON)
	maps.Copy(req.Header, s.header)
	if req.Header.Set("Content-Type", media); media == "none" || media == "" && method == http.MethodGet {
		req.Header.Del("Content-Type")
	} else if media == "" {
		req.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	said := map[string]any{"code": resp.StatusCode}
	for _, name := range []string{"Content-Type", "Content-Encoding", "Warning", "Allow", "Retry-After"} {
		if v := resp.Header.Values(name); len(v) > 0 {
			said[name] = strings.Join(v, "; ")
		}
	}
	call := method + " " + short(path)
	got, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if s.verb == "WATCH" && resp.StatusCode == http.StatusOK {
		p.add(call, said)
		p.watches[s.label] = make(chan frame)
		go frames(ctx, resp, got, p.watches[s.label])
		return nil
	}
	var text []byte
	if resp.Header.Get("Content-Encoding") == "gzip" {
		said["Vary"] = resp.Header.Values("Vary")
		text, said["gzip"], err = member(bufio.NewReader(resp.Body), io.ReadAll)
	} else {
		text, err = io.ReadAll(resp.Body)
	}
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	switch got {
	case runtime.ContentTypeJSON:
		said["body"] = decoded(text)
	case runtime.ContentTypeProtobuf:
		said["body"] = fromProtobuf(text)
	case "text/plain", "application/yaml":
		said["body"] = string(text)
	}
	p.objects[s.label], _ = said["body"].(map[string]any)
	if !s.given {
		p.add(call, said)
	} else if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	return nil
}

var reference = regexp.MustCompile(`\$\{(\w+)(?:\.(\w+)|\*(\d+))\}`)

// expand replaces references to earlier answers, repeated text and the namespace.
func (p *player) expand(text string) (_ string, err error) {
	text = reference.ReplaceAllStringFunc(text, func(ref string) string {
		m := reference.FindStringSubmatch(ref)
		if n, repeats := strconv.Atoi(m[3]); repeats == nil {
			return strings.Repeat(m[1], n)
		}
		metadata, _ := p.objects[m[1]]["metadata"].(map[string]any)
		key := map[string]string{"version": "resourceVersion", "uid": "uid", "continue": "continue", "aged": "continue"}[m[2]]
		value, _ := metadata[key].(string)
		if m[2] == "aged" {
			value, err = aged(value)
		}
		return value
	})
	return strings.ReplaceAll(text, "$NS", p.namespace), err
}

// aged returns a continue token for the same page at version 2. Clients must not look into tokens; the test does,
// because a token expires only after minutes.
func aged(token string) (string, error) {
	text, err := base64.RawURLEncoding.DecodeString(token)
	var t map[string]any
	if err = errors.Join(err, json.Unmarshal(text, &t)); err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	t["rv"] = 2
	text, err = json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(text), err
}

// bodyOf returns the body of a request.
func (p *player) bodyOf(text, media string) (body []byte, err error) {
	if strings.HasPrefix(text, `"`) {
		if text, err = strconv.Unquote(text); err != nil {
			return nil, err
		}
	}
	if file, ok := strings.CutPrefix(text, "@"); ok {
		fields := strings.Fields(file)
		manifest, err := os.ReadFile(filepath.Join("testdata", fields[0]))
		if err != nil {
			return nil, err
		}
		for _, field := range fields[1:] {
			key, value, _ := strings.Cut(field, "=")
			manifest = bytes.ReplaceAll(manifest, []byte("$"+key), []byte(value))
		}
		return yaml.YAMLToJSON(manifest)
	}
	if label, patch, ok := strings.Cut(text, "}"); ok && strings.HasPrefix(label, "${") && !strings.ContainsAny(label, ".*") {
		if body, err = json.Marshal(p.objects[label[2:]]); err == nil && patch != "" {
			body, err = jsonpatch.MergePatch(body, []byte(patch))
		}
	} else {
		text, err = p.expand(text)
		body = []byte(text)
	}
	if err == nil && media == runtime.ContentTypeProtobuf {
		body, err = toProtobuf(body)
	}
	return body, err
}

// read records the events of a watch.
func (p *player) read(s step) {
	how, name, _ := strings.Cut(s.body, " ")
	count, _ := strconv.Atoi(how) // 0 for words
	late := time.NewTimer(patience)
	defer late.Stop()
	for n := 1; ; n++ {
		select {
		case f, ok := <-p.watches[s.target]:
			if !ok {
				p.add("watch", map[string]any{"event": "the end"})
				return
			}
			said := map[string]any{"event": f.Type, "object": f.Object}
			if f.member != nil {
				said["member"] = f.member
			}
			p.add("watch", said)
			p.objects[s.label] = f.Object
			metadata, _ := f.Object["metadata"].(map[string]any)
			named := metadata["name"] == name
			if f.Type == "ERROR" || n == count || how == "until" && named && f.Type != "BOOKMARK" ||
				how == "gone" && named && f.Type == "DELETED" || how == "bookmark" && f.Type == "BOOKMARK" {
				return
			}
		case <-late.C:
			p.add("watch", map[string]any{"event": "nothing for " + patience.String()})
			return
		}
	}
}

// frames sends the events of a watch until it ends.
func frames(ctx context.Context, resp *http.Response, media string, to chan<- frame) {
	defer close(to)
	defer func() { _ = resp.Body.Close() }()
	send := func(r io.Reader, of any) {
		next := json.NewDecoder(r)
		next.UseNumber()
		binary := protobuf.LengthDelimitedFramer.NewFrameReader(io.NopCloser(r))
		buffer := make([]byte, 1<<20)
		for {
			f := frame{member: of}
			if media == runtime.ContentTypeProtobuf {
				n, err := binary.Read(buffer)
				var event metav1.WatchEvent
				if err != nil || event.Unmarshal(buffer[:n]) != nil {
					return
				}
				f.Type, f.Object = event.Type, fromProtobuf(event.Object.Raw)
			} else if next.Decode(&f) != nil {
				return
			}
			select {
			case to <- f:
			case <-ctx.Done():
				return
			}
		}
	}
	if resp.Header.Get("Content-Encoding") != "gzip" {
		send(resp.Body, nil)
		return
	}
	body := bufio.NewReader(resp.Body)
	for n := 1; ; n++ {
		start, err := body.Peek(10)
		if err != nil {
			return
		}
		of := fmt.Sprintf("%d: %x", n, start)
		if _, _, err := member(body, func(r io.Reader) ([]byte, error) { send(r, of); return nil, nil }); err != nil {
			return
		}
	}
}

// member reads a gzip member and returns its header.
func member(body *bufio.Reader, read func(io.Reader) ([]byte, error)) (text []byte, head string, err error) {
	start, err := body.Peek(10)
	if err != nil {
		return nil, "", err
	}
	head = fmt.Sprintf("%x", start)
	z, err := gzip.NewReader(body)
	if err != nil {
		return nil, head, err
	}
	z.Multistream(false)
	text, err = read(z)
	return text, head, err
}

// discover records what client-go's discovery client finds.
func (p *player) discover(what string) error {
	client, err := discovery.NewDiscoveryClientForConfig(p.config)
	if err != nil {
		return err
	}
	said := map[string]any{}
	if what == "openapi" {
		paths, err := client.OpenAPIV3().Paths()
		for path := range paths {
			said[path] = true
		}
		p.add("paths", said)
		return err
	}
	lists, err := client.ServerPreferredResources()
	for _, l := range lists {
		for _, r := range l.APIResources {
			text, err := json.Marshal(r)
			if err != nil {
				return err
			}
			said[l.GroupVersion+" "+r.Name] = decoded(text)
		}
	}
	p.add("resources", said)
	return err
}

// short returns a path without the prefix up to the namespace.
func short(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > 3 {
		for j, p := range parts {
			if p == "namespaces" && j+2 < len(parts) {
				return strings.Join(parts[j+2:], "/")
			}
		}
	}
	return strings.Join(parts, "/")
}

// decoded returns decoded JSON, or the text of anything else.
func decoded(body []byte) any {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var x any
	if err := d.Decode(&x); err != nil {
		return string(body)
	}
	return x
}

// scheme has the kinds of client-go and those of all groups.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(s), metav1.AddMetaToScheme(s)); err != nil {
		panic(err)
	}
	return s
}()

func fromProtobuf(body []byte) map[string]any {
	object, kind, err := protobuf.NewSerializer(scheme, scheme).Decode(body, nil, nil)
	if err != nil {
		return map[string]any{"cannot be decoded": err.Error()}
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	text, err := json.Marshal(object)
	if err != nil {
		return map[string]any{"cannot be encoded": err.Error()}
	}
	m, _ := decoded(text).(map[string]any)
	return m
}

func toProtobuf(body []byte) ([]byte, error) {
	object, kind, err := serializer.NewCodecFactory(scheme).UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(*kind)
	return runtime.Encode(protobuf.NewSerializer(scheme, scheme), object)
}
