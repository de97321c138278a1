package anonymise

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
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

const longWord = 16 // number of symbols from which words are replaced by random numbers

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

// alphabets are the ranges of characters that replace each other. Symbols of alphabets[i] have the class i.
// Characters outside words are in no alphabet.
var alphabets = [...]struct{ first, last rune }{{'a', 'z'}, {'A', 'Z'}, {'0', '9'}}

// Classes of symbols beside those of alphabets.
const (
	hexa  = 'h'
	octet = 'o'
)

const hexDigits = "0123456789abcdef"

// wordSymbol returns the symbol of a character of a word; ok is false for any other character.
func wordSymbol(r rune) (s symbol, ok bool) {
	for i, a := range alphabets {
		if a.first <= r && r <= a.last {
			return symbol{uint32(r - a.first), uint32(a.last - a.first + 1), byte(i)}, true
		}
	}
	return symbol{}, false
}

func hexSymbol(r rune) (s symbol, ok bool) {
	v := strings.IndexRune(hexDigits, r)
	return symbol{uint32(v), 16, hexa}, v >= 0
}

// rune returns the character of a wordSymbol or a hexSymbol.
func (s symbol) rune() rune {
	if s.class == hexa {
		return rune(hexDigits[s.v])
	}
	return alphabets[s.class].first + rune(s.v)
}

// each replaces the characters for which of returns a symbol, as one word.
func (p *pseudonyms) each(domain, s string, of func(rune) (symbol, bool)) string {
	symbols := make([]symbol, 0, len(s))
	for _, c := range s {
		if symbol, ok := of(c); ok {
			symbols = append(symbols, symbol)
		}
	}
	p.replace(domain, symbols)
	return strings.Map(func(c rune) rune {
		if _, ok := of(c); ok {
			c = symbols[0].rune()
			symbols = symbols[1:]
		}
		return c
	}, s)
}

// Names are replaced word by word, whatever has another form is opaque. A path starts with a slash, and a
// generateName ends with a dash.
var (
	isName      = regexp.MustCompile(`^/?[A-Za-z0-9]+(?:[-._/:@][A-Za-z0-9]+)*-?$`)
	isLowerName = regexp.MustCompile(`^[a-z0-9]+(?:[-.][a-z0-9]+)*-?$`)
)

const opaqueDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

// opaque returns as many letters and digits as s has bytes. They tell its length, and where it is the same.
func (p *pseudonyms) opaque(s string) string {
	if s == "" {
		return s
	}
	for n := 0; ; n++ {
		random := p.random("whole", n, s)
		out := make([]byte, len(s))
		for i := range out {
			out[i] = opaqueDigits[random.Uint64()%uint64(len(opaqueDigits))] // biased by less than 2^-58
		}
		if t := string(out); t != s && !keptWhole(t) {
			return t
		}
	}
}

// random returns numbers that depend on the HMAC of s. n tells attempts apart.
func (p *pseudonyms) random(domain string, n int, s string) *rand.ChaCha8 {
	message := append(append(p.buf[:0], domain...), 0, 0)
	message = append(binary.LittleEndian.AppendUint32(message, uint32(n)), s...)
	p.buf = message
	return rand.NewChaCha8(p.sum(message))
}

// text replaces a string word by word. The result is never one of the kept strings (see
// keptWhole), unless s is.
func (p *pseudonyms) text(s string) string {
	if keptWhole(s) {
		return s
	}
	for {
		if s = p.words(s); !keptWhole(s) {
			return s
		}
	}
}

func (p *pseudonyms) words(s string) string {
	if address, ok := p.address(s); ok {
		return address
	}
	var out strings.Builder
	for i := 0; i < len(s); {
		n, replacement := p.first(s[:i], s[i:])
		out.WriteString(replacement)
		i += n
	}
	return out.String()
}

var (
	uuid = regexp.MustCompile(`^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}`)
	ip4  = regexp.MustCompile(`^(?:` + byteDigits + `\.){3}` + byteDigits)
	// dotted continues a sequence of numbers and dots that is longer than an address.
	dotted  = regexp.MustCompile(`^\.[0-9]`)
	longHex = regexp.MustCompile(`^[0-9a-f]{16,}$`) // hexadecimal number such as a digest
)

const byteDigits = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`

// first replaces the first n bytes of s: a word, an identifier or an address, or else one
// character, which stays. before is the text before s; no word spans both.
func (p *pseudonyms) first(before, s string) (n int, replacement string) {
	if n = len(uuid.FindString(s)); n > 0 && wordLength(s[n:]) == 0 {
		return n, p.each("uuid", s[:n], hexSymbol)
	}
	if n = len(ip4.FindString(s)); n > 0 && wordLength(s[n:]) == 0 && !strings.HasSuffix(before, ".") && !dotted.MatchString(s[n:]) {
		return n, p.ip4(s[:n], 32)
	}
	switch n = wordLength(s); {
	case n == 0:
		return 1, s[:1]
	case longHex.MatchString(s[:n]):
		return n, p.each("hex", s[:n], hexSymbol)
	}
	return n, p.each("word", s[:n], wordSymbol)
}

// wordLength returns the length of the word at the start of s in bytes.
func wordLength(s string) int {
	for i, c := range s {
		if _, ok := wordSymbol(c); !ok {
			return i
		}
	}
	return len(s)
}

// ip4 replaces each byte of an address by one with as many digits. The replacement depends on
// the bytes before it, so addresses of one network stay in one network. Zero bytes beyond the
// first bits stay, because they mark the address of a network.
func (p *pseudonyms) ip4(s string, bits int) string {
	if bits == 32 && harmlessIPs[s] {
		return s
	}
	domain := "ip4"
	parts := strings.Split(s, ".")
	for i, part := range parts {
		before := strconv.Itoa(i) + domain
		domain += "." + part
		if part == "0" && 8*i >= bits {
			continue
		}
		low, high := 0, 9
		switch len(part) {
		case 2:
			low, high = 10, 99
		case 3:
			low, high = 100, 255
		}
		v, _ := strconv.Atoi(part) // The address is valid.
		one := []symbol{{uint32(v - low), uint32(high - low + 1), octet}}
		p.replace(before, one)
		parts[i] = strconv.Itoa(low + int(one[0].v))
	}
	return strings.Join(parts, ".")
}

// isAddress reports whether a string is an IPv6 address or a network, which isName excludes.
func isAddress(s string) bool {
	_, noAddress := netip.ParseAddr(s)
	_, noNetwork := netip.ParsePrefix(s)
	return len(s) <= 64 && strings.Trim(s, "0123456789abcdefABCDEF.:/") == "" && (noAddress == nil || noNetwork == nil)
}

// address replaces a string that is an IPv6 address or a network in CIDR notation. ok is false
// for any other string.
func (p *pseudonyms) address(s string) (replacement string, ok bool) {
	ip, bits, network := strings.Cut(s, "/")
	a, err := netip.ParseAddr(ip)
	switch {
	case len(s) > 64 || err != nil || a.Zone() != "" || a.Is4() && !network || a.Is6() && strings.Contains(ip, "."):
		return "", false
	case network:
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			return "", false
		}
		bits = "/" + bits
		if a.Is4() {
			return p.ip4(ip, prefix.Bits()) + bits, true
		}
	}
	return p.ip6(ip) + bits, true
}

// ip6 replaces the groups of an address. Each replacement depends on the groups before it.
func (p *pseudonyms) ip6(s string) string {
	if harmlessIPs[s] {
		return s
	}
	domain := "ip6"
	groups := strings.Split(s, ":")
	for i, group := range groups {
		var symbols []symbol
		for _, c := range strings.ToLower(group) {
			symbol, _ := hexSymbol(c)
			symbols = append(symbols, symbol)
		}
		// A group starts with 0 only if it did so before.
		if len(symbols) > 1 && symbols[0].v != 0 {
			symbols[0] = symbol{symbols[0].v - 1, 15, octet}
		}
		before := domain
		domain += ":" + group
		p.replace(before, symbols)
		out := make([]byte, len(symbols))
		for j, c := range symbols {
			if c.class == octet {
				c.v++
			}
			out[j] = hexDigits[c.v]
		}
		groups[i] = string(out)
	}
	return strings.Join(groups, ":")
}

// base64 replaces a base64 string by one that decodes to as many bytes, any other string as opaque does.
func (p *pseudonyms) base64(s string) string {
	data, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(data) == 0 {
		return p.opaque(s)
	}
	for n := 0; ; n++ {
		random := p.random("base64", n, s)
		for i := range data {
			data[i] = byte(random.Uint64())
		}
		if out := base64.StdEncoding.EncodeToString(data); out != s {
			return out
		}
	}
}
