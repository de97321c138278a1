package wire

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/jsonpath"
	"k8s.io/utils/ptr"
)

// Columns describes the tables of a kind.
type Columns struct {
	definitions []metav1.TableColumnDefinition
	// cells returns the values of an object, one for each column.
	cells func(o runtime.Object, m metav1.Object) []any
}

// nameAndAge are the columns of kinds without others.
var nameAndAge = &Columns{
	definitions: columns("Name,Age"),
	cells:       func(_ runtime.Object, m metav1.Object) []any { return []any{m.GetName(), age(m)} },
}

// columns returns the definitions of columns. Those after a plus are of priority 1, and a
// number sign marks an integer.
func columns(names string) []metav1.TableColumnDefinition {
	var all []metav1.TableColumnDefinition
	names, wide, _ := strings.Cut(names, "+")
	for priority, names := range []string{names, wide} {
		for name := range strings.SplitSeq(names, ",") {
			d := metav1.TableColumnDefinition{Name: strings.TrimPrefix(name, "#"), Type: "string", Priority: int32(priority)}
			switch {
			case name == "":
				continue
			case name != d.Name:
				d.Type = "integer"
			case name == "Name":
				d.Format, d.Description = "name", metav1.ObjectMeta{}.SwaggerDoc()["name"]
			case name == "Age":
				d.Description = metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]
			}
			all = append(all, d)
		}
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

// Cells without a value.
const (
	unknown = "<unknown>"
	none    = "<none>"
)

func age(m metav1.Object) string { return since(m.GetCreationTimestamp()) }

func since(t metav1.Time) string {
	if t.IsZero() {
		return unknown
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// ColumnsOf returns the columns of pods, nodes, namespaces, deployments, replica sets, requests for
// certificates, leases and events, with the names of a real server. It returns nil for other kinds, which have name and age.
func ColumnsOf(kind schema.GroupVersionKind) *Columns { return known[kind] }

var known = map[schema.GroupVersionKind]*Columns{
	v1.SchemeGroupVersion.WithKind("Pod"):  typed("Ready,Status,Restarts,Age+IP,Node,Nominated Node,Readiness Gates", podCells),
	v1.SchemeGroupVersion.WithKind("Node"): typed("Status,Roles,Age,Version", nodeCells),
	v1.SchemeGroupVersion.WithKind("Namespace"): typed("Status,Age", func(n *v1.Namespace) []any {
		return []any{string(n.Status.Phase), age(n)}
	}),
	v1.SchemeGroupVersion.WithKind("Event"): typed("Last Seen,Type,Reason,Object,Message", func(e *v1.Event) []any {
		last := e.LastTimestamp
		if last.IsZero() {
			last = metav1.Time{Time: e.EventTime.Time}
		}
		return []any{since(last), e.Type, e.Reason, strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name, strings.TrimSpace(e.Message)}
	}),
	appsv1.SchemeGroupVersion.WithKind("Deployment"): typed("Ready,Up-to-date,Available,Age", func(d *appsv1.Deployment) []any {
		ready := fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1))
		return []any{ready, int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d)}
	}),
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"): typed("#Desired,#Current,#Ready,Age", func(r *appsv1.ReplicaSet) []any {
		return []any{int64(ptr.Deref(r.Spec.Replicas, 1)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r)}
	}),
	certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"): typed("Age,SignerName,Requestor,RequestedDuration,Condition", func(r *certificatesv1.CertificateSigningRequest) []any {
		lasts := none
		if seconds := r.Spec.ExpirationSeconds; seconds != nil {
			lasts = duration.HumanDuration(time.Duration(*seconds) * time.Second)
		}
		return []any{age(r), cmp.Or(r.Spec.SignerName, none), r.Spec.Username, lasts, requestCell(r)}
	}),
	coordinationv1.SchemeGroupVersion.WithKind("Lease"): typed("Holder,Age", func(l *coordinationv1.Lease) []any {
		return []any{ptr.Deref(l.Spec.HolderIdentity, ""), age(l)}
	}),
}

// typed returns the columns of a Go type: the name and those given. Their cells are
// unknown for an object of another type.
func typed[T runtime.Object](names string, cells func(T) []any) *Columns {
	definitions := columns("Name," + names)
	return &Columns{definitions: definitions, cells: func(o runtime.Object, m metav1.Object) []any {
		row := []any{m.GetName()}
		if t, ok := o.(T); ok {
			return append(row, cells(t)...)
		}
		return append(row, slices.Repeat([]any{unknown}, len(definitions)-1)...)
	}}
}

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
	gates := none
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
		cmp.Or(p.Status.PodIP, none), cmp.Or(p.Spec.NodeName, none), cmp.Or(p.Status.NominatedNodeName, none), gates,
	}
}

// requestCell returns the state of a request for a certificate.
func requestCell(r *certificatesv1.CertificateSigningRequest) string {
	has := func(t certificatesv1.RequestConditionType) bool {
		return slices.ContainsFunc(r.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool { return c.Type == t })
	}
	state := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		state = "Denied"
	case has(certificatesv1.CertificateApproved):
		state = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		state += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		state += ",Issued"
	}
	return state
}

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
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return []any{status, cmp.Or(strings.Join(roles, ","), none), age(n), n.Status.NodeInfo.KubeletVersion}
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
