package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// pattern is a resource with or without its group, or * for all.
type pattern string

var resourceName = regexp.MustCompile(`^(\*|[a-z][a-z0-9-]*(\.[a-z0-9][a-z0-9.-]*)?)$`)

func parsePattern(text string) (pattern, error) {
	if !resourceName.MatchString(text) {
		return "", fmt.Errorf("resource %q (allowed: a plural name such as pods, or deployments.apps, or *)", text)
	}
	return pattern(text), nil
}

func (p pattern) matches(r schema.GroupResource) bool {
	resource, group, qualified := strings.Cut(string(p), ".")
	return p == "*" || resource == r.Resource && (!qualified || group == r.Group)
}

// event is the text of after.
type event struct {
	resource pattern
	types    []watch.EventType // nil for all
	fields   []fieldTest
}

var eventTypes = []watch.EventType{watch.Added, watch.Modified, watch.Deleted}

// fieldTest compares a field with values.
type fieldTest struct {
	path   []string
	not    bool
	values []string
}

func parseEvent(text string) (e event, err error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return e, fmt.Errorf("empty (allowed: RESOURCE [TYPE[|TYPE]] [FIELD=VALUE …])")
	}
	if e.resource, err = parsePattern(words[0]); err != nil {
		return e, err
	}
	words = words[1:]
	if len(words) > 0 && !strings.Contains(words[0], "=") {
		for t := range strings.SplitSeq(words[0], "|") {
			if !slices.Contains(eventTypes, watch.EventType(t)) {
				return e, fmt.Errorf("event %q (allowed: ADDED, MODIFIED, DELETED, or several as in ADDED|MODIFIED)", t)
			}
			e.types = append(e.types, watch.EventType(t))
		}
		words = words[1:]
	}
	for _, word := range words {
		name, values, ok := strings.Cut(word, "=")
		test := fieldTest{values: strings.Split(values, "|")}
		name, test.not = strings.CutSuffix(name, "!")
		test.path = strings.Split(name, ".")
		if !ok || slices.Contains(test.path, "") {
			return e, fmt.Errorf("field %q (allowed: FIELD=VALUE or FIELD!=VALUE, as in phase=Failed)", word)
		}
		e.fields = append(e.fields, test)
	}
	return e, nil
}

// relation is how the object that is written relates to that of the event.
type relation uint8

const (
	itself relation = iota
	itsOwner
	ownsIt
	itOwns
	sameName
)

// answer is the text of expect.
type answer struct {
	verb        string
	subresource string
	relation    relation
	resource    pattern
}

var verbs = []string{"write", "create", "update", "patch", "apply", "delete"}

const targets = "it, its owner, RESOURCE that owns it, RESOURCE it owns, RESOURCE of the same name"

func parseAnswer(text string) (a answer, err error) {
	words := strings.Fields(text)
	if len(words) == 0 || !slices.Contains(verbs, words[0]) {
		return a, fmt.Errorf("%q (allowed: VERB to [SUBRESOURCE of] TARGET; VERB is %s)", text, strings.Join(verbs, ", "))
	}
	a.verb, words = words[0], words[1:]
	if len(words) > 0 && words[0] == "to" {
		words = words[1:]
	}
	ok, err := a.target(words)
	if !ok && len(words) > 2 && words[1] == "of" {
		a.subresource = words[0]
		ok, err = a.target(words[2:])
	}
	if !ok {
		return a, fmt.Errorf("target %q (allowed: [SUBRESOURCE of] TARGET; TARGET is one of: %s)", strings.Join(words, " "), targets)
	}
	return a, err
}

// target returns false if the words are no target.
func (a *answer) target(words []string) (ok bool, err error) {
	switch text := strings.Join(words, " "); {
	case text == "it":
		a.relation, a.resource = itself, "*"
		return true, nil
	case text == "its owner":
		a.relation, a.resource = itsOwner, "*"
		return true, nil
	case len(words) < 3:
		return false, nil
	}
	related := map[string]relation{"that owns it": ownsIt, "it owns": itOwns, "of the same name": sameName}
	if a.relation, ok = related[strings.Join(words[1:], " ")]; !ok {
		return false, nil
	}
	a.resource, err = parsePattern(words[0])
	return true, err
}
