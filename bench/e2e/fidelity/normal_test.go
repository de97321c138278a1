package fidelity

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// longestBase is the longest prefix of a generateName that a name keeps.
const longestBase = 58

// names maps values that differ between runs to placeholders.
type names struct {
	now func() time.Time
	// seen holds the placeholders by kind and value.
	seen map[string]string
	// count is the number of placeholders by kind.
	count map[string]int
	// generated replaces names that the server generated; pairs are its arguments.
	generated *strings.Replacer
	pairs     []string
}

func newNames() *names {
	return &names{now: time.Now, seen: map[string]string{}, count: map[string]int{}, generated: strings.NewReplacer()}
}

// name returns the placeholder of a value; equal values share one.
func (n *names) name(kind, value string) string {
	key := kind + "\x00" + value
	if s, ok := n.seen[key]; ok {
		return s
	}
	n.count[kind]++
	s := fmt.Sprintf("<%s %d>", kind, n.count[kind])
	n.seen[key] = s
	return s
}

var (
	uids      = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	ages      = regexp.MustCompile(`^\d{1,2}s$`)
	numbers   = regexp.MustCompile(`((?:resource version|current): |ResourceVersion in (?:the )?(?:precondition|record|object meta)[:]? \(?|too old: )\d+( \(\d+\))?`)
	spaces    = regexp.MustCompile(`fidelity-\d+`)
	ports     = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	suffix    = regexp.MustCompile(`^[bcdfghjklmnpqrstvwxz2456789]{5}$`)
	recent    = time.Hour
	quoted    = regexp.MustCompile(`(resourceVersion\\?":\\?"|resourceVersion:)\d+`)
	versioned = map[string]bool{"resourceVersion": true}
)

// normal returns an answer with placeholders. It visits keys in sorted order, so
// that both servers' placeholders get the same numbers.
func (n *names) normal(x any) any { return n.at("", x, false) }

func (n *names) at(key string, x any, list bool) any {
	switch x := x.(type) {
	case map[string]any:
		n.learn(x)
		_, isList := x["items"]
		if _, ok := x["rows"]; ok {
			isList = true
		}
		out := make(map[string]any, len(x))
		for _, k := range sorted(x) {
			// A list has its own resourceVersion, apart from its items'.
			out[k] = n.at(k, x[k], list || isList && k == "metadata")
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = n.at("", x[i], false)
		}
		return out
	case string:
		switch {
		case x == "":
			return x
		case versioned[key] && list:
			// Not comparable: a real server counts the writes of all resources.
			return "<version of the list>"
		case versioned[key]:
			return n.name("version", x)
		case key == "continue":
			return "<token>"
		}
		return n.text(x)
	case json.Number:
		return x.String()
	default:
		return x
	}
}

// text replaces values within a text.
func (n *names) text(s string) string {
	s = n.generated.Replace(s)
	s = uids.ReplaceAllStringFunc(s, func(uid string) string { return n.name("uid", uid) })
	s = times.ReplaceAllStringFunc(s, func(at string) string {
		t, err := time.Parse(time.RFC3339Nano, at)
		if since := n.now().Sub(t); err != nil || since > recent || since < -recent {
			return at
		}
		return "<now>"
	})
	s = numbers.ReplaceAllString(s, "${1}<n>")
	s = spaces.ReplaceAllString(s, "<namespace>")
	s = ports.ReplaceAllString(s, "127.0.0.1:<port>")
	s = quoted.ReplaceAllString(s, "${1}<n>")
	if ages.MatchString(s) {
		return "<age>"
	}
	return s
}

// learn remembers a name that the server generated.
func (n *names) learn(object map[string]any) {
	m, _ := object["metadata"].(map[string]any)
	base, _ := m["generateName"].(string)
	name, _ := m["name"].(string)
	// The server truncates a long base.
	made, ok := strings.CutPrefix(name, base[:min(len(base), longestBase)])
	if base == "" || !ok || !suffix.MatchString(made) {
		return
	}
	n.pairs = append(n.pairs, name, n.name("generated", name))
	n.generated = strings.NewReplacer(n.pairs...)
}
