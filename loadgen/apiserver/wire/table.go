package wire

import (
	"bytes"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Columns describes the tables of a kind. The zero value has name and age.
type Columns struct {
	definitions []metav1.TableColumnDefinition
	// cells returns the values of an object, one for each column.
	cells func(o runtime.Object, m metav1.Object) []any
}

var nameAndAge = []metav1.TableColumnDefinition{column("Name", "string", 0), column("Age", "string", 0)}

func column(name, kind string, priority int32) metav1.TableColumnDefinition {
	d := metav1.TableColumnDefinition{Name: name, Type: kind, Priority: priority}
	switch name {
	case "Name":
		d.Format = "name"
		d.Description = metav1.ObjectMeta{}.SwaggerDoc()["name"]
	case "Age":
		d.Description = metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]
	}
	return d
}

// table returns the table of a list's objects.
func (k *Kind) table(m metav1.ListMeta, objects []runtime.Object, s Shape) (*metav1.Table, error) {
	t := &metav1.Table{ListMeta: m, ColumnDefinitions: k.columns.definitions, Rows: make([]metav1.TableRow, len(objects))}
	if t.ColumnDefinitions == nil {
		t.ColumnDefinitions = nameAndAge
	}
	for i, o := range objects {
		acc, err := meta.Accessor(o)
		if err != nil {
			return nil, cannot(o, err)
		}
		row := &t.Rows[i]
		if k.columns.cells == nil {
			row.Cells = []any{acc.GetName(), age(acc)}
		} else {
			row.Cells = k.columns.cells(o, acc)
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
	if f.Media() != JSON {
		return k.tables.append(dst, f.Media(), t)
	}
	// Row by row: encoding/json would copy the object of a row three times.
	whole := *t
	whole.Rows = []metav1.TableRow{}
	dst, err = k.tables.append(dst, JSON, &whole)
	if err != nil {
		return dst, err
	}
	// Rows are the last field of a table.
	dst = bytes.TrimSuffix(dst, []byte("]}"))
	for i := range t.Rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = k.appendRow(dst, &t.Rows[i]); err != nil {
			return dst, err
		}
	}
	return append(dst, "]}"...), nil
}

func (k *Kind) appendRow(dst []byte, row *metav1.TableRow) ([]byte, error) {
	cells, err := json.Marshal(row.Cells)
	if err != nil {
		return dst, cannot(row.Cells, err)
	}
	dst = append(dst, `{"cells":`...)
	dst = append(dst, cells...)
	dst = append(dst, `,"object":`...)
	switch o := row.Object.Object.(type) {
	case nil:
		dst = append(dst, "null"...)
	case *metav1.PartialObjectMetadata:
		dst, err = k.metadata.append(dst, JSON, o)
	default:
		dst, err = k.objects.append(dst, JSON, o)
	}
	return append(dst, '}'), err
}

const unknown = "<unknown>"

func age(m metav1.Object) string { return since(m.GetCreationTimestamp()) }

func since(t metav1.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(time.Since(t.Time))
}
