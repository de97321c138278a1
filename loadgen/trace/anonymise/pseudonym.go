package anonymise

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// pseudonyms derives replacements from an HMAC.
type pseudonyms struct{ mac hash.Hash }

func newPseudonyms(key [keySize]byte) *pseudonyms {
	return &pseudonyms{mac: hmac.New(sha256.New, key[:])}
}

// sum returns the HMAC of a text. The domain separates kinds of replacements, n separates numbers of one text.
func (p *pseudonyms) sum(domain byte, n int, text []byte) (sum [sha256.Size]byte) {
	p.mac.Reset()
	p.mac.Write(binary.LittleEndian.AppendUint32([]byte{domain}, uint32(n))) // Never fails.
	p.mac.Write(text)
	p.mac.Sum(sum[:0])
	return sum
}

// Domains of sum.
const (
	wordDomain    = 'w'
	addressDomain = 'a'
	opaqueDomain  = 'o'
)

// below returns a number below size. Its bias is less than 2^-32.
func (p *pseudonyms) below(size int, domain byte, n int, text []byte) int {
	sum := p.sum(domain, n, text)
	return int(binary.LittleEndian.Uint64(sum[:]) % uint64(size))
}

// of returns the replacement of a string of a form. It is never a word that stays everywhere, unless s is.
func (p *pseudonyms) of(f form, s string) string {
	switch {
	case f == encoded && len(s)%4 == 0:
		// The padding tells no more than the length.
		body := strings.TrimRight(s, "=")
		if padding := s[len(body):]; len(padding) <= 2 {
			return p.opaque(body) + padding
		}
	case f == qualified || f == version:
		if prefix, rest, ok := strings.Cut(s, "/"); ok {
			return p.name(prefix) + "/" + p.name(rest)
		}
		return p.name(s)
	case f != opaque && f != encoded:
		return p.name(s)
	}
	return p.opaque(s)
}

// isName matches a lower-case name. A generateName ends with a dash.
var isName = regexp.MustCompile(`^[a-z0-9]+(?:[-.][a-z0-9]+)*-?$`)

const longestName = 253 // of a Kubernetes object

func (p *pseudonyms) name(s string) string {
	var replace func(string) string
	switch {
	case keptWhole(s):
		return s
	case isAddress(s):
		replace = p.address
	case len(s) <= longestName && isName.MatchString(s):
		replace = p.words
	default:
		return p.opaque(s)
	}
	for s = replace(s); keptWhole(s); {
		s = replace(s)
	}
	return s
}

func (p *pseudonyms) words(s string) string {
	var out strings.Builder
	for s != "" {
		n := strings.IndexAny(s, "-.")
		if n < 0 {
			n = len(s)
		}
		out.WriteString(p.word(s[:n]))
		out.WriteString(s[n:min(n+1, len(s))])
		s = s[min(n+1, len(s)):]
	}
	return out.String()
}

// word moves each character within its alphabet by a distance: an HMAC of all other characters. Each move
// is reversible, so different words have different replacements. The first character always moves, so no
// word maps to itself.
func (p *pseudonyms) word(s string) string {
	w := []byte(s)
	for i, c := range w {
		first, size := byte('a'), 26
		if c <= '9' {
			first, size = '0', 10
		}
		w[i] = first
		least := max(0, 1-i)
		distance := least + p.below(size-least, wordDomain, i, w)
		w[i] = first + byte((int(c-first)+distance)%size)
	}
	return string(w)
}

const opaqueDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

// opaque returns as many letters and digits as s has bytes, the first of them a letter, so that the result
// is valid as a name, a label and an image.
func (p *pseudonyms) opaque(s string) string {
	for attempt := 0; s != ""; attempt++ {
		random := rand.NewChaCha8(p.sum(opaqueDomain, attempt, []byte(s)))
		out := make([]byte, len(s))
		for i := range out {
			out[i] = opaqueDigits[random.Uint64()%uint64(len(opaqueDigits))] // biased by less than 2^-58
		}
		if out[0] <= '9' {
			out[0] += 'a' - '0'
		}
		if t := string(out); t != s && !keptWhole(t) {
			return t
		}
	}
	return s
}

// isAddress reports whether a string is an IP address or a network.
func isAddress(s string) bool {
	ip, _, network := strings.Cut(s, "/")
	a, err := netip.ParseAddr(ip)
	if network && err == nil {
		_, err = netip.ParsePrefix(s)
	}
	return err == nil && a.Zone() == "" && (a.Is4() || !strings.Contains(ip, "."))
}

// addressNumber matches a number of an IPv4 address, or a digit of an IPv6 address.
var addressNumber = map[bool]*regexp.Regexp{true: regexp.MustCompile(`[0-9]+`), false: regexp.MustCompile(`[0-9a-fA-F]`)}

// address replaces each number of an IPv4 address by another one with as many digits, and each digit of an
// IPv6 address by another one. The replacement depends on the address before it, so the addresses of a
// network stay in one network. Zeros stay, because they mark the address of a network.
func (p *pseudonyms) address(s string) string {
	ip, _, _ := strings.Cut(s, "/")
	is4, out := strings.Contains(ip, "."), []byte(s)
	for _, at := range addressNumber[is4].FindAllStringIndex(ip, -1) {
		base, low, high := 16, 1, 15
		if is4 {
			digits := at[1] - at[0]
			base, low, high = 10, [...]int{0, 1, 10, 100}[digits], [...]int{0, 9, 99, 255}[digits]
		}
		v, _ := strconv.ParseUint(ip[at[0]:at[1]], base, 8) // The address is valid.
		if v == 0 {
			continue
		}
		size := high - low + 1
		distance := 1 + p.below(size-1, addressDomain, low, out[:at[0]])
		copy(out[at[0]:], strconv.FormatInt(int64(low+(int(v)-low+distance)%size), base))
	}
	return string(out)
}
