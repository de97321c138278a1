package fidelity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Difference is one field in which two answers differ.
type Difference struct {
	// Call is the request. Path is the path of the field in the answer.
	Call, Path string
	// Theirs is the value of the real server, Ours that of the simulated server. Both
	// are JSON, or [Nothing] for an absent field.
	Theirs, Ours string
}

// Nothing stands for an absent field.
const Nothing = "—"

// String returns the difference on one line.
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s: %s, not %s", d.Call, d.Path, d.Ours, d.Theirs)
}

// compare returns the differences between two servers' answers, in order.
func compare(theirs, ours []Answer) []Difference {
	var found []Difference
	for i := range max(len(theirs), len(ours)) {
		switch {
		case i >= len(ours):
			found = append(found, Difference{theirs[i].Call, "", text(theirs[i].Said), Nothing})
		case i >= len(theirs):
			found = append(found, Difference{ours[i].Call, "", Nothing, text(ours[i].Said)})
		case theirs[i].Call != ours[i].Call:
			return append(found, Difference{theirs[i].Call, "call", theirs[i].Call, ours[i].Call})
		default:
			if a, b := gist(theirs[i].Said), gist(ours[i].Said); a != b {
				// All other differences follow from this one.
				found = append(found, Difference{theirs[i].Call, "answer", a, b})
				continue
			}
			found = values(found, theirs[i].Call, "", theirs[i].Said, ours[i].Said)
		}
	}
	return found
}

// gist returns the code and the kind of an answer or an event.
func gist(said map[string]any) string {
	body, _ := said["body"].(map[string]any)
	kind, _ := body["kind"].(string)
	var b strings.Builder
	for _, x := range []any{said["code"], said["event"], kind} {
		if s := fmt.Sprint(x); x != nil && s != "" {
			b.WriteString(s + " ")
		}
	}
	return strings.TrimSpace(b.String())
}

// values appends the differences of two values at a path.
func values(found []Difference, call, path string, theirs, ours any) []Difference {
	switch t := theirs.(type) {
	case map[string]any:
		o, ok := ours.(map[string]any)
		if !ok {
			break
		}
		both := maps.Clone(t)
		maps.Copy(both, o)
		for _, k := range sorted(both) {
			below := k
			if path != "" {
				below = path + "." + k
			}
			a, has := t[k]
			b, had := o[k]
			switch {
			case !has:
				found = append(found, Difference{call, below, Nothing, text(b)})
			case !had:
				found = append(found, Difference{call, below, text(a), Nothing})
			default:
				found = values(found, call, below, a, b)
			}
		}
		return found
	case []any:
		o, ok := ours.([]any)
		if !ok {
			break
		}
		if len(o) != len(t) {
			a, named := byName(t)
			b, alsoNamed := byName(o)
			if named && alsoNamed {
				return values(found, call, path, a, b)
			}
			break
		}
		for i := range t {
			found = values(found, call, path+"["+strconv.Itoa(i)+"]", t[i], o[i])
		}
		return found
	}
	if a, b := text(theirs), text(ours); a != b {
		found = append(found, Difference{call, path, a, b})
	}
	return found
}

// byName indexes a list of objects by name, if all have distinct names.
func byName(list []any) (map[string]any, bool) {
	m := make(map[string]any, len(list))
	for _, x := range list {
		o, _ := x.(map[string]any)
		name, ok := o["name"].(string)
		if !ok {
			return nil, false
		}
		m[name] = o
	}
	return m, len(m) == len(list)
}

func sorted(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// text returns the JSON of a value.
func text(x any) string {
	if s, ok := x.(string); ok {
		return strconv.Quote(s)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(x); err != nil {
		return fmt.Sprint(x)
	}
	return strings.TrimSpace(b.String())
}
