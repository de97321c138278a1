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
	kind    schema.GroupVersionKind
	root    shape // of the object, which managed fields describe
	in, out []byte
}

// rewrite returns a copy of valid JSON of a shape, in an object of a kind.
func (a *Anonymiser) rewrite(kind schema.GroupVersionKind, root, s shape, text []byte) []byte {
	r := rewriter{Anonymiser: a, kind: kind, root: root, in: text, out: make([]byte, 0, len(text))}
	r.value(s, r.token())
	return r.out
}

// token returns the next token: a delimiter, a string with its quotes, a number or a word.
func (r *rewriter) token() []byte {
	r.in = bytes.TrimLeft(r.in, " \t\r\n")
	n := 1
	switch c := r.in[0]; {
	case c == '"':
		for ; r.in[n] != '"'; n++ {
			if r.in[n] == '\\' {
				n++
			}
		}
		n++
	case strings.IndexByte("{}[],:", c) < 0:
		if n = bytes.IndexAny(r.in, " \t\r\n,]}"); n < 0 {
			n = len(r.in)
		}
	}
	token := r.in[:n]
	r.in = r.in[n:]
	return token
}

// value copies a value of the given shape, which starts with a token.
func (r *rewriter) value(s shape, token []byte) {
	switch token[0] {
	case '"':
		text := unquoted(token)
		if !s.leaf.keeps(text, r.kind) {
			text = r.replacement(s.leaf.form, text)
		}
		r.text(text)
	case '{', '[':
		r.out = append(r.out, token...)
		for {
			next := r.token()
			switch next[0] {
			case '}', ']':
				r.out = append(r.out, next...)
				return
			case ',':
				r.out = append(r.out, ',')
				continue
			}
			child := s.element()
			if token[0] == '{' {
				var key string
				key, child = r.key(s, unquoted(next))
				r.text(key)
				r.out = append(r.out, r.token()...) // the colon
				next = r.token()
			}
			r.value(child, next)
		}
	default:
		if whole := digits(string(token)); s.leaf.form == opaque && whole {
			token = append(token[:1:1], r.replacement(number, string(token[1:]))...) // no leading zero
		} else if s.leaf.form == opaque && token[0] < 'A' {
			token = []byte("0") // a negative number or one with a fraction
		}
		r.out = append(r.out, token...)
	}
}

func unquoted(token []byte) (s string) {
	if bytes.IndexByte(token, '\\') < 0 && utf8.Valid(token) {
		return string(token[1 : len(token)-1])
	}
	_ = json.Unmarshal(token, &s) // The JSON is valid.
	return s
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
