package decode

import "math"

// Wire types of protobuf.
const (
	wireVarint = 0
	wireBytes  = 2
)

// uvarint reads the varint at b[i:] as the generated code does: at most ten bytes, and the bits
// over 64 are dropped. It returns the index after it, or -1.
func uvarint(b []byte, i int) (uint64, int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	var v uint64
	for shift := 0; shift < 64 && i < len(b); shift += 7 {
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, -1
}

// span measures the field at b[i:]: its tag, and the start and end of its value. It reports false
// for what it cannot measure, among them the groups of proto1 and field numbers over 29 bits. All
// that it measures is within b.
func span(b []byte, i int) (tag uint64, from, to int, ok bool) {
	tag, from = uvarint(b, i)
	if from < 0 || tag < 8 || tag > math.MaxUint32 {
		return 0, 0, 0, false
	}
	switch tag & 7 {
	case wireVarint:
		_, to = uvarint(b, from)
	case 1:
		to = from + 8
	case wireBytes:
		n, at := uvarint(b, from)
		if at < 0 || n > uint64(len(b)-at) {
			return 0, 0, 0, false
		}
		from, to = at, at+int(n)
	case 5:
		to = from + 4
	default:
		return 0, 0, 0, false
	}
	return tag, from, to, to >= from && to <= len(b)
}

// run returns the end of the fields with the tag that follow each other from b[to:], and their
// number, counted from one.
func run(b []byte, to int, tag uint64) (end, n int, ok bool) {
	for n = 1; to < len(b); n++ {
		next, _, end, ok := span(b, to)
		if !ok {
			return 0, 0, false
		}
		if next != tag {
			break
		}
		to = end
	}
	return to, n, true
}

// collect sets values to those of the fields of wire type bytes, by field number. It reports false if b
// cannot be measured, or has one of the fields twice or with another wire type.
func collect(b []byte, values [][]byte) bool {
	for i := 0; i < len(b); {
		tag, from, to, ok := span(b, i)
		if !ok {
			return false
		}
		if n := tag >> 3; n < uint64(len(values)) {
			if values[n] != nil || tag&7 != wireBytes {
				return false
			}
			values[n] = b[from:to:to]
		}
		i = to
	}
	return true
}
