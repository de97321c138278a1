package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/itchyny/gojq"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	maxExpression = 4 << 10     // bytes
	patience      = time.Second // for one evaluation
)

// expression is a compiled jq expression.
type expression struct {
	query *gojq.Query
	code  *gojq.Code
}

// compileWith returns a function that compiles an expression with variables.
func compileWith(variables ...string) func(string) (*expression, error) {
	return func(s string) (*expression, error) {
		if len(s) > maxExpression {
			return nil, fmt.Errorf("more than %d bytes", maxExpression)
		}
		query, err := gojq.Parse(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		code, err := gojq.Compile(query, gojq.WithVariables(variables))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		return &expression{query, code}, nil
	}
}

func (e *expression) String() string { return e.query.String() }

// value returns the first value of the expression, and null if there is none.
func (e *expression) value(input any, variables ...any) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	v, ok := e.code.RunWithContext(ctx, input, variables...).Next()
	if !ok {
		return nil, nil
	}
	if err, isErr := v.(error); isErr {
		var halt *gojq.HaltError
		if errors.As(err, &halt) && halt.Value() == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	return v, nil
}

// holds reports whether the value is neither null nor false. A nil expression holds.
func (e *expression) holds(input any, variables ...any) (bool, error) {
	if e == nil {
		return true, nil
	}
	v, err := e.value(input, variables...)
	return v != nil && v != false && err == nil, err
}

// number returns the value as a count.
func (e *expression) number(input any) (int, error) {
	v, err := e.value(input)
	if err != nil {
		return 0, err
	}
	switch v := v.(type) {
	case int:
		return v, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return int(v), nil
		}
	}
	return 0, fmt.Errorf("%s: %v is no count", e, v)
}

// failure says why an expression does not hold: the first part of a conjunction that does not, with the
// values of a comparison.
func failure(q *gojq.Query, input any) string {
	if q.Term != nil && q.Term.Type == gojq.TermTypeQuery && len(q.Term.SuffixList) == 0 {
		return failure(q.Term.Query, input) // parentheses
	}
	switch q.Op {
	case gojq.OpAnd:
		for _, part := range []*gojq.Query{q.Left, q.Right} {
			if v, ok := valueOf(part, input); ok && (v == nil || v == false) {
				return failure(part, input)
			}
		}
	case gojq.OpEq, gojq.OpNe, gojq.OpGt, gojq.OpLt, gojq.OpGe, gojq.OpLe:
		left, okLeft := valueOf(q.Left, input)
		right, okRight := valueOf(q.Right, input)
		if okLeft && okRight {
			return fmt.Sprintf("not %s (%s and %s)", q, short(left), short(right))
		}
	}
	return "not " + q.String()
}

// valueOf returns the first value of a part of an expression. It returns false for a part that needs the
// whole, such as its functions.
func valueOf(q *gojq.Query, input any) (any, bool) {
	code, err := gojq.Compile(q)
	if err != nil {
		return nil, false
	}
	v, err := (&expression{q, code}).value(input)
	return v, err == nil
}

func short(v any) string {
	b, err := gojq.Marshal(v)
	if err != nil || len(b) > 80 {
		return "…"
	}
	return string(b)
}

// plain returns an object as jq takes it. It is a copy.
func plain(o runtime.Object) (any, error) {
	if o == nil {
		return nil, nil
	}
	content, err := contentOf(o)
	if err != nil {
		return nil, err
	}
	return copied(content), nil
}

// copied copies a value with the numbers of jq.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, item := range v {
			out[k] = copied(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = copied(item)
		}
		return out
	case int64:
		return int(v)
	case nil, bool, string, int, float64:
		return v
	}
	return strings.TrimSpace(fmt.Sprint(v))
}
