package anonymise

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// rewriter copies valid JSON and replaces strings. All other bytes stay.
type rewriter struct {
	a    *Anonymiser
	kind schema.GroupVersionKind
	root *node
	in   []byte
	at   int
	out  []byte
}

// space copies white space.
func (r *rewriter) space() {
	for r.at < len(r.in) {
		switch r.in[r.at] {
		case ' ', '\t', '\r', '\n':
			r.out = append(r.out, r.in[r.at])
			r.at++
		default:
			return
		}
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

// token reads the string at the current position, without its quotes.
func (r *rewriter) token() []byte {
	start := r.at + 1
	for r.at = start; r.in[r.at] != '"'; r.at++ {
		if r.in[r.at] == '\\' {
			r.at++
		}
	}
	t := r.in[start:r.at]
	r.at++
	return t
}

// value copies a value of the given schema. key is its key in the object.
func (r *rewriter) value(n *node, key string) {
	r.space()
	switch r.in[r.at] {
	case '{':
		r.object(n)
	case '[':
		elem := n.element()
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
		t := r.token()
		r.out = append(r.out, '"')
		r.text(n.leafFor(key), t)
		r.out = append(r.out, '"')
	default:
		for r.at < len(r.in) && !strings.ContainsRune(" \t\r\n,]}", rune(r.in[r.at])) {
			r.out = append(r.out, r.in[r.at])
			r.at++
		}
	}
}

func (r *rewriter) object(n *node) {
	if r.punctuation(); r.in[r.at] == '}' {
		r.punctuation()
		return
	}
	for {
		t := r.token()
		r.out = append(r.out, '"')
		child, name := r.key(n, t)
		r.out = append(r.out, '"')
		r.punctuation()
		r.value(child, name)
		if r.punctuation() == '}' {
			return
		}
	}
}

// key writes an object's key and returns the schema of its value.
func (r *rewriter) key(n *node, t []byte) (child *node, name string) {
	name = unquoted(t)
	switch n.kind {
	case structNode:
		if child := n.field(name); child != nil {
			r.out = append(r.out, t...)
			return child, name
		}
	case mapNode:
		if n.keys[name] || !n.data && keptKey(name) {
			r.out = append(r.out, t...)
		} else {
			r.replaced(r.a.text, t, (*pseudonyms).text)
		}
		return n.elem(), ""
	case managedNode:
		return r.managed(n, t, name), ""
	}
	// The key may be a field or a name. A field that other types have is not secret.
	if fieldNames()[name] || keptKey(name) || resourceNames()[name] {
		r.out = append(r.out, t...)
	} else {
		r.replaced(r.a.text, t, (*pseudonyms).text)
	}
	return untyped, name
}

// managed writes a key of managed fields, where fields, list elements and set members are
// keys. n is the schema that the managed fields describe.
func (r *rewriter) managed(n *node, t []byte, name string) *node {
	about := n.managed
	if about == nil {
		about = r.root
	}
	prefix, rest, _ := strings.Cut(name, ":")
	switch {
	case name == ".", prefix == "i" && digits(rest):
		r.out = append(r.out, t...)
		return managedOf(about)
	case prefix == "f" && bytes.HasPrefix(t, []byte("f:")):
		r.out = append(r.out, "f:"...)
		child, _ := r.key(about, t[2:])
		return managedOf(child)
	case prefix == "k" || prefix == "v":
		elem := about.element()
		if r.inner(elem, t) {
			return managedOf(elem)
		}
	}
	r.replaced(r.a.text, t, (*pseudonyms).text)
	return managedOf(untyped)
}

// inner writes a key that has JSON after its first two characters. It returns false for any
// other key.
func (r *rewriter) inner(n *node, t []byte) bool {
	units := appendUnits(nil, t)
	if len(units) < 3 || units[1].r != ':' {
		return false
	}
	old := plainString(units[2:])
	if !json.Valid([]byte(old)) {
		return false
	}
	sub := rewriter{a: r.a, kind: r.kind, root: r.root, in: []byte(old)}
	sub.value(n, "")
	sub.space()
	// Characters are replaced one by one, so each keeps its form.
	i := 2
	for _, c := range string(sub.out) {
		if i == len(units) {
			return false
		}
		units[i].r = c
		i++
	}
	if i != len(units) {
		return false
	}
	r.out = appendToken(r.out, units)
	return true
}

// text writes a string.
func (r *rewriter) text(l leaf, t []byte) {
	if len(t) == 0 {
		return
	}
	if len(t) <= longestKept && l.keeps(unquoted(t), r.kind) {
		r.out = append(r.out, t...)
		return
	}
	switch l.kind {
	case opaqueLeaf:
		r.replaced(r.a.opaque, t, (*pseudonyms).whole)
	case bytesLeaf:
		r.replaced(r.a.bytes, t, func(p *pseudonyms, s []unit) {
			if !p.base64(s) {
				p.whole(s)
			}
		})
	default:
		r.replaced(r.a.text, t, (*pseudonyms).text)
	}
}

// replaced writes the replacement of a string.
func (r *rewriter) replaced(m memo, t []byte, replace func(*pseudonyms, []unit)) {
	if s, ok := m[string(t)]; ok {
		r.out = append(r.out, s...)
		return
	}
	r.a.scratch = appendUnits(r.a.scratch[:0], t)
	replace(r.a.pseudonyms, r.a.scratch)
	start := len(r.out)
	r.out = appendToken(r.out, r.a.scratch)
	m.put(string(t), string(r.out[start:]))
}

// unquoted returns the value of a JSON string, given without its quotes.
func unquoted(t []byte) string {
	if bytes.IndexByte(t, '\\') < 0 {
		return string(t)
	}
	return plainString(appendUnits(nil, t))
}

// appendUnits splits a JSON string without its quotes into characters.
func appendUnits(s []unit, t []byte) []unit {
	for len(t) > 0 {
		if t[0] != '\\' {
			c, n := utf8.DecodeRune(t)
			u := unit{r: c}
			if c == utf8.RuneError && n == 1 {
				// Invalid UTF-8, which encoding/json decodes as U+FFFD.
				u = unit{r: rune(t[0]), form: kept}
			}
			s = append(s, u)
			t = t[n:]
			continue
		}
		if t[1] != 'u' {
			s = append(s, unit{r: shortEscapes[t[1]], form: kept})
			t = t[2:]
			continue
		}
		c := hex4(t[2:6])
		t = t[6:]
		u := unit{r: c, form: escaped}
		if utf16.IsSurrogate(c) {
			u.form = kept
			if len(t) >= 6 && t[0] == '\\' && t[1] == 'u' {
				if pair := utf16.DecodeRune(c, hex4(t[2:6])); pair != utf8.RuneError {
					u = unit{r: pair, form: surrogate}
					t = t[6:]
				}
			}
		}
		s = append(s, u)
	}
	return s
}

var shortEscapes = [256]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// letters maps characters to the letters of their short escapes.
var letters = map[rune]byte{'"': '"', '\\': '\\', '/': '/', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't'}

func hex4(t []byte) rune {
	v, _ := strconv.ParseUint(string(t), 16, 16) // The JSON is valid.
	return rune(v)
}

// appendToken appends units in their forms.
func appendToken(b []byte, s []unit) []byte {
	for _, u := range s {
		switch u.form {
		case asIs:
			b = utf8.AppendRune(b, u.r)
		case escaped:
			b = appendEscape(b, u.r)
		case surrogate:
			high, low := utf16.EncodeRune(u.r)
			b = appendEscape(appendEscape(b, high), low)
		case kept:
			switch letter, short := letters[u.r]; {
			case short:
				b = append(b, '\\', letter)
			case utf16.IsSurrogate(u.r):
				b = appendEscape(b, u.r)
			default:
				b = append(b, byte(u.r))
			}
		}
	}
	return b
}

func appendEscape(b []byte, c rune) []byte {
	return append(b, '\\', 'u', hexDigits[c>>12&15], hexDigits[c>>8&15], hexDigits[c>>4&15], hexDigits[c&15])
}
