package action

import (
	"fmt"
	"regexp"
	"strings"
)

// This file evaluates the small part of GitHub's expressions that action.yml uses: names with dots, texts in
// single quotes, == and !=, ! && || and brackets, and the functions of a step's state. Texts compare without
// case, and a text that is not empty is true, as at GitHub.

var (
	inText = regexp.MustCompile(`\$\{\{(.*?)\}\}`)
	token  = regexp.MustCompile(`\s*(\(\)|[()]|==|!=|&&|\|\||!|'(?:[^']|'')*'|[A-Za-z_][\w.-]*)`)
	status = regexp.MustCompile(`\b(always|failure|cancelled)\(\)`)
)

// expression is an expression in progress.
type expression struct {
	rest  []string
	names map[string]string // values of names; a name that is absent is empty
}

// expand replaces the expressions in a text.
func expand(text string, names map[string]string) (string, error) {
	var failed error
	out := inText.ReplaceAllStringFunc(text, func(m string) string {
		v, err := evaluate(inText.FindStringSubmatch(m)[1], names)
		if err != nil {
			failed = err
		}
		return v
	})
	return out, failed
}

// evaluate returns the value of an expression; true and false are texts.
func evaluate(text string, names map[string]string) (string, error) {
	var tokens []string
	for rest := strings.TrimSpace(text); rest != ""; {
		at := token.FindStringSubmatchIndex(rest)
		if at == nil || at[0] != 0 {
			return "", fmt.Errorf("expression %q: not understood at %q", text, rest)
		}
		tokens = append(tokens, rest[at[2]:at[3]])
		rest = strings.TrimSpace(rest[at[1]:])
	}
	e := &expression{tokens, names}
	v, err := e.or()
	if err == nil && len(e.rest) > 0 {
		err = fmt.Errorf("expression %q: %q is left", text, e.rest)
	}
	return v, err
}

// isTrue says whether a value is true.
func isTrue(v string) bool { return v != "" && v != "false" }

func (e *expression) next(want ...string) string {
	for _, w := range want {
		if len(e.rest) > 0 && e.rest[0] == w {
			e.rest = e.rest[1:]
			return w
		}
	}
	return ""
}

func (e *expression) or() (string, error) {
	v, err := e.and()
	for err == nil && e.next("||") != "" {
		var right string
		if right, err = e.and(); !isTrue(v) {
			v = right
		}
	}
	return v, err
}

func (e *expression) and() (string, error) {
	v, err := e.equal()
	for err == nil && e.next("&&") != "" {
		var right string
		if right, err = e.equal(); isTrue(v) {
			v = right
		}
	}
	return v, err
}

func (e *expression) equal() (string, error) {
	v, err := e.unary()
	if op := e.next("==", "!="); err == nil && op != "" {
		var right string
		right, err = e.unary()
		v = fmt.Sprint(strings.EqualFold(v, right) == (op == "=="))
	}
	return v, err
}

func (e *expression) unary() (string, error) {
	if e.next("!") != "" {
		v, err := e.unary()
		return fmt.Sprint(!isTrue(v)), err
	}
	if e.next("(") != "" {
		v, err := e.or()
		if err == nil && e.next(")") == "" {
			err = fmt.Errorf("a bracket is open")
		}
		return v, err
	}
	if len(e.rest) == 0 {
		return "", fmt.Errorf("an operand is missing")
	}
	name := e.rest[0]
	e.rest = e.rest[1:]
	if text, ok := strings.CutPrefix(name, "'"); ok {
		return strings.ReplaceAll(strings.TrimSuffix(text, "'"), "''", "'"), nil
	}
	if e.next("()") != "" {
		name += "()"
		if _, known := e.names[name]; !known {
			return "", fmt.Errorf("%s is not understood", name)
		}
	}
	return e.names[name], nil
}
