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
// to the command. It knows operators, has, macros, conversions and functions of strings; times and durations stay
// texts. As in CEL, a field that is missing is an error, and && and || ignore an error that decides nothing.

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

// celCalls are functions, methods and macros by name. % is the object of a method or the first argument, @ the other
// argument, and $ the variable of a macro.
var celCalls = map[string]string{
	"size": "% | length", "string": "% | text", "int": "% | tonumber | trunc", "double": "% | tonumber", "duration": "%",
	"timestamp": "%", "startsWith": "% | startswith(@)", "endsWith": "% | endswith(@)", "contains": "% | contains(@)",
	"matches": "% | test(@)", "lowerAscii": "% | ascii_downcase", "exists": "any(% | elements; . as $ | @)",
	"all": "all(% | elements; . as $ | @)", "filter": "[% | elements | . as $ | select(@)]", "map": "[% | elements | . as $ | @]",
	"exists_one": "[% | elements | . as $ | select(@)] | length == 1",
}

// celLevels are how strongly the binary operators bind.
var celLevels = map[string]int{
	"?": 1, "||": 2, "&&": 3, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "in": 4, "+": 5, "-": 5, "*": 6, "/": 6, "%": 6,
}

var celToken = regexp.MustCompile(`^\s*(\d+\.\d+|\d+|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[A-Za-z_]\w*|&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]])`)

// celParser reads an expression. It panics with a celError.
type celParser struct {
	tokens []string // ends with an empty one
	names  []string // variables
	depth  int
}

type celError string

// fromCEL returns an expression in jq.
func fromCEL(text string) (out string, err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case celError:
			err = fmt.Errorf("expression %q: %s", text, string(problem))
		default:
			panic(problem)
		}
	}()
	p := &celParser{names: []string{"self"}}
	for rest := strings.TrimSpace(text); rest != ""; {
		m := celToken.FindStringSubmatch(rest)
		if m == nil {
			panic(celError(fmt.Sprintf("%q is no CEL", rest)))
		}
		p.tokens, rest = append(p.tokens, m[1]), rest[len(m[0]):]
	}
	p.tokens = append(p.tokens, "")
	out = p.expression(0)
	p.expect("")
	return celFunctions + out, nil
}

func (p *celParser) next() string {
	t := p.tokens[0]
	if len(p.tokens) > 1 {
		p.tokens = p.tokens[1:]
	}
	return t
}

// accept skips a token if it is the next one.
func (p *celParser) accept(token string) bool { return p.tokens[0] == token && p.next() == token }

func (p *celParser) expect(token string) {
	if got := p.next(); got != token {
		panic(celError(fmt.Sprintf("%q where %q is expected", got, token)))
	}
}

// expression reads operators that bind more strongly than a level.
func (p *celParser) expression(level int) string {
	if p.depth++; p.depth > 100 {
		panic(celError("it is too deep"))
	}
	defer func() { p.depth-- }()
	out := p.operand()
	for celLevels[p.tokens[0]] > level {
		switch op := p.next(); op {
		case "?":
			yes := p.expression(0)
			p.expect(":")
			out = "(if " + out + " then " + yes + " else " + p.expression(0) + " end)"
		case "||", "&&":
			out = "logic(" + out + "; " + p.expression(celLevels[op]) + "; " + strconv.FormatBool(op == "||") + ")"
		case "in":
			out = "(" + out + " | among(" + p.expression(celLevels[op]) + "))"
		default:
			out = "(" + out + " " + op + " " + p.expression(celLevels[op]) + ")"
		}
	}
	return out
}

// operand reads a value with its fields and methods, and the signs before it.
func (p *celParser) operand() string {
	if p.accept("!") {
		return "(" + p.operand() + " | negate)"
	}
	if p.accept("-") {
		return "(-" + p.operand() + ")"
	}
	out := p.value()
	for {
		switch {
		case p.accept("."):
			if name := p.next(); p.accept("(") {
				out = p.call(name, out)
			} else {
				out = "(" + out + " | field(" + strconv.Quote(name) + "))"
			}
		case p.accept("["):
			out = "(" + out + " | member(" + p.expression(0) + "))"
			p.expect("]")
		default:
			return out
		}
	}
}

// call reads the arguments of a function; a method has its object before them.
func (p *celParser) call(name string, args ...string) string {
	form, variable, names := celCalls[name], "", p.names
	if strings.Contains(form, "$") {
		variable = p.next()
		p.names = append(slices.Clone(p.names), variable)
		p.expect(",")
	}
	for !p.accept(")") {
		if args = append(args, p.expression(0)); p.tokens[0] != ")" {
			p.expect(",")
		}
	}
	p.names = names
	if name == "has" && len(args) == 1 {
		if end := strings.LastIndex(args[0], " | field("); end > 0 && strings.HasSuffix(args[0], "))") {
			return args[0][:end] + " | has(" + args[0][end+len(" | field("):]
		}
	}
	if form == "" || len(args) != strings.Count(form, "%")+strings.Count(form, "@") {
		panic(celError(fmt.Sprintf("no function %s of %d arguments", name, len(args))))
	}
	return "(" + strings.NewReplacer("%", args[0], "@", args[len(args)-1], "$", "$"+variable).Replace(form) + ")"
}

func (p *celParser) value() string {
	t := p.next()
	switch {
	case t == "(":
		out := p.expression(0)
		p.expect(")")
		return "(" + out + ")"
	case t == "[":
		var all []string
		for !p.accept("]") {
			if all = append(all, p.expression(0)); p.tokens[0] != "]" {
				p.expect(",")
			}
		}
		return "[" + strings.Join(all, ", ") + "]"
	case t == "true", t == "false", t == "null", t != "" && t[0] >= '0' && t[0] <= '9':
		return t
	case strings.HasPrefix(t, `"`), strings.HasPrefix(t, "'"):
		inner := t[1 : len(t)-1]
		if t[0] == '\'' {
			inner = strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, "'"), `"`, `\"`)
		}
		text, err := strconv.Unquote(`"` + inner + `"`)
		if err != nil {
			panic(celError(t + " is no string"))
		}
		quoted, _ := json.Marshal(text)
		return string(quoted)
	case slices.Contains(p.names, t):
		return "$" + t
	case p.accept("("):
		return p.call(t)
	}
	panic(celError(fmt.Sprintf("unknown name %q", t)))
}
