package lifecycle

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// This file translates the expressions in CEL that stages have into jq, because the packages of CEL would add a tenth
// to the command. It knows operators, has, size, macros, conversions and the functions of strings; times and durations
// stay texts. As in CEL, a field that is missing is an error, and && and || ignore an error that decides nothing.

// celFunctions are those in jq that translations call.
const celFunctions = `
def field($k): if type == "object" and has($k) then .[$k] else error("no such key: \($k)") end;
def member($i): if type == "object" then field($i) elif $i < length then .[$i] else error("no such index") end;
def among($c): . as $x | if ($c | type) == "object" then $c | has($x) else any($c[]; . == $x) end;
def logic(f; g; $v): [(try [f] catch null), (try [g] catch null)] as $r |
  if any($r[]; . == [$v]) then $v elif any($r[]; . == null) then error("no such overload") else $v | not end;
def negate: if type == "boolean" then not else error("no such overload") end;
def elements: if type == "object" then keys[] else .[] end;
def text: if type == "string" then . else tojson end;
. as $self | `

// celCalls are functions and methods by name. % is the object or the first argument, @ the next one.
var celCalls = map[string]string{
	"size": "% | length", "string": "% | text", "int": "% | tonumber | trunc", "uint": "% | tonumber | trunc", "double": "% | tonumber",
	"bool": "% | . == true or . == \"true\"", "duration": "%", "timestamp": "%", "Now": "now | todate", "startsWith": "% | startswith(@)",
	"endsWith": "% | endswith(@)", "contains": "% | contains(@)", "matches": "% | test(@)", "lowerAscii": "% | ascii_downcase",
	"upperAscii": "% | ascii_upcase", "split": "% | split(@)", "join": "% | join(@)",
}

// celMacros are those over a list, or the keys of a map. $ is the variable, @ the expression.
var celMacros = map[string]string{
	"exists": "any(% | elements; . as $ | @)", "all": "all(% | elements; . as $ | @)", "filter": "[% | elements | . as $ | select(@)]",
	"map": "[% | elements | . as $ | @]", "exists_one": "[% | elements | . as $ | select(@)] | length == 1",
}

var celToken = regexp.MustCompile(`^\s*(\d+\.\d+(?:[eE][-+]?\d+)?|\d+u?|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]{}])`)

// celParser reads an expression. It keeps the first error.
type celParser struct {
	tokens []string // ends with an empty one
	names  []string // variables
	depth  int
	err    error
}

// fromCEL returns an expression in jq.
func fromCEL(text string) (string, error) {
	p := &celParser{names: []string{"self"}}
	for rest := strings.TrimSpace(text); rest != ""; {
		m := celToken.FindStringSubmatch(rest)
		if m == nil {
			return "", fmt.Errorf("expression %q: %q is no CEL", text, rest)
		}
		p.tokens, rest = append(p.tokens, m[1]), rest[len(m[0]):]
	}
	p.tokens = append(p.tokens, "")
	out := p.ternary()
	if p.next(); len(p.tokens) > 0 {
		p.fail("unexpected %q", p.tokens[0])
	}
	if p.err != nil {
		return "", fmt.Errorf("expression %q: %w", text, p.err)
	}
	return celFunctions + out, nil
}

func (p *celParser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *celParser) next() string {
	if len(p.tokens) == 0 {
		p.fail("it ends too early")
		return ""
	}
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

// accept skips a token if it is the next one.
func (p *celParser) accept(token string) bool {
	if len(p.tokens) == 0 || p.tokens[0] != token {
		return false
	}
	p.tokens = p.tokens[1:]
	return true
}

func (p *celParser) expect(token string) {
	if got := p.next(); got != token {
		p.fail("%q where %q is expected", got, token)
	}
}

func (p *celParser) ternary() string {
	if p.depth++; p.depth > 100 {
		p.fail("too deep")
		p.tokens = nil
	}
	defer func() { p.depth-- }()
	out := p.binary(0)
	if p.accept("?") {
		yes := p.ternary()
		p.expect(":")
		return "(if " + out + " then " + yes + " else " + p.ternary() + " end)"
	}
	return out
}

// celLevels are the binary operators, those that bind least first.
var celLevels = [][]string{{"||"}, {"&&"}, {"==", "!=", "<", "<=", ">", ">=", "in"}, {"+", "-"}, {"*", "/", "%"}}

func (p *celParser) binary(level int) string {
	if level == len(celLevels) {
		return p.unary()
	}
	out := p.binary(level + 1)
	for len(p.tokens) > 0 && slices.Contains(celLevels[level], p.tokens[0]) {
		op := p.next()
		right := p.binary(level + 1)
		switch op {
		case "||", "&&":
			out = "logic(" + out + "; " + right + "; " + strconv.FormatBool(op == "||") + ")"
		case "in":
			out = "(" + out + " | among(" + right + "))"
		default:
			out = "(" + out + " " + op + " " + right + ")"
		}
	}
	return out
}

func (p *celParser) unary() string {
	not := 0
	for ; p.accept("!"); not++ {
	}
	minus := p.accept("-")
	out := p.primary()
	for {
		switch {
		case p.accept("."):
			name := p.next()
			if !p.accept("(") {
				out = "(" + out + " | field(" + strconv.Quote(name) + "))"
				continue
			}
			if macro := celMacros[name]; macro != "" {
				variable := p.next()
				p.expect(",")
				p.names = append(p.names, variable)
				body := p.ternary()
				p.names = p.names[:len(p.names)-1]
				p.expect(")")
				out = "(" + strings.NewReplacer("%", out, "$", "$"+variable, "@", body).Replace(macro) + ")"
				continue
			}
			out = p.call(name, []string{out})
		case p.accept("["):
			out = "(" + out + " | member(" + p.ternary() + "))"
			p.expect("]")
		default:
			if minus {
				out = "(-" + out + ")"
			}
			if not > 0 {
				out = "(" + out + strings.Repeat(" | negate", not) + ")"
			}
			return out
		}
	}
}

// list reads expressions up to a closing token.
func (p *celParser) list(end string) (out []string) {
	for !p.accept(end) && p.err == nil {
		out = append(out, p.ternary())
		if !p.accept(",") {
			p.expect(end)
			break
		}
	}
	return out
}

// call reads the arguments of a function, the object of a method before them.
func (p *celParser) call(name string, args []string) string {
	if name == "has" && len(args) == 0 {
		at := p.ternary()
		p.expect(")")
		end := strings.LastIndex(at, " | field(")
		if end < 0 || !strings.HasSuffix(at, "))") {
			p.fail("has needs a field")
			return ""
		}
		return at[:end] + " | has(" + at[end+len(" | field("):]
	}
	args = append(args, p.list(")")...)
	form := celCalls[name]
	if want := strings.Count(form, "%") + strings.Count(form, "@"); form == "" || len(args) != want {
		p.fail("no function %s of %d arguments", name, len(args))
		return ""
	}
	args = append(args, "", "")
	return "(" + strings.NewReplacer("%", args[0], "@", args[1]).Replace(form) + ")"
}

func (p *celParser) primary() string {
	t := p.next()
	switch {
	case t == "(":
		out := p.ternary()
		p.expect(")")
		return "(" + out + ")"
	case t == "[":
		return "[" + strings.Join(p.list("]"), ", ") + "]"
	case t == "{":
		var pairs []string
		for !p.accept("}") && p.err == nil {
			key := p.ternary()
			p.expect(":")
			pairs = append(pairs, "("+key+"): "+p.ternary())
			if !p.accept(",") {
				p.expect("}")
				break
			}
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	case t == "true", t == "false", t == "null":
		return t
	case t != "" && t[0] >= '0' && t[0] <= '9':
		return strings.TrimSuffix(t, "u")
	case t != "" && (t[0] == '"' || t[0] == '\''):
		inner := t[1 : len(t)-1]
		if t[0] == '\'' {
			inner = strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, "'"), `"`, `\"`)
		}
		text, err := strconv.Unquote(`"` + inner + `"`)
		if err != nil {
			p.fail("%s is no string", t)
		}
		quoted, _ := json.Marshal(text)
		return string(quoted)
	case slices.Contains(p.names, t):
		return "$" + t
	case p.accept("("):
		return p.call(t, nil)
	}
	p.fail("unknown name %q", t)
	return ""
}
