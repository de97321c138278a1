package wire

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Columns are the columns of a kind's tables. The zero value has name and age.
type Columns struct {
	definitions []metav1.TableColumnDefinition
	// cells returns what an object has in the columns.
	cells func(o runtime.Object, m metav1.Object) []any
}

var nameAndAge = []metav1.TableColumnDefinition{column("Name", "string", 0), column("Age", "string", 0)}

func column(name, kind string, priority int32) metav1.TableColumnDefinition {
	d := metav1.TableColumnDefinition{Name: name, Type: kind, Priority: priority}
	if name == "Name" {
		d.Format = "name"
	}
	return d
}

// Table returns the table of a list's objects. O(objects).
func (k *Kind) Table(m metav1.ListMeta, objects []runtime.Object, s Shape) (*metav1.Table, error) {
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

// AppendTable appends a table.
func (k *Kind) AppendTable(dst []byte, m Media, t *metav1.Table) ([]byte, error) {
	return k.tables.append(dst, m, t)
}

const unknown = "<unknown>"

func age(m metav1.Object) string { return since(m.GetCreationTimestamp()) }

func since(t metav1.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(time.Since(t.Time))
}
