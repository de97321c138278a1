package anonymise

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rewriter copies valid JSON and replaces strings. All other bytes stay.
type rewriter struct {
	a      *Anonymiser
	kind   schema.GroupVersionKind
	root   model
	in     []byte
	at     int
	out    []byte
	nested bool // in a key of managed fields, where the API server does not escape <, > and &
}

func (r *rewriter) space() {
	for r.at < len(r.in) && strings.IndexByte(" \t\r\n", r.in[r.at]) >= 0 {
		r.out = append(r.out, r.in[r.at])
		r.at++
	}
}

// punctuation copies one byte and the white space around it.
func (r *rewriter) punctuation() byte {
	r.space()
	c := r.in[r.at]
	r.out = append(r.out, c)
	r.at++
	r.space()
	return c
}

// token reads the string at the current position, with its quotes.
func (r *rewriter) token() []byte {
	start := r.at
	for r.at++; r.in[r.at] != '"'; r.at++ {
		if r.in[r.at] == '\\' {
			r.at++
		}
	}
	r.at++
	return r.in[start:r.at]
}

// value copies a value of the given model. key is its key in the object.
func (r *rewriter) value(s model, key string) {
	r.space()
	switch r.in[r.at] {
	case '{':
		r.object(s)
	case '[':
		elem := s.element()
		if r.punctuation(); r.in[r.at] == ']' {
			r.punctuation()
			return
		}
		for {
			r.value(elem, key)
			if r.punctuation() == ']' {
				return
			}
		}
	case '"':
		r.text(s.leaf(key), r.token())
	default:
		for r.at < len(r.in) && !strings.ContainsRune(" \t\r\n,]}", rune(r.in[r.at])) {
			r.out = append(r.out, r.in[r.at])
			r.at++
		}
	}
}

func (r *rewriter) object(s model) {
	if r.punctuation(); r.in[r.at] == '}' {
		r.punctuation()
		return
	}
	for {
		t := r.token()
		name := unquoted(t)
		replacement, child := r.key(s, name)
		r.write(t, name, replacement)
		r.punctuation()
		if s.managed || s.is(reflect.Map) {
			name = "" // not the name of a field
		}
		r.value(child, name)
		if r.punctuation() == '}' {
			return
		}
	}
}

// write writes a string: the token t, whose value is s, or its replacement.
func (r *rewriter) write(t []byte, s, replacement string) {
	if s == replacement {
		r.out = append(r.out, t...)
		return
	}
	if !escaped(replacement) {
		r.out = append(append(append(r.out, '"'), replacement...), '"')
		return
	}
	var quoted bytes.Buffer
	enc := json.NewEncoder(&quoted)
	enc.SetEscapeHTML(!r.nested)
	_ = enc.Encode(replacement) // Strings always encode.
	r.out = append(r.out, bytes.TrimSuffix(quoted.Bytes(), []byte("\n"))...)
}

// escaped reports whether JSON may escape characters of s.
func escaped(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool {
		return c < ' ' || c >= utf8.RuneSelf || strings.ContainsRune(`"\<>&`, c)
	})
}

// key returns the replacement of an object's key, and the model of its value.
func (r *rewriter) key(s model, name string) (replacement string, child model) {
	switch {
	case s.managed:
		return r.managed(s, name)
	case s.is(reflect.Struct):
		if child, ok := r.a.types.fields(s.typ)[name]; ok {
			if child.managed {
				child.typ = r.root.typ
			}
			return name, child
		}
	case s.is(reflect.Map):
		if s.keys[name] || !s.data && keptKey(name) {
			return name, s.elem()
		}
		return r.a.replacement(textLeaf, name), s.elem()
	}
	// The key may be a field or a name. A field that other types have is not secret.
	if fieldNames()[name] || keptKey(name) || resourceNames()[name] {
		return name, model{}
	}
	return r.a.replacement(textLeaf, name), model{}
}

// managed returns the replacement of a key of managed fields, where fields, list elements and
// set members are keys. s is the model that the managed fields describe.
func (r *rewriter) managed(s model, name string) (replacement string, child model) {
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
		inner := rewriter{a: r.a, kind: r.kind, root: r.root, in: []byte(rest), nested: true}
		inner.value(child, "")
		inner.space()
		replacement = prefix + ":" + string(inner.out)
	default:
		replacement = r.a.replacement(textLeaf, name)
	}
	child.managed = true
	return replacement, child
}

func (r *rewriter) text(l leaf, t []byte) {
	s := unquoted(t)
	if len(s) <= longestKept && l.keeps(s, r.kind) {
		r.write(t, s, s)
		return
	}
	r.write(t, s, r.a.replacement(l.kind, s))
}

func unquoted(t []byte) (s string) {
	if bytes.IndexByte(t, '\\') < 0 && utf8.Valid(t) {
		return string(t[1 : len(t)-1])
	}
	_ = json.Unmarshal(t, &s) // The JSON is valid.
	return s
}
