package wire

import (
	"cmp"
	_ "embed" // the columns
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/itchyny/gojq"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/jsonpath"
)

// Columns describes the tables of a kind.
type Columns struct {
	definitions []metav1.TableColumnDefinition
	// cells returns the values of an object, one for each column.
	cells func(o runtime.Object, m metav1.Object) []any
}

// nameAndAge are the columns of kinds without others.
var nameAndAge = &Columns{
	definitions: columns("Name", "Age"),
	cells: func(_ runtime.Object, m metav1.Object) []any {
		return []any{m.GetName(), since(m.GetCreationTimestamp())}
	},
}

// columns returns the definitions of columns. A plus marks one of priority 1, and a number sign an integer.
func columns(names ...string) []metav1.TableColumnDefinition {
	var all []metav1.TableColumnDefinition
	for _, name := range names {
		d := metav1.TableColumnDefinition{Name: strings.TrimLeft(name, "+#?"), Type: "string"}
		if strings.HasPrefix(name, "+") {
			d.Priority = 1
		}
		switch {
		case strings.Contains(name, "#"):
			d.Type = "integer"
		case strings.Contains(name, "?"):
			d.Type = "boolean"
		case d.Name == "Name":
			d.Format, d.Description = "name", metav1.ObjectMeta{}.SwaggerDoc()["name"]
		case d.Name == "Created At":
			d.Type = "date"
			fallthrough
		case name == "Age":
			d.Description = metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]
		}
		all = append(all, d)
	}
	return all
}

// table returns the table of a list's objects.
func (k *Kind) table(m metav1.ListMeta, objects []runtime.Object, s Shape) (*metav1.Table, error) {
	t := &metav1.Table{ListMeta: m, ColumnDefinitions: k.columns.definitions, Rows: make([]metav1.TableRow, len(objects))}
	for i, o := range objects {
		acc, err := meta.Accessor(o)
		if err != nil {
			return nil, cannot(o, err)
		}
		row := &t.Rows[i]
		row.Cells = k.columns.cells(o, acc)
		if pod, ok := o.(*v1.Pod); ok {
			row.Conditions = ended[pod.Status.Phase]
		}
		switch s {
		case Table:
			p := meta.AsPartialObjectMetadata(acc)
			p.SetGroupVersionKind(metadataKind)
			row.Object.Object = p
		case TableObject:
			if o.GetObjectKind().GroupVersionKind().Empty() {
				o = shallow(o)
				o.GetObjectKind().SetGroupVersionKind(k.gvk)
			}
			row.Object.Object = o
		}
	}
	return t, nil
}

// AppendTable appends the table of a list's objects. O(bytes).
func (k *Kind) AppendTable(dst []byte, f Form, m metav1.ListMeta, objects []runtime.Object) ([]byte, error) {
	t, err := k.table(m, objects, f.Shape())
	if err != nil {
		return dst, err
	}
	return k.tables.append(dst, f.Media(), t)
}

const unknown = "<unknown>" // a cell without a value

func since(t metav1.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// ColumnsOf returns the columns of common kinds, with the names and cells of a real server (pkg/printers/internalversion,
// v1.37). Other built-in kinds have the time of their creation. It returns nil for custom ones, which have name and age.
func ColumnsOf(kind schema.GroupVersionKind) *Columns {
	c := known()[kind]
	if c == nil && scheme.Scheme.Recognizes(kind) {
		return &Columns{definitions: columns("Name", "Created At"), cells: func(_ runtime.Object, m metav1.Object) []any {
			return []any{m.GetName(), m.GetCreationTimestamp().UTC().Format(time.RFC3339)}
		}}
	}
	return c
}

// columnsText lists the columns of kinds with queries of their cells; it explains the marks.
//
//go:embed columns.txt
var columnsText string

// known are the columns of columnsText.
var known = sync.OnceValue(func() map[schema.GroupVersionKind]*Columns {
	all := map[schema.GroupVersionKind]*Columns{}
	var kind schema.GroupVersionKind
	var names, queries []string
	add := func() {
		if len(names) > 0 {
			all[kind] = queried(names, queries)
		}
	}
	for line := range strings.Lines(columnsText[strings.Index(columnsText, "\nv1 ")+1:]) {
		name, query, column := strings.Cut(strings.TrimSpace(line), ": ")
		switch words := strings.Fields(line); {
		case line[0] == '#':
		case line[0] == '\t' && column:
			if isName(name) {
				names, queries = names[1:], queries[1:]
			}
			names, queries = append(names, name), append(queries, query)
		default:
			add()
			kind = schema.FromAPIVersionAndKind(words[0], words[1])
			names, queries = []string{"Name"}, []string{".metadata.name"}
		}
	}
	add()
	return all
})

func isName(column string) bool { return strings.TrimLeft(column, "+") == "Name" }

// queried returns the columns of queries. Their cells are unknown for an object that is not of the kind.
func queried(names, queries []string) *Columns {
	definitions := columns(names...)
	code := sync.OnceValue(func() *gojq.Code {
		functions, _, _ := strings.Cut(columnsText, "\nv1 ")
		query, err := gojq.Parse(functions + "[(" + strings.Join(queries, "), (") + ")]")
		if err == nil {
			var code *gojq.Code
			of := func(f func(any) any) func(any, []any) any { return func(v any, _ []any) any { return f(v) } }
			if code, err = gojq.Compile(query, gojq.WithFunction("since", 0, 0, of(sinceText)),
				gojq.WithFunction("lasts", 0, 0, of(lasts)), gojq.WithFunction("selector", 0, 0, of(selectorText))); err == nil {
				return code
			}
		}
		panic(fmt.Sprintf("columns %s: %v", names, err)) // TestTables has all kinds.
	})
	return &Columns{definitions: definitions, cells: func(o runtime.Object, m metav1.Object) []any {
		var content any
		text, err := json.Marshal(o)
		if err == nil && json.Unmarshal(text, &content) == nil {
			if v, ok := code().Run(content).Next(); ok {
				if row, ok := v.([]any); ok {
					return row
				}
			}
		}
		row := slices.Repeat([]any{unknown}, len(names))
		row[slices.IndexFunc(names, isName)] = m.GetName()
		return row
	}}
}

func sinceText(v any) any {
	var t metav1.Time
	if text, ok := v.(string); !ok || t.UnmarshalQueryParameter(text) != nil {
		return unknown
	}
	return since(t)
}

func lasts(v any) any {
	seconds, _ := json.Marshal(v) // a number
	d, _ := time.ParseDuration(string(seconds) + "s")
	return duration.HumanDuration(d)
}

func selectorText(v any) any {
	var s *metav1.LabelSelector
	if text, err := json.Marshal(v); err == nil && json.Unmarshal(text, &s) != nil {
		return unknown
	}
	return metav1.FormatLabelSelector(s)
}

// ended are the conditions of the rows of pods that have ended.
var ended = map[v1.PodPhase][]metav1.TableRowCondition{
	v1.PodSucceeded: {{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: "Succeeded", Message: "The pod has completed successfully."}},
	v1.PodFailed:    {{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: "Failed", Message: "The pod failed."}},
}

const maxUnions = 8 // commas in the path of a column

// PathColumns returns the columns of a custom resource: the name, and the given
// columns or the age. The error names a column with an invalid path.
func PathColumns(paths []apiextensionsv1.CustomResourceColumnDefinition) (*Columns, error) {
	if len(paths) == 0 {
		return nameAndAge, nil
	}
	c := &Columns{definitions: columns("Name")}
	for _, col := range paths {
		// Each multiplies the results.
		if strings.Count(col.JSONPath, "..") > 1 || strings.Count(col.JSONPath, ",") > maxUnions {
			return nil, fmt.Errorf("column %s: more than one .. or %d commas in the path", col.Name, maxUnions)
		}
		if err := jsonpath.New(col.Name).Parse("{" + col.JSONPath + "}"); err != nil {
			return nil, fmt.Errorf("column %s: %w", col.Name, err)
		}
		about := cmp.Or(col.Description, "Custom resource definition column (in JSONPath format): "+col.JSONPath)
		c.definitions = append(c.definitions, metav1.TableColumnDefinition{
			Name: col.Name, Type: col.Type, Format: col.Format, Description: about, Priority: col.Priority,
		})
	}
	c.cells = func(o runtime.Object, m metav1.Object) []any {
		row := []any{m.GetName()}
		content := map[string]any{}
		if u, ok := o.(runtime.Unstructured); ok {
			content = u.UnstructuredContent()
		}
		for _, col := range paths {
			row = append(row, pathCell(col, content))
		}
		return row
	}
	return c, nil
}

// pathCell returns the value of a column, or nil.
func pathCell(c apiextensionsv1.CustomResourceColumnDefinition, content map[string]any) any {
	// A parsed path keeps state while it is evaluated; it cannot be shared.
	p := jsonpath.New(c.Name).AllowMissingKeys(true)
	if err := p.Parse("{" + c.JSONPath + "}"); err != nil {
		return nil
	}
	found, err := p.FindResults(content)
	if err != nil || len(found) == 0 || len(found[0]) == 0 {
		return nil
	}
	v := found[0][0]
	if !v.IsValid() || (v.Kind() == reflect.Interface && v.IsNil()) {
		return nil
	}
	value := v.Interface()
	if c.Type == "date" {
		return sinceText(value)
	}
	switch value.(type) {
	case string, bool, int64, float64:
		return value
	default:
		return fmt.Sprint(value)
	}
}
