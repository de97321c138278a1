package wire

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/jsonpath"
)

// ColumnsOf returns the columns of pods, nodes, namespaces, deployments, replica sets,
// leases and events, with the names of a real server. It returns nil for other kinds,
// which have name and age.
func ColumnsOf(kind schema.GroupVersionKind) *Columns { return known[kind] }

var known = map[schema.GroupVersionKind]*Columns{
	v1.SchemeGroupVersion.WithKind("Pod"): typed(podCells,
		column("Ready", "string", 0), column("Status", "string", 0), column("Restarts", "string", 0), column("Age", "string", 0),
		column("IP", "string", 1), column("Node", "string", 1), column("Nominated Node", "string", 1), column("Readiness Gates", "string", 1)),
	v1.SchemeGroupVersion.WithKind("Node"): typed(nodeCells,
		column("Status", "string", 0), column("Roles", "string", 0), column("Age", "string", 0), column("Version", "string", 0)),
	v1.SchemeGroupVersion.WithKind("Namespace"): typed(func(n *v1.Namespace) []any {
		return []any{string(n.Status.Phase), age(n)}
	}, column("Status", "string", 0), column("Age", "string", 0)),
	v1.SchemeGroupVersion.WithKind("Event"): typed(func(e *v1.Event) []any {
		last := e.LastTimestamp
		if last.IsZero() {
			last = metav1.Time{Time: e.EventTime.Time}
		}
		return []any{since(last), e.Type, e.Reason, strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name, strings.TrimSpace(e.Message)}
	}, column("Last Seen", "string", 0), column("Type", "string", 0), column("Reason", "string", 0), column("Object", "string", 0), column("Message", "string", 0)),
	appsv1.SchemeGroupVersion.WithKind("Deployment"): typed(func(d *appsv1.Deployment) []any {
		return []any{fraction(d.Status.ReadyReplicas, d.Spec.Replicas), int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d)}
	}, column("Ready", "string", 0), column("Up-to-date", "string", 0), column("Available", "string", 0), column("Age", "string", 0)),
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"): typed(func(r *appsv1.ReplicaSet) []any {
		return []any{int64(wanted(r.Spec.Replicas)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r)}
	}, column("Desired", "integer", 0), column("Current", "integer", 0), column("Ready", "integer", 0), column("Age", "string", 0)),
	coordinationv1.SchemeGroupVersion.WithKind("Lease"): typed(func(l *coordinationv1.Lease) []any {
		holder := ""
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		return []any{holder, age(l)}
	}, column("Holder", "string", 0), column("Age", "string", 0)),
}

// typed returns the columns of a Go type: the name and those given. Their cells are
// empty for an object of another type.
func typed[T runtime.Object](cells func(T) []any, after ...metav1.TableColumnDefinition) *Columns {
	return &Columns{
		definitions: append([]metav1.TableColumnDefinition{column("Name", "string", 0)}, after...),
		cells: func(o runtime.Object, m metav1.Object) []any {
			row := make([]any, 1, len(after)+1)
			row[0] = m.GetName()
			if t, ok := o.(T); ok {
				return append(row, cells(t)...)
			}
			for range after {
				row = append(row, unknown)
			}
			return row
		},
	}
}

func wanted(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

func fraction(n int32, replicas *int32) string { return fmt.Sprintf("%d/%d", n, wanted(replicas)) }

func podCells(p *v1.Pod) []any {
	ready, restarts := 0, int32(0)
	status := string(p.Status.Phase)
	if p.Status.Reason != "" {
		status = p.Status.Reason
	}
	for _, c := range p.Status.ContainerStatuses {
		restarts += c.RestartCount
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			status = c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			status = c.State.Terminated.Reason
		case c.Ready && c.State.Running != nil:
			ready++
		}
	}
	if p.DeletionTimestamp != nil {
		status = "Terminating"
		if p.Status.Reason == "NodeLost" {
			status = "Unknown"
		}
	}
	gates := "<none>"
	if n := len(p.Spec.ReadinessGates); n > 0 {
		passed := 0
		for _, g := range p.Spec.ReadinessGates {
			if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
				return c.Type == g.ConditionType && c.Status == v1.ConditionTrue
			}) {
				passed++
			}
		}
		gates = fmt.Sprintf("%d/%d", passed, n)
	}
	return []any{
		fmt.Sprintf("%d/%d", ready, len(p.Spec.Containers)), status, strconv.Itoa(int(restarts)), age(p),
		orNone(p.Status.PodIP), orNone(p.Spec.NodeName), orNone(p.Status.NominatedNodeName), gates,
	}
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

const rolePrefix = "node-role.kubernetes.io/"

func nodeCells(n *v1.Node) []any {
	status := "Unknown"
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			status = "NotReady"
			if c.Status == v1.ConditionTrue {
				status = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	var roles []string
	for label := range n.Labels {
		if role, ok := strings.CutPrefix(label, rolePrefix); ok && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return []any{status, orNone(strings.Join(roles, ",")), age(n), n.Status.NodeInfo.KubeletVersion}
}

// PathColumns returns the columns of a custom resource: the name, and the given
// columns or the age. The error names a column with an invalid path.
func PathColumns(columns []apiextensionsv1.CustomResourceColumnDefinition) (*Columns, error) {
	if len(columns) == 0 {
		return &Columns{}, nil
	}
	c := &Columns{definitions: []metav1.TableColumnDefinition{column("Name", "string", 0)}}
	for _, col := range columns {
		if err := jsonpath.New(col.Name).Parse("{" + col.JSONPath + "}"); err != nil {
			return nil, fmt.Errorf("column %s: %w", col.Name, err)
		}
		about := col.Description
		if about == "" {
			about = "Custom resource definition column (in JSONPath format): " + col.JSONPath
		}
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
		for _, col := range columns {
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
		s, ok := value.(string)
		if !ok {
			return unknown
		}
		var t metav1.Time
		if err := t.UnmarshalQueryParameter(s); err != nil {
			return unknown
		}
		return since(t)
	}
	switch value.(type) {
	case string, bool, int64, float64:
		return value
	default:
		return fmt.Sprint(value)
	}
}
