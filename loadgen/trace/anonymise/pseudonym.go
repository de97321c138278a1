package anonymise

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/rand/v2"
	"net/netip"
	"strings"
)

// unit is one character of a JSON string, with its encoding.
type unit struct {
	r    rune
	form form
}

type form uint8

const (
	asIs      form = iota
	escaped        // \u00e9
	surrogate      // \ud83d\ude00
	kept           // \n, \", and invalid characters: never replaced
)

// symbol is one character, or one number of an address, as a number below the size of its
// alphabet. class identifies the alphabet.
type symbol struct {
	v, size uint32
	class   byte
}

// pseudonyms replaces each character by another one of its alphabet, selected by an HMAC.
type pseudonyms struct {
	mac hash.Hash
	buf []byte
}

func newPseudonyms(key [KeySize]byte) *pseudonyms {
	return &pseudonyms{mac: hmac.New(sha256.New, key[:])}
}

func (p *pseudonyms) sum(message []byte) (sum [sha256.Size]byte) {
	p.mac.Reset()
	p.mac.Write(message) // Never fails.
	p.mac.Sum(sum[:0])
	return sum
}

// longWord is the number of symbols from which words are replaced by random numbers.
const longWord = 16

// replace moves each symbol within its alphabet by a distance: an HMAC of all other symbols.
// domain is a namespace of replacements.
//
// Each move is reversible, so different words have different replacements. The first symbol
// always moves, so no word maps to itself. Words of longWord symbols or more move by random
// numbers, seeded with the HMAC of the word; collisions are negligible.
func (p *pseudonyms) replace(domain string, s []symbol) {
	if len(s) == 0 {
		return
	}
	message := append(append(p.buf[:0], domain...), 0, 0)
	for _, c := range s {
		message = append(message, c.class)
		message = binary.LittleEndian.AppendUint32(message, c.v)
	}
	p.buf = message
	var random *rand.ChaCha8
	if len(s) >= longWord {
		random = rand.NewChaCha8(p.sum(message))
	}
	for i := range s {
		c, at := &s[i], len(domain)+2+5*i+1
		var n uint64
		if random != nil {
			n = random.Uint64()
		} else {
			message[len(domain)+1] = byte(i)
			binary.LittleEndian.PutUint32(message[at:], c.size)
			sum := p.sum(message)
			n = binary.LittleEndian.Uint64(sum[:])
		}
		// The bias of the remainder is below 2^-32.
		if i == 0 {
			n = 1 + n%uint64(c.size-1)
		}
		c.v = uint32((uint64(c.v) + n) % uint64(c.size))
		binary.LittleEndian.PutUint32(message[at:], c.v)
	}
}

// Classes of symbols: alphabets, and none for a character outside words.
const (
	none  = 0
	lower = 'l'
	upper = 'u'
	digit = 'd'
	hexa  = 'h'
	b64   = 'b'
	octet = 'o'
	utf2  = '2' // two bytes in UTF-8
	utf3  = '3'
	utf4  = '4'
)

const (
	first2, first3, first4 = 0x80, 0x800, 0x10000
	firstSurrogate         = 0xd800
	surrogates             = 0x800
	last                   = 0x10ffff

	hexDigits    = "0123456789abcdef"
	base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)

// symbolOf returns the symbol of a character of a word.
func symbolOf(u unit) symbol {
	if u.form == kept {
		return symbol{}
	}
	switch r := u.r; {
	case 'a' <= r && r <= 'z':
		return symbol{uint32(r - 'a'), 26, lower}
	case 'A' <= r && r <= 'Z':
		return symbol{uint32(r - 'A'), 26, upper}
	case '0' <= r && r <= '9':
		return symbol{uint32(r - '0'), 10, digit}
	case r < first2:
		return symbol{}
	case r < first3:
		return symbol{uint32(r - first2), first3 - first2, utf2}
	case r < first4:
		// Surrogates are not characters.
		v := uint32(r - first3)
		if r >= firstSurrogate {
			v -= surrogates
		}
		return symbol{v, first4 - first3 - surrogates, utf3}
	default:
		return symbol{uint32(r - first4), last - first4 + 1, utf4}
	}
}

// hexSymbol returns the symbol of a hexadecimal digit.
func hexSymbol(u unit) symbol {
	if v := strings.IndexRune(hexDigits, u.r); v >= 0 && u.form != kept {
		return symbol{uint32(v), 16, hexa}
	}
	return symbol{}
}

// rune returns the character of a symbol.
func (s symbol) rune() rune {
	v := rune(s.v)
	switch s.class {
	case lower:
		return 'a' + v
	case upper:
		return 'A' + v
	case digit:
		return '0' + v
	case hexa:
		return rune(hexDigits[v])
	case utf2:
		return first2 + v
	case utf3:
		if v += first3; v >= firstSurrogate {
			v += surrogates
		}
		return v
	default:
		return first4 + v
	}
}

// each replaces the characters for which of returns a symbol, as one word.
func (p *pseudonyms) each(domain string, s []unit, of func(unit) symbol) {
	symbols := make([]symbol, 0, len(s))
	for _, u := range s {
		if c := of(u); c.class != none {
			symbols = append(symbols, c)
		}
	}
	p.replace(domain, symbols)
	for i := range s {
		if of(s[i]).class != none {
			s[i].r = symbols[0].rune()
			symbols = symbols[1:]
		}
	}
}

// whole replaces all words of a string as one.
func (p *pseudonyms) whole(s []unit) { p.each("whole", s, symbolOf) }

func plainString(s []unit) string {
	var b strings.Builder
	for _, u := range s {
		b.WriteRune(u.r)
	}
	return b.String()
}

// text replaces a string word by word, in place. The result is never one of the kept strings
// (see keptWhole).
func (p *pseudonyms) text(s []unit) {
	if len(s) <= longestKept && keptWhole(plainString(s)) {
		return
	}
	for {
		p.words(s)
		if len(s) > longestKept || !keptWhole(plainString(s)) {
			return
		}
	}
}

func (p *pseudonyms) words(s []unit) {
	if p.address(s) {
		return
	}
	for i := 0; i < len(s); {
		n := uuid(s[i:])
		if n > 0 && boundary(s, i, n) {
			p.each("uuid", s[i:i+n], hexSymbol)
			i += n
			continue
		}
		if n = ip4(s[i:]); n > 0 && boundary(s, i, n) && !dotted(s, i, n) {
			p.ip4(s[i:i+n], 32)
			i += n
			continue
		}
		for n = 0; i+n < len(s) && symbolOf(s[i+n]).class != none; n++ {
		}
		switch {
		case n == 0:
			i++
			continue
		case longHex(s[i : i+n]):
			p.each("hex", s[i:i+n], hexSymbol)
		default:
			p.each("word", s[i:i+n], symbolOf)
		}
		i += n
	}
}

// boundary reports whether the n units from i are not part of a longer word.
func boundary(s []unit, i, n int) bool {
	return (i == 0 || symbolOf(s[i-1]).class == none) && (i+n == len(s) || symbolOf(s[i+n]).class == none)
}

// dotted reports whether the n units from i are part of a longer sequence of numbers and dots.
func dotted(s []unit, i, n int) bool {
	return i > 0 && s[i-1].r == '.' || i+n+1 < len(s) && s[i+n].r == '.' && symbolOf(s[i+n+1]).class == digit
}

// uuid returns the length of the UUID at the start of s, or 0.
func uuid(s []unit) int {
	const length = 36
	if len(s) < length {
		return 0
	}
	for i, u := range s[:length] {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if u.r != '-' {
				return 0
			}
		} else if hexSymbol(u).class == none {
			return 0
		}
	}
	return length
}

// longHex reports whether a word is a hexadecimal number, such as a digest.
func longHex(s []unit) bool {
	for _, u := range s {
		if hexSymbol(u).class == none {
			return false
		}
	}
	return len(s) >= 16
}

// ip4 returns the length of the IPv4 address at the start of s, or 0.
func ip4(s []unit) int {
	i := 0
	for n := range 4 {
		if n > 0 {
			if i == len(s) || s[i].r != '.' {
				return 0
			}
			i++
		}
		v, start := rune(0), i
		for i < len(s) && i < start+3 && symbolOf(s[i]).class == digit {
			v = 10*v + s[i].r - '0'
			i++
		}
		if i == start || v > 255 || i > start+1 && s[start].r == '0' {
			return 0
		}
	}
	return i
}

// ip4 replaces each byte of an address by one with as many digits. The replacement depends on
// the bytes before it, so addresses of one network stay in one network. Zero bytes beyond the
// first bits stay, because they mark the address of a network.
func (p *pseudonyms) ip4(s []unit, bits int) {
	if bits == 32 && harmlessIPs[plainString(s)] {
		return
	}
	domain := "ip4"
	for i, n := 0, 0; n < 4; n++ {
		start, v := i, uint32(0)
		for i < len(s) && s[i].r != '.' {
			v = 10*v + uint32(s[i].r-'0')
			i++
		}
		before := string(rune('0'+n)) + domain
		domain += "." + plainString(s[start:i])
		if 8*n < bits || v != 0 {
			low, high := uint32(0), uint32(9)
			switch i - start {
			case 2:
				low, high = 10, 99
			case 3:
				low, high = 100, 255
			}
			one := []symbol{{v - low, high - low + 1, octet}}
			p.replace(before, one)
			v = low + one[0].v
			for j := i - 1; j >= start; j-- {
				s[j].r = rune('0' + v%10)
				v /= 10
			}
		}
		i++
	}
}

// address replaces a string that is an IPv6 address or a network in CIDR notation. It returns
// false for any other string.
func (p *pseudonyms) address(s []unit) bool {
	if len(s) < 2 || len(s) > 64 {
		return false
	}
	text := plainString(s)
	slash := strings.IndexByte(text, '/')
	if slash < 0 {
		if !strings.Contains(text, ":") {
			return false
		}
		if a, err := netip.ParseAddr(text); err != nil || a.Is4In6() || a.Zone() != "" {
			return false
		}
		if !harmlessIPs[text] {
			p.ip6(s)
		}
		return true
	}
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil || prefix.Addr().Is4In6():
		return false
	case prefix.Addr().Is4():
		p.ip4(s[:slash], prefix.Bits())
	case !harmlessIPs[text[:slash]]:
		p.ip6(s[:slash])
	}
	return true
}

// ip6 replaces the groups of an address. Each replacement depends on the groups before it.
func (p *pseudonyms) ip6(s []unit) {
	domain := "ip6"
	for i := 0; i < len(s); {
		if s[i].r == ':' {
			i++
			continue
		}
		start := i
		var symbols []symbol
		for ; i < len(s) && s[i].r != ':'; i++ {
			symbols = append(symbols, hexSymbol(unit{r: s[i].r | 0x20}))
		}
		// A group starts with 0 only if it did so before.
		if len(symbols) > 1 && symbols[0].v != 0 {
			symbols[0] = symbol{symbols[0].v - 1, 15, octet}
		}
		before := domain
		domain += ":" + plainString(s[start:i])
		p.replace(before, symbols)
		for j, c := range symbols {
			if c.class == octet {
				c.v++
			}
			s[start+j].r = rune(hexDigits[c.v])
		}
	}
}

// base64 replaces a base64 string by one that decodes to as many bytes. It returns false for
// any other string.
func (p *pseudonyms) base64(s []unit) bool {
	if len(s)%4 != 0 {
		return false
	}
	n := len(s)
	for n > 0 && n > len(s)-2 && s[n-1].r == '=' {
		n--
	}
	symbols := make([]symbol, n)
	for i := range n {
		v := strings.IndexRune(base64Digits, s[i].r)
		if v < 0 || s[i].form == kept {
			return false
		}
		symbols[i] = symbol{uint32(v), 64, b64}
	}
	// The last digit of a padded string has unused bits.
	unused := uint32(1)
	if pad := len(s) - n; pad > 0 {
		unused = 1 << (2 * pad)
		end := &symbols[n-1]
		*end = symbol{end.v / unused, end.size / unused, b64 + byte(pad)}
	}
	p.replace("base64", symbols)
	if n > 0 {
		symbols[n-1].v *= unused
	}
	for i := range symbols {
		s[i].r = rune(base64Digits[symbols[i].v])
	}
	return true
}
