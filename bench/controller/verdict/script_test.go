package verdict

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/yaml"

	"watchlab/bench/controller/record"
	"watchlab/bench/controller/rules"
	"watchlab/bench/internal/golden"
	"watchlab/loadgen/fault"
)

// A script has the cases of one verdict, whose name is that of the file. A case begins with -- NAME -- and has
// lines:
//
//	over TIME | quiet TIME | end TIME                           of the storm, of the changes, of the play
//	TIME CLIENT TYPE RESOURCE KEY VERSION [OBJECT]              a change, with the object in YAML
//	TIME CLIENT VERB RESOURCE[/SUBRESOURCE] KEY CODE [FIELD …]  an access: based=, took=, out=, unchanged, state, dry-run
//	TIME CLIENT sample [mb=] [goroutines=] [files=]             of its process
//	TIME CLIENT exit planned|crashed                            of its process
//	TIME FAULT hits PATH OCCURRENCE                             an injection
//	plan FAULTS | beside NAME …
//	violation OBJECT: TEXT                                      with the last change of the play
//	answered N of M
//	faults                                                      ends a play without faults; the first is compared with the last play
//
// Before a line, NxPERIOD repeats it, and {n} in it is the number: 3x100ms 1s a update pods d/{n} 200. A version
// may be a sum such as 5+{n}. The lines after = are what is expected: the sentence of the verdict, and the evidence of all
// failed verdicts.
func TestScripts(t *testing.T) {
	golden.Scripts(t, func(t *testing.T, name, text string) string {
		var out strings.Builder
		c := newScript()
		inCase := false
		judge := func() {
			if inCase {
				out.WriteString(c.outcome(strings.ReplaceAll(name, "-", " ")))
			}
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "=") {
				continue
			}
			if strings.HasPrefix(line, "-- ") {
				judge()
				c, inCase = newScript(), true
			} else if inCase {
				c.repeat(t, strings.TrimSpace(line))
			}
			out.WriteString(line)
		}
		judge()
		return out.String()
	})
}

type script struct {
	play       record.Play
	free       *Outcome
	reactions  []rules.Reaction
	violations []rules.Violation
}

func newScript() *script {
	return &script{play: record.Play{Over: 10 * time.Second, Quiet: new(10 * time.Second), End: 15 * time.Second}}
}

func (s *script) outcome(name string) string {
	var b strings.Builder
	verdicts := Judge(&s.play, s.reactions, s.violations)
	if s.free != nil {
		o := OutcomeOf(&s.play)
		verdicts = append(verdicts, Diverge(s.free, o), Acted(s.free, o, &s.play))
		verdicts = append(verdicts, Wedge(s.free, o, &s.play, verdicts))
	}
	Explain(&s.play, verdicts)
	for _, v := range verdicts {
		word := map[bool]string{true: "failed", false: "passed"}[v.Failed]
		if v.Failed || v.Name == name {
			fmt.Fprintf(&b, "= %s %s: %s\n", v.Name, word, v.Text)
		}
		for _, e := range v.Evidence {
			fmt.Fprintf(&b, "=   %v %s\n", e.At, e.Text)
			if e.Why != "" {
				fmt.Fprintf(&b, "=     %s\n", e.Why)
			}
		}
	}
	return b.String()
}

// repeat reads a line as often as it says.
func (s *script) repeat(t testing.TB, line string) {
	t.Helper()
	line, _, _ = strings.Cut(line, " #")
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	times, period, ok := strings.Cut(words[0], "x")
	n, err := strconv.Atoi(times)
	if !ok || err != nil {
		s.read(t, words)
		return
	}
	from := duration(t, words[1])
	for i := range n {
		next := []string{(from + time.Duration(i)*duration(t, period)).String()}
		for _, word := range words[2:] {
			next = append(next, strings.ReplaceAll(word, "{n}", strconv.Itoa(i)))
		}
		s.read(t, next)
	}
}

func (s *script) read(t testing.TB, words []string) {
	t.Helper()
	p := &s.play
	switch words[0] {
	case "over":
		p.Over = duration(t, words[1])
		return
	case "quiet":
		if p.Quiet = nil; words[1] != "never" {
			p.Quiet = new(duration(t, words[1]))
		}
		return
	case "end":
		p.End = duration(t, words[1])
		return
	case "faults":
		if o := OutcomeOf(p); s.free == nil {
			s.free = o
		} else {
			s.free.Vary(o)
		}
		*p = newScript().play
		return
	case "beside":
		p.Beside = words[1:]
		return
	case "plan":
		faults, err := fault.ParseAll(strings.Join(words[1:], " "))
		if err != nil {
			t.Fatal(err)
		}
		p.Faults = faults
		return
	case "violation":
		object, text, _ := strings.Cut(strings.Join(words[1:], " "), ": ")
		v := rules.Violation{Rule: "a rule", Object: object, Text: text}
		if n := len(p.Changes); n > 0 {
			v.Last = &p.Changes[n-1]
		}
		s.violations = append(s.violations, v)
		return
	case "answered":
		s.reactions = make([]rules.Reaction, number(t, words[3]))
		for i := range number(t, words[1]) {
			s.reactions[i].Answer = &record.Access{}
		}
		return
	}
	at, client, kind := duration(t, words[0]), words[1], words[2]
	switch {
	case kind == "hits":
		p.Injections = append(p.Injections, fault.Injection{
			Spec: max(0, slices.IndexFunc(p.Faults, func(f fault.Spec) bool { return string(f.Name) == client })),
			At:   fault.Duration(at), Fault: fault.Name(client), Path: words[3], Occurrence: number(t, words[4]), Watch: 1,
		})
	case kind == "sample":
		sample := record.Sample{At: at, Client: client, RSS: 50e6, Goroutines: 20, Files: 10}
		for _, word := range words[3:] {
			field, value, _ := strings.Cut(word, "=")
			switch n := number(t, value); field {
			case "mb":
				sample.RSS = int64(n) * 1e6
			case "goroutines":
				sample.Goroutines = n
			case "files":
				sample.Files = n
			default:
				t.Fatalf("%v: %s", words, field)
			}
		}
		p.Samples = append(p.Samples, sample)
	case kind == "exit":
		e := record.Exit{At: at, Client: client, Planned: words[3] == "planned", Status: "signal: killed"}
		if !e.Planned {
			e.Status = "exit status 1"
		}
		p.Exits = append(p.Exits, e)
	case slices.Contains([]watch.EventType{watch.Added, watch.Modified, watch.Deleted}, watch.EventType(kind)):
		resource, _ := resourceNamed(words[3])
		object := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSON([]byte(strings.Join(words[6:], " ")))
		if err := errors.Join(err, json.Unmarshal(text, &object.Object)); err != nil {
			t.Fatal(err)
		}
		namespace, name, _ := strings.Cut(words[4], "/")
		object.SetNamespace(namespace)
		object.SetName(name)
		change := record.Change{
			At: at, Intended: at, By: client, Type: watch.EventType(kind), Resource: resource, Key: words[4], Version: uint64(number(t, words[5])), Object: object,
		}
		for before := range record.Each(p.Changes) {
			if before.ID() == change.ID() && change.Type != watch.Added && len(words) > 6 {
				change.Before = before.Object
			}
		}
		p.Changes = append(p.Changes, change)
	default:
		p.Accesses = append(p.Accesses, access(t, at, words))
	}
}

func access(t testing.TB, at time.Duration, words []string) record.Access {
	t.Helper()
	a := record.Access{At: at, Took: time.Millisecond, Client: words[1], Verb: words[2], Key: words[4], Code: number(t, words[5])}
	a.Resource, a.Subresource = resourceNamed(words[3])
	if a.Key == "all" {
		a.Key = ""
	}
	for _, word := range words[6:] {
		field, value, _ := strings.Cut(word, "=")
		switch field {
		case "based":
			a.Based = uint64(number(t, value))
		case "took":
			a.Took = duration(t, value)
		case "out":
			a.Out = int64(number(t, value))
		case "unchanged":
			a.Unchanged = true
		case "state":
			a.State = true
		case "dry-run":
			a.DryRun = true
		default:
			t.Fatalf("%v: %s", words, field)
		}
	}
	return a
}

func resourceNamed(text string) (r schema.GroupVersionResource, subresource string) {
	text, subresource, _ = strings.Cut(text, "/")
	r.Version = "v1"
	r.Resource, r.Group, _ = strings.Cut(text, ".")
	return r, subresource
}

func duration(t testing.TB, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func number(t testing.TB, text string) (sum int) {
	t.Helper()
	for part := range strings.SplitSeq(text, "+") {
		n, err := strconv.Atoi(part)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
