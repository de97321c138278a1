package anonymise

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

// sum returns the HMAC of a text. The domain separates kinds of replacements, n separates numbers of one text.
func (a *Anonymiser) sum(domain byte, n int, text []byte) (sum [sha256.Size]byte) {
	a.mac.Reset()
	a.mac.Write(binary.LittleEndian.AppendUint32([]byte{domain}, uint32(n))) // Never fails.
	a.mac.Write(text)
	a.mac.Sum(sum[:0])
	return sum
}

// Domains of sum.
const (
	wordDomain    = 'w'
	addressDomain = 'a'
	opaqueDomain  = 'o'
)

// below returns a number below size. Its bias is less than 2^-32.
func (a *Anonymiser) below(size int, domain byte, n int, text []byte) int {
	sum := a.sum(domain, n, text)
	return int(binary.LittleEndian.Uint64(sum[:]) % uint64(size))
}

// of returns the replacement of a string of a form. It is never a word that stays everywhere, unless s is.
func (a *Anonymiser) of(f form, s string) string {
	switch f {
	case opaque:
		return a.opaque(s)
	case encoded:
		// The padding tells no more than the length.
		body := strings.TrimRight(s, "=")
		if padding := s[len(body):]; len(s)%4 == 0 && len(padding) <= 2 {
			return a.opaque(body) + padding
		}
		return a.opaque(s)
	case qualified, version:
		if prefix, rest, ok := strings.Cut(s, "/"); ok {
			return a.name(prefix) + "/" + a.name(rest)
		}
	}
	return a.name(s)
}

// isName matches a lower-case name. A generateName ends with a dash.
var isName = regexp.MustCompile(`^[a-z0-9]+(?:[-.][a-z0-9]+)*-?$`)

const longestName = 253 // of a Kubernetes object

func (a *Anonymiser) name(s string) string {
	var replace func(string) string
	switch {
	case keptWhole(s):
		return s
	case isAddress(s):
		replace = a.address
	case len(s) <= longestName && isName.MatchString(s):
		replace = a.words
	default:
		return a.opaque(s)
	}
	for s = replace(s); keptWhole(s); {
		s = replace(s)
	}
	return s
}

func (a *Anonymiser) words(s string) string {
	var out strings.Builder
	for s != "" {
		n := strings.IndexAny(s, "-.")
		if n < 0 {
			n = len(s)
		}
		out.WriteString(a.word(s[:n]))
		out.WriteString(s[n:min(n+1, len(s))])
		s = s[min(n+1, len(s)):]
	}
	return out.String()
}

// word moves each character within its alphabet by a distance: an HMAC of all other characters. Each move
// is reversible, so different words have different replacements. The first character always moves, so no
// word maps to itself.
func (a *Anonymiser) word(s string) string {
	w := []byte(s)
	for i, c := range w {
		first, size := byte('a'), 26
		if c <= '9' {
			first, size = '0', 10
		}
		w[i] = first
		least := max(0, 1-i)
		distance := least + a.below(size-least, wordDomain, i, w)
		w[i] = first + byte((int(c-first)+distance)%size)
	}
	return string(w)
}

const opaqueDigits = "abcdefghijklmnopqrstuvwxyz0123456789"

// opaque returns as many letters and digits as s has bytes, the first of them a letter, so that the result
// is valid as a name, a label and an image.
func (a *Anonymiser) opaque(s string) string {
	for attempt := 0; s != ""; attempt++ {
		random := rand.NewChaCha8(a.sum(opaqueDomain, attempt, []byte(s)))
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
func (a *Anonymiser) address(s string) string {
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
		distance := 1 + a.below(size-1, addressDomain, low, out[:at[0]])
		copy(out[at[0]:], strconv.FormatInt(int64(low+(int(v)-low+distance)%size), base))
	}
	return string(out)
}
