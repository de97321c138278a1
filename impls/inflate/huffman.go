package inflate

import "math/bits"

// An entry of a table tells what the next bits of the input mean:
//
//	bits 0–7    bits to consume: code and extra bits
//	bits 8–11   bits of the code, which the extra bits follow; of a link: index bits of its subtable
//	bit  13     link: the code is longer than the primary index, bits 16–31 are the start of its subtable
//	bit  14     end of block
//	bit  15     neither a literal nor a length nor a distance: a link, the end of block, or no code
//	bits 16–31  literal, base of a length, base of a distance
//	bit  31     literal
//
// An entry of a subtable counts the bits after the primary index.
const (
	entryLink    = 1 << 13
	entryEnd     = 1 << 14
	entrySpecial = 1 << 15
	entryLiteral = 1 << 31
)

const (
	maxCode    = 15 // bits of the longest code
	maxLit     = 286
	maxDist    = 30
	endOfBlock = 256

	litBits  = 10 // bits of the primary index
	distBits = 8
	preBits  = 7

	// Sizes are powers of two, so that a masked index needs no check. The largest tables of complete
	// codes have 1,334 and 402 entries (zlib's examples/enough.c).
	litSize  = 2048
	distSize = 512
)

// litSymbols and distSymbols are the entries of symbols, without the length of their code.
// The symbols 286, 287, 30 and 31 have codes in the fixed block type, but no meaning.
var (
	litSymbols  = lengths()
	distSymbols = distances()
	preSymbols  = plain()
)

func lengths() (t [288]uint32) {
	for s := range t {
		switch extra := max(0, (s-261)/4); {
		case s < endOfBlock:
			t[s] = entryLiteral | uint32(s)<<16
		case s == endOfBlock:
			t[s] = entrySpecial | entryEnd
		case s < 265:
			t[s] = uint32(s-254) << 16
		case s < 285:
			t[s] = uint32(3+(4+(s-261)&3)<<extra)<<16 | uint32(extra)
		case s == 285:
			t[s] = 258 << 16
		default:
			t[s] = entrySpecial
		}
	}
	return t
}

func distances() (t [32]uint32) {
	for s := range t {
		switch extra := max(0, s/2-1); {
		case s < 2:
			t[s] = uint32(s+1) << 16
		case s < maxDist:
			t[s] = uint32(1+(2+s&1)<<extra)<<16 | uint32(extra)
		default:
			t[s] = entrySpecial
		}
	}
	return t
}

func plain() (t [19]uint32) {
	for s := range t {
		t[s] = uint32(s) << 16
	}
	return t
}

// build fills a table with the canonical code of these lengths. It returns the length of the shortest code, and
// reports whether the code is complete. As zlib and compress/flate do, it also takes a code of one symbol of one
// bit, and a code without symbols. O(symbols + entries).
func build(table []uint32, lengths []uint8, symbols []uint32, primary uint) (shortest uint, ok bool) {
	var count, next [maxCode + 1]uint16
	for _, n := range lengths {
		count[n&maxCode]++
	}
	used := len(lengths) - int(count[0])
	next[0], count[0] = uint16(used), 0
	space := 0 // used, in codes of maxCode bits
	for n := maxCode; n > 0; n-- {
		if count[n] > 0 {
			shortest = uint(n)
		}
		space += int(count[n]) << (maxCode - n)
	}
	for n := 1; n < maxCode; n++ {
		next[n+1] = next[n] + count[n]
	}
	switch {
	case space == 1<<maxCode:
	case used == 0, used == 1 && count[1] == 1:
		for i := range 1 << primary {
			table[i] = entrySpecial
		}
		if used == 1 {
			for s, n := range lengths {
				for i := 0; n == 1 && i < 1<<primary; i += 2 {
					table[i] = symbols[s] + 0x101
				}
			}
		}
		return shortest, true
	default:
		return 0, false
	}

	// sorted are the symbols in the order of their codes, and then those without a code.
	var sorted [288]uint16
	for s, n := range lengths {
		sorted[next[n&maxCode]] = uint16(s)
		next[n&maxCode]++
	}

	// Codes come with their first bit lowest. While they grow by a bit, the filled part of the table
	// doubles: its other half differs in the bit that shorter codes do not read.
	code, filled, at := uint16(0), uint(1), 0
	for n := uint(1); n <= primary; n++ {
		copy(table[filled:2*filled], table[:filled])
		filled *= 2
		code <<= 1
		for range count[n] {
			table[bits.Reverse16(code<<(16-n))] = symbols[sorted[at]] + uint32(n)*0x101
			at++
			code++
		}
	}
	start, end, prefix := uint(0), filled, ^uint(0)
	for n := primary + 1; n <= maxCode; n++ {
		code <<= 1
		for left := count[n]; left > 0; left-- {
			reversed := uint(bits.Reverse16(code << (16 - n)))
			if p := reversed & (filled - 1); p != prefix {
				prefix, start = p, end
				// The subtable has as many index bits as its longest code.
				width, room := n-primary, int(left)
				for room < 1<<width {
					width++
					room = room<<1 + int(count[primary+width])
				}
				end = start + 1<<width
				table[prefix] = entrySpecial | entryLink | uint32(start)<<16 | uint32(width)<<8 | uint32(primary)
			}
			e := symbols[sorted[at]] + uint32(n-primary)*0x101
			for i := start + reversed>>primary; i < end; i += 1 << (n - primary) {
				table[i] = e
			}
			at++
			code++
		}
	}
	return shortest, true
}
