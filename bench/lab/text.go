package lab

import (
	"fmt"
	"strconv"
	"strings"
)

var markdownEscapes = strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "`", "\\`", "~", `\~`, "\n", " ")

// Escape escapes Markdown syntax.
func Escape(s string) string { return markdownEscapes.Replace(s) }

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
