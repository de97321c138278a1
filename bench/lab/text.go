package lab

import (
	"fmt"
	"hash/fnv"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// credentials matches those of URLs, also encoded and in JSON, and of HTTP headers: user:password@, ?token=, Bearer.
var credentials = regexp.MustCompile(`(?i)((?:://|%3a%2f%2f))[^\s"'/?#]+(@|%40)` +
	`|((?:[?&]|\\u0026|%3f|%26)[^\s"'=&%\\]*(?:token|key|secret|pass|auth|sig|cred)[^\s"'=&%\\]*(?:=|%3d))[^\s"'&#\\]+` +
	`|(\b(?:(?:bearer|basic)(?: |%20)|credential=))[\w.~+/=-]{12,}`)

// Redact replaces the credentials in a text. Everything that the lab stores or prints and that may hold a URL of the
// user passes through it.
func Redact(text string) string { return credentials.ReplaceAllString(text, "${1}${3}${4}***${2}") }

// RedactAll returns the redacted texts.
func RedactAll(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = Redact(t)
	}
	return out
}

// GroupBy groups elements by a key, in order of appearance.
func GroupBy[K comparable, T any](all []T, key func(T) K) [][]T {
	at := map[K]int{}
	var groups [][]T
	for _, v := range all {
		k := key(v)
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], v)
	}
	return groups
}

// fileNames write an escaped path with underscores for slashes.
var fileNames = strings.NewReplacer("_", "%5F", "%2F", "_", ":", "%3A")

// FileName returns the name of a cell's file, without its ending. Different cells have different names.
func FileName(cell string) string {
	// Leave room for an ending and for the prefix of a temporary file: file systems allow 255 bytes.
	const longest = 200
	name := fileNames.Replace(url.PathEscape(cell))
	if len(name) > longest {
		h := fnv.New64a()
		_, _ = h.Write([]byte(cell)) // It never fails.
		name = fmt.Sprintf("%s-%016x", name[:longest], h.Sum64())
	}
	return name
}

// Plural writes a count with its noun: "1 share", "2 shares".
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// RoundsText returns the number of rounds and of the processes that shared them. With a budget,
// comparisons have different numbers.
func (o *Outcome) RoundsText() string {
	least, most := o.Rounds, o.Rounds
	for _, c := range o.Comparisons {
		if c.Rounds > 0 {
			least, most = min(least, c.Rounds), max(most, c.Rounds)
		}
	}
	text := Plural(most, "round")
	if least < most {
		text = fmt.Sprintf("%d to %s", least, text)
	}
	if n := o.Env.Processes; n > 1 && !o.OneProcess() {
		text += " in " + Plural(n, "process")
		if n < most {
			text += ", one value each"
		}
	}
	return text
}

// CommandLine joins the words of a command, quoted for a shell where they need it.
func CommandLine(words []string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:@%+"
	out := make([]string, len(words))
	for i, w := range words {
		if w == "" || strings.Trim(w, plain) != "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out[i] = w
	}
	return strings.Join(out, " ")
}
