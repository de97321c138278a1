package anonymise

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rewriter copies valid JSON, without white space, and replaces strings.
type rewriter struct {
	*Anonymiser
	kind schema.GroupVersionKind
	root shape // of the object, which managed fields describe
	in   *json.Decoder
	out  []byte
}

// rewrite returns a copy of valid JSON of a shape, in an object of a kind.
func (a *Anonymiser) rewrite(kind schema.GroupVersionKind, root, s shape, text []byte) []byte {
	r := rewriter{Anonymiser: a, kind: kind, root: root, in: json.NewDecoder(bytes.NewReader(text)), out: make([]byte, 0, len(text))}
	r.in.UseNumber()
	r.value(s)
	return r.out
}

// value copies a value of the given shape. The JSON is valid, so no token is an error.
func (r *rewriter) value(s shape) {
	token, _ := r.in.Token()
	switch t := token.(type) {
	case string:
		if !s.leaf.keeps(t, r.kind) {
			t = r.replacement(s.leaf.form, t)
		}
		r.text(t)
	case json.Delim:
		r.out = append(r.out, byte(t))
		for first := true; r.in.More(); first = false {
			if !first {
				r.out = append(r.out, ',')
			}
			child := s.element()
			if t == '{' {
				name, _ := r.in.Token()
				var key string
				key, child = r.key(s, name.(string))
				r.text(key)
				r.out = append(r.out, ':')
			}
			r.value(child)
		}
		_, _ = r.in.Token()
		r.out = append(r.out, map[json.Delim]byte{'{': '}', '[': ']'}[t])
	case json.Number:
		n := string(t)
		if s.leaf.form == opaque && digits(n) {
			n = n[:1] + r.replacement(number, n[1:]) // no leading zero
		} else if s.leaf.form == opaque {
			n = "0" // a negative number or one with a fraction
		}
		r.out = append(r.out, n...)
	default:
		word, _ := json.Marshal(t) // true, false or null
		r.out = append(r.out, word...)
	}
}

func (r *rewriter) text(s string) {
	if !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' }) {
		r.out = append(append(append(r.out, '"'), s...), '"')
		return
	}
	text, _ := json.Marshal(s) // Strings always encode.
	r.out = append(r.out, text...)
}

// key returns the replacement of an object's key, and the shape of its value.
func (r *rewriter) key(s shape, name string) (replacement string, child shape) {
	switch {
	case s.managed:
		return r.managedKey(s, name)
	case s.is(reflect.Struct):
		if child, ok := r.structs.fields(s.typ)[name]; ok {
			if child.managed {
				child.typ = r.root.typ
			}
			return name, child
		}
		child = untyped(name)
	case s.is(reflect.Map):
		child = s.element()
	case s.leaf.form == opaque:
		child = s
	default:
		child = untyped(name)
	}
	// A key of a map is a name. Any other key may be a field or a name; a field that other types have is not secret.
	if keptKey(name) || resourceNames().Has(name) || !s.is(reflect.Map) && fieldNames().Has(name) {
		return name, child
	}
	return r.replacement(qualified, name), child
}

// managedKey returns the replacement of a key of managed fields, where fields, list elements and
// set members are keys. s is the shape that the managed fields describe.
func (r *rewriter) managedKey(s shape, name string) (replacement string, child shape) {
	s.managed = false
	prefix, rest, _ := strings.Cut(name, ":")
	switch {
	case name == ".", prefix == "i" && digits(rest):
		replacement, child = name, s
	case prefix == "f":
		replacement, child = r.key(s, rest)
		replacement = "f:" + replacement
	case (prefix == "k" || prefix == "v") && json.Valid([]byte(rest)):
		child = s.element()
		replacement = prefix + ":" + string(r.rewrite(r.kind, r.root, child, []byte(rest)))
	default:
		replacement = r.replacement(qualified, name)
	}
	child.managed = true
	return replacement, child
}
