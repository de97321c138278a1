package decode

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	kjson "k8s.io/apimachinery/pkg/util/json"
)

// maxNesting is the depth of JSON above which client-go's decoder judges. Its own limit is 10,000.
const maxNesting = 200

// maxIndex is the number of containers of an index that is kept for the next object.
const maxIndex = 1 << 15

// container is an object or an array in indexed JSON.
type container struct {
	end  int32 // index after the closing bracket
	skip int32 // the next container that is not within this one
	n    int32 // members or elements
}

// jsonIndex has the borders of the objects and arrays of a JSON value, in the order of their opening
// brackets. A value is checked when it is indexed, so a reader of it finds well-formed JSON, as
// encoding/json defines it. It visits the containers in order, and enters or skips each. Of {} and []
// the index has none, unless that is all.
type jsonIndex struct {
	b          []byte
	containers []container
	next       int // container to visit
	// The numbers with an exponent begin between these. They can be too large for a float64, which
	// is an error where client-go decodes them.
	firstExponent, lastExponent int
}

// index checks and indexes the object or array at b[i:]. It returns the index after it, or -1 for
// what is not well-formed or is nested too deeply.
func (x *jsonIndex) index(b []byte, i int) (end int) {
	x.b, x.next, x.firstExponent, x.lastExponent = b, 0, len(b), -1
	if len(b) > 1<<30 {
		return -1
	}
	x.containers, end = x.scan(x.containers[:0], b, i)
	return end
}

func (x *jsonIndex) scan(all []container, b []byte, i int) ([]container, int) {
	var open [maxNesting]struct {
		at     int32 // in all
		closer byte
	}
	for depth := 0; ; {
		i = space(b, i)
		switch c := char(b, i); {
		case c != '{' && c != '[':
			if i = x.literal(i); i < 0 || depth == 0 {
				return all, -1
			}
		case depth > 0 && char(b, i+1) == c+2:
			i += 2
		case depth == maxNesting:
			return all, -1
		default:
			open[depth].at, open[depth].closer = int32(len(all)), c+2
			depth++
			all = append(all, container{})
			if i = space(b, i+1); char(b, i) != c+2 {
				all[len(all)-1].n = 1
				if c == '[' {
					continue
				}
				if i = key(b, i); i < 0 {
					return all, -1
				}
				continue
			}
		}
		for { // after a value, or at the end of a container without one
			i = space(b, i)
			top := &open[depth-1]
			c := char(b, i)
			i++
			if c == ',' {
				all[top.at].n++
				if top.closer == '}' {
					if i = key(b, space(b, i)); i < 0 {
						return all, -1
					}
				}
				break
			}
			if c != top.closer {
				return all, -1
			}
			all[top.at].end, all[top.at].skip = int32(i), int32(len(all))
			if depth--; depth == 0 {
				return all, i
			}
		}
	}
}

// at returns the container at i, which the reader visits next.
func (x *jsonIndex) at(i int) container {
	if x.b[i+1] == x.b[i]+2 {
		return container{end: int32(i + 2), skip: int32(x.next)}
	}
	return x.containers[x.next]
}

// enter enters the object or array at i, and returns the number of its members or elements.
func (x *jsonIndex) enter(i int) (n int) {
	if x.b[i+1] != x.b[i]+2 {
		n = int(x.containers[x.next].n)
		x.next++
	}
	return n
}

// char returns b[i], or 0 behind the end.
func char(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// key checks the key at b[i:] and returns the index after its colon, or -1.
func key(b []byte, i int) int {
	if char(b, i) != '"' {
		return -1
	}
	if i, _ = quoted(b, i); i < 0 {
		return -1
	}
	if i++; char(b, i) != ':' {
		if i = space(b, i); char(b, i) != ':' {
			return -1
		}
	}
	return i + 1
}

// quoted returns the index of the quote that ends the string at b[i:], or -1 if the string is not
// well-formed, and whether the string stands for its own bytes: it has no escape and is ASCII.
func quoted(b []byte, i int) (end int, plain bool) {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	plain = true
	for i++; ; {
		for i+8 <= len(b) {
			// Of eight bytes those that are a control character or a quote (which a change of a bit puts
			// beside them), a backslash or not ASCII. Borrows go upwards, so the lowest one is right.
			v := binary.LittleEndian.Uint64(b[i:])
			found := (((v ^ ones*2) - ones*0x21) | ((v ^ ones*'\\') - ones) | v) & high
			if found != 0 {
				i += bits.TrailingZeros64(found) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1, false
		}
		switch c := b[i]; {
		case c == '"':
			return i, plain
		case c == '\\':
			plain = false
			if i = escape(b, i+1); i < 0 {
				return -1, false
			}
		case c < ' ':
			return -1, false
		default:
			plain = plain && c < utf8.RuneSelf
			i++
		}
	}
}

// escape returns the index after an escape sequence, of which b[i] is the first byte after the
// backslash.
func escape(b []byte, i int) int {
	switch char(b, i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		for range 4 {
			i++
			if c := char(b, i); (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'f') {
				return -1
			}
		}
		return i + 1
	}
	return -1
}

// literal checks the string, number or name at x.b[i:]. It returns the index after it, or -1.
func (x *jsonIndex) literal(i int) int {
	b := x.b
	switch c := char(b, i); c {
	case '"':
		if i, _ = quoted(b, i); i < 0 {
			return -1
		}
		return i + 1
	case 't':
		return word(b, i, "true")
	case 'f':
		return word(b, i, "false")
	case 'n':
		return word(b, i, "null")
	}
	from := i
	if char(b, i) == '-' {
		i++
	}
	if char(b, i) == '0' {
		i++
	} else if i = digits(b, i); i < 0 {
		return -1
	}
	if char(b, i) == '.' {
		if i = digits(b, i+1); i < 0 {
			return -1
		}
	}
	if char(b, i)|0x20 == 'e' {
		x.firstExponent, x.lastExponent = min(x.firstExponent, from), from
		if i++; char(b, i) == '+' || char(b, i) == '-' {
			i++
		}
		return digits(b, i)
	}
	if i-from > 300 {
		x.firstExponent, x.lastExponent = min(x.firstExponent, from), from
	}
	return i
}

func word(b []byte, i int, s string) int {
	if len(b)-i < len(s) || string(b[i:i+len(s)]) != s {
		return -1
	}
	return i + len(s)
}

// digits returns the index after one or more digits, or -1.
func digits(b []byte, i int) int {
	from := i
	for c := char(b, i); c >= '0' && c <= '9'; c = char(b, i) {
		i++
	}
	if i == from {
		return -1
	}
	return i
}

// skip returns the index after the value at i of indexed JSON.
func (x *jsonIndex) skip(i int) int {
	if c := x.b[i]; c == '{' || c == '[' {
		top := x.at(i)
		x.next = int(top.skip)
		return int(top.end)
	}
	return x.literal(i)
}

// members calls f with the key and the start of the value of each member of the object at i. f
// returns the index after the value, or -1 to end it. members returns the index after the object, or
// -1. The bytes need not be indexed.
func members(b []byte, i int, f func(key []byte, i int) int) int {
	if char(b, i) != '{' {
		return -1
	}
	if i = space(b, i+1); char(b, i) == '}' {
		return i + 1
	}
	for {
		from := i
		to, plain := -1, false
		if char(b, i) == '"' {
			to, plain = quoted(b, i)
		}
		if to < 0 {
			return -1
		}
		if i = space(b, to+1); char(b, i) != ':' {
			return -1
		}
		name := b[from+1 : to]
		if !plain {
			s, ok := unquote(b[from : to+1])
			if name = []byte(s); !ok {
				return -1
			}
		}
		if i = f(name, space(b, i+1)); i < 0 {
			return -1
		}
		var more bool
		if i, more = next(b, i, '}'); !more {
			return i
		}
	}
}

// jsonElements calls f with the start of each element of the array at i, as members.
func jsonElements(b []byte, i int, f func(i int) int) int {
	if char(b, i) != '[' {
		return -1
	}
	if i = space(b, i+1); char(b, i) == ']' {
		return i + 1
	}
	for {
		if i = f(i); i < 0 {
			return -1
		}
		var more bool
		if i, more = next(b, i, ']'); !more {
			return i
		}
	}
}

// next returns the start of the next member or element, after a comma. Otherwise it returns the index
// after the end of the object or array, or -1.
func next(b []byte, i int, end byte) (to int, more bool) {
	switch i = space(b, i); char(b, i) {
	case end:
		return i + 1, false
	case ',':
		return space(b, i+1), true
	}
	return -1, false
}

// unquote returns the value of a well-formed string, quotes included, that is not plain.
func unquote(b []byte) (s string, ok bool) {
	if inner := b[1 : len(b)-1]; utf8.Valid(inner) && bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	return s, kjson.Unmarshal(b, &s) == nil
}
