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

// unit is one character of a JSON string.
type unit struct {
	r rune

	form form
}

type form uint8

const (
	asIs      form = iota
	escaped        // \u00e9
	surrogate      // \ud83d\ude00
	kept           // \n, \", and what is no character: never replaced
)

// symbol is one character to be replaced by another of its alphabet, or one
// byte of an address.
type symbol struct {
	v, radix uint32
	class    byte
}

// words replaces characters by others of the same kind, in a way that depends on
// the key.
//
// The replacement of n symbols is a permutation of all that could stand in their
// place: first a Feistel network f, whose rounds add to each symbol of one half
// what the key and the other half say; then one is added to the first symbol,
// and f is undone. As f⁻¹(f(x)+1) has a fixed point only where +1 has one, which
// is nowhere, nothing is replaced by itself; and it is undone by f⁻¹(f(y)-1), so
// that no two are replaced by the same.
type words struct {
	mac hash.Hash

	cycles map[string][]uint8
	buf    []byte
}

func newWords(key [KeySize]byte) *words {
	return &words{mac: hmac.New(sha256.New, key[:]), cycles: map[string][]uint8{}}
}

// stream returns the random numbers that belong to a message.
func (w *words) stream(message []byte) *rand.ChaCha8 {
	w.mac.Reset()
	w.mac.Write(message) // Never fails.
	var seed [32]byte
	w.mac.Sum(seed[:0])
	return rand.NewChaCha8(seed)
}

// rounds of the Feistel network.
const rounds = 8

// permute replaces the symbols in place. The domain keeps apart what shall have
// nothing in common.
func (w *words) permute(domain string, s []symbol) {
	switch len(s) {
	case 0:
		return
	case 1:
		s[0].v = w.single(domain, s[0])
		return
	}
	for i := range rounds {
		w.round(domain, s, i, false)
	}
	s[0].v = (s[0].v + 1) % s[0].radix
	for i := rounds - 1; i >= 0; i-- {
		w.round(domain, s, i, true)
	}
}

func (w *words) round(domain string, s []symbol, i int, undo bool) {
	half := len(s) / 2
	change, by := s[:half], s[half:]
	if i%2 == 1 {
		change, by = by, change
	}
	b := append(w.buf[:0], domain...)
	b = append(b, 0, byte(i))
	for _, c := range s {
		b = append(b, c.class)
	}
	for _, c := range by {
		b = binary.LittleEndian.AppendUint32(b, c.v)
	}
	w.buf = b
	stream := w.stream(b)
	for j := range change {
		c := &change[j]
		// The bias of taking the rest is below 2^-32.
		n := uint32(stream.Uint64() % uint64(c.radix))
		if undo {
			n = c.radix - n
		}
		c.v = (c.v + n) % c.radix
	}
}

// single replaces a symbol that stands by itself.
func (w *words) single(domain string, s symbol) uint32 {
	b := append(append(w.buf[:0], domain...), 1, s.class)
	b = binary.LittleEndian.AppendUint32(b, s.radix)
	w.buf = b
	if s.radix > 256 {
		return (s.v + 1 + uint32(w.stream(b).Uint64()%uint64(s.radix-1))) % s.radix
	}
	cycle, ok := w.cycles[string(b)]
	if !ok {
		name := string(b)
		// Sattolo's shuffle makes one cycle of all, so that none stays.
		rng := rand.New(w.stream(b))
		cycle = make([]uint8, s.radix)
		for i := range cycle {
			cycle[i] = uint8(i)
		}
		for i := len(cycle) - 1; i > 0; i-- {
			j := rng.IntN(i)
			cycle[i], cycle[j] = cycle[j], cycle[i]
		}
		if len(w.cycles) >= memoSize {
			clear(w.cycles)
		}
		w.cycles[name] = cycle
	}
	return uint32(cycle[s.v])
}

// Classes of characters, and how many each has.
const (
	lower  = 'l'
	upper  = 'u'
	digit  = 'd'
	hexa   = 'h'
	b64    = 'b'
	octet  = 'o'
	utf2   = '2'
	utf3   = '3'
	utf4   = '4'
	nobody = 0
)

const (
	first2, first3, first4 = 0x80, 0x800, 0x10000
	firstSurrogate         = 0xd800
	surrogates             = 0x800
	last                   = 0x10ffff
)

// symbolOf returns the symbol of a character that is part of a word; class is
// nobody where it isn't.
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
		// Surrogates are no characters.
		v := uint32(r - first3)
		if r >= firstSurrogate {
			v -= surrogates
		}
		return symbol{v, first4 - first3 - surrogates, utf3}
	default:
		return symbol{uint32(r - first4), last - first4 + 1, utf4}
	}
}

// rune is the reverse of symbolOf.
func (s symbol) rune() rune {
	v := rune(s.v)
	switch s.class {
	case lower:
		return 'a' + v
	case upper:
		return 'A' + v
	case digit:
		return '0' + v
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

// text replaces a string word by word, in place. What is kept of strings that
// stand alone (see keptWhole) can't come out of it.
func (w *words) text(s []unit) {
	if len(s) <= longestKept && keptWhole(plainString(s)) {
		return
	}
	for {
		w.once(s)
		if len(s) > longestKept || !keptWhole(plainString(s)) {
			return
		}
	}
}

func plainString(s []unit) string {
	var b strings.Builder
	for _, u := range s {
		b.WriteRune(u.r)
	}
	return b.String()
}

func (w *words) once(s []unit) {
	if w.address(s) {
		return
	}
	for i := 0; i < len(s); {
		if n := uuid(s[i:]); n > 0 && boundary(s, i, n) {
			w.hex("uuid", s[i:i+n])
			i += n
			continue
		}
		if n := ip4(s[i:]); n > 0 && boundary(s, i, n) && !dotted(s, i, n) {
			w.ip4(s[i:i+n], 32)
			i += n
			continue
		}
		n := 0
		for i+n < len(s) && symbolOf(s[i+n]).class != nobody {
			n++
		}
		if n == 0 {
			i++
			continue
		}
		if longHex(s[i : i+n]) {
			w.hex("hex", s[i:i+n])
		} else {
			w.permuteUnits("word", s[i:i+n])
		}
		i += n
	}
}

// whole replaces all words of a string as one.
func (w *words) whole(s []unit) { w.permuteUnits("whole", s) }

// permuteUnits replaces those characters that are part of words.
func (w *words) permuteUnits(domain string, s []unit) {
	symbols := make([]symbol, 0, len(s))
	for _, u := range s {
		if sym := symbolOf(u); sym.class != nobody {
			symbols = append(symbols, sym)
		}
	}
	w.permute(domain, symbols)
	for i := range s {
		if symbolOf(s[i]).class != nobody {
			s[i].r = symbols[0].rune()
			symbols = symbols[1:]
		}
	}
}

// boundary reports whether n units from i are not part of a longer word.
func boundary(s []unit, i, n int) bool {
	return (i == 0 || symbolOf(s[i-1]).class == nobody) && (i+n == len(s) || symbolOf(s[i+n]).class == nobody)
}

// dotted reports whether n units from i are part of more numbers and dots.
func dotted(s []unit, i, n int) bool {
	return i > 0 && s[i-1].r == '.' || i+n+1 < len(s) && s[i+n].r == '.' && symbolOf(s[i+n+1]).class == digit
}

func hexValue(u unit) (uint32, bool) {
	switch {
	case u.form == kept:
		return 0, false
	case '0' <= u.r && u.r <= '9':
		return uint32(u.r - '0'), true
	case 'a' <= u.r && u.r <= 'f':
		return uint32(u.r-'a') + 10, true
	}
	return 0, false
}

const hexDigits = "0123456789abcdef"

// hex replaces hexadecimal digits by such.
func (w *words) hex(domain string, s []unit) {
	symbols := make([]symbol, 0, len(s))
	for _, u := range s {
		if v, ok := hexValue(u); ok {
			symbols = append(symbols, symbol{v, 16, hexa})
		}
	}
	w.permute(domain, symbols)
	for i := range s {
		if _, ok := hexValue(s[i]); ok {
			s[i].r = rune(hexDigits[symbols[0].v])
			symbols = symbols[1:]
		}
	}
}

// uuid returns the length of the UUID that s begins with, or 0.
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
		} else if _, ok := hexValue(u); !ok {
			return 0
		}
	}
	return length
}

// longHex reports whether a word is taken for a hexadecimal number: a digest or
// the like.
func longHex(s []unit) bool {
	if len(s) < 16 {
		return false
	}
	for _, u := range s {
		if _, ok := hexValue(u); !ok {
			return false
		}
	}
	return true
}

// ip4 returns the length of the IPv4 address that s begins with, or 0.
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

// ip4 replaces the bytes of an address, each by one that is written with as many
// digits, depending on those before it: what is in one network stays so. Bytes
// beyond the first bits stay where they are 0, being the rest of a network's
// address.
func (w *words) ip4(s []unit, bits int) {
	if a := plainString(s); bits == 32 && harmlessIPs[a] {
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
			v = low + w.single(before, symbol{v - low, high - low + 1, octet})
			for j := i - 1; j >= start; j-- {
				s[j].r = rune('0' + v%10)
				v /= 10
			}
		}
		i++
	}
}

var harmlessIPs = map[string]bool{"127.0.0.1": true, "0.0.0.0": true, "::1": true, "::": true}

// address replaces a string that is one IPv6 address, or a network in CIDR
// notation; it returns false for anything else.
func (w *words) address(s []unit) bool {
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
			w.ip6(s)
		}
		return true
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil || p.Addr().Is4In6():
		return false
	case p.Addr().Is4():
		w.ip4(s[:slash], p.Bits())
	case !harmlessIPs[text[:slash]]:
		w.ip6(s[:slash])
	}
	return true
}

// ip6 replaces the groups of an address, each depending on those before it.
func (w *words) ip6(s []unit) {
	domain := "ip6"
	for i := 0; i < len(s); {
		if s[i].r == ':' {
			i++
			continue
		}
		start := i
		var symbols []symbol
		for ; i < len(s) && s[i].r != ':'; i++ {
			v, _ := hexValue(unit{r: s[i].r | 0x20})
			symbols = append(symbols, symbol{v, 16, hexa})
		}
		// A group doesn't begin with 0, unless it was written so.
		padded := len(symbols) > 1 && symbols[0].v == 0
		if len(symbols) > 1 && !padded {
			symbols[0] = symbol{symbols[0].v - 1, 15, octet}
		}
		before := domain
		domain += ":" + plainString(s[start:i])
		w.permute(before, symbols)
		for j := range symbols {
			v := symbols[j].v
			if symbols[j].class == octet {
				v++
			}
			s[start+j].r = rune(hexDigits[v])
		}
	}
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// base64 replaces a string of base64 by one that decodes to as many bytes; it
// returns false where the string is none.
func (w *words) base64(s []unit) bool {
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
	// The last digit of a padded string has bits that belong to no byte.
	unused := uint32(1)
	if pad := len(s) - n; pad > 0 {
		unused = 1 << (2 * pad)
		last := &symbols[n-1]
		*last = symbol{last.v / unused, last.radix / unused, b64 + byte(pad)}
	}
	w.permute("base64", symbols)
	if n > 0 {
		symbols[n-1].v *= unused
	}
	for i := range symbols {
		s[i].r = rune(base64Digits[symbols[i].v])
	}
	return true
}
