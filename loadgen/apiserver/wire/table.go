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
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
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

// columns returns the definitions of columns. A plus marks one of priority 1, and a number sign an integer.
func columns(names string) []metav1.TableColumnDefinition {
	var all []metav1.TableColumnDefinition
	for name := range strings.SplitSeq(names, ",") {
		d := metav1.TableColumnDefinition{Name: strings.TrimLeft(name, "+#"), Type: "string"}
		if strings.HasPrefix(name, "+") {
			d.Priority = 1
		}
		switch {
		case strings.Contains(name, "#"):
			d.Type = "integer"
		case d.Name == "Name":
			d.Format, d.Description = "name", metav1.ObjectMeta{}.SwaggerDoc()["name"]
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

// ColumnsOf returns the columns of common kinds, with the names and cells of a real server (pkg/printers/internalversion,
// v1.37). It returns nil for other kinds, which have name and age.
func ColumnsOf(kind schema.GroupVersionKind) *Columns { return known[kind] }

var known = map[schema.GroupVersionKind]*Columns{
	v1.SchemeGroupVersion.WithKind("Pod"): typed("Ready,Status,Restarts,Age,+IP,+Node,+Nominated Node,+Readiness Gates", podCells),
	v1.SchemeGroupVersion.WithKind("Node"): typed(
		"Status,Roles,Age,Version,+Internal-IP,+External-IP,+OS-Image,+Kernel-Version,+Container-Runtime", nodeCells),
	v1.SchemeGroupVersion.WithKind("Namespace"): typed("Status,Age", func(n *v1.Namespace) []any {
		return []any{string(n.Status.Phase), age(n)}
	}),
	v1.SchemeGroupVersion.WithKind("Event"): {
		definitions: columns("Last Seen,Type,Reason,Object,+Subobject,+Source,Message,+First Seen,+Count,+Name"),
		cells:       eventCells,
	},
	v1.SchemeGroupVersion.WithKind("ConfigMap"): typed("Data,Age", func(c *v1.ConfigMap) []any {
		return []any{int64(len(c.Data) + len(c.BinaryData)), age(c)}
	}),
	v1.SchemeGroupVersion.WithKind("Secret"): typed("Type,Data,Age", func(s *v1.Secret) []any {
		return []any{string(s.Type), int64(len(s.Data)), age(s)}
	}),
	appsv1.SchemeGroupVersion.WithKind("Deployment"): typed("Ready,Up-to-date,Available,Age,+Containers,+Images,+Selector", func(d *appsv1.Deployment) []any {
		ready := fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 1))
		cells := []any{ready, int64(d.Status.UpdatedReplicas), int64(d.Status.AvailableReplicas), age(d)}
		cells = append(cells, template(&d.Spec.Template, d.Spec.Selector)...)
		cells[6] = strings.TrimPrefix(cells[6].(string), none) // as a real server has it
		return cells
	}),
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"): typed("#Desired,#Current,#Ready,Age,+Containers,+Images,+Selector", func(r *appsv1.ReplicaSet) []any {
		cells := []any{int64(ptr.Deref(r.Spec.Replicas, 1)), int64(r.Status.Replicas), int64(r.Status.ReadyReplicas), age(r)}
		return append(cells, template(&r.Spec.Template, r.Spec.Selector)...)
	}),
	appsv1.SchemeGroupVersion.WithKind("StatefulSet"): typed("Ready,Age,+Containers,+Images", func(s *appsv1.StatefulSet) []any {
		ready := fmt.Sprintf("%d/%d", s.Status.ReadyReplicas, ptr.Deref(s.Spec.Replicas, 1))
		return append([]any{ready, age(s)}, template(&s.Spec.Template, nil)[:2]...)
	}),
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"): typed(
		"#Desired,#Current,#Ready,#Up-to-date,#Available,Node Selector,Age,+Containers,+Images,+Selector", func(d *appsv1.DaemonSet) []any {
			n := d.Status
			cells := []any{
				int64(n.DesiredNumberScheduled), int64(n.CurrentNumberScheduled), int64(n.NumberReady), int64(n.UpdatedNumberScheduled),
				int64(n.NumberAvailable), labels.FormatLabels(d.Spec.Template.Spec.NodeSelector), age(d),
			}
			return append(cells, template(&d.Spec.Template, d.Spec.Selector)...)
		}),
	batchv1.SchemeGroupVersion.WithKind("Job"): typed("Status,Completions,Duration,Age,+Containers,+Images,+Selector", jobCells),
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

// ended are the conditions of the rows of pods that have ended.
var ended = map[v1.PodPhase][]metav1.TableRowCondition{
	v1.PodSucceeded: {{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: "Succeeded", Message: "The pod has completed successfully."}},
	v1.PodFailed:    {{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: "Failed", Message: "The pod failed."}},
}

// template returns the cells of the containers and images of a pod template, and of a selector.
func template(t *v1.PodTemplateSpec, s *metav1.LabelSelector) []any {
	var names, images []string
	for i := range t.Spec.Containers {
		names, images = append(names, t.Spec.Containers[i].Name), append(images, t.Spec.Containers[i].Image)
	}
	return []any{strings.Join(names, ","), strings.Join(images, ","), metav1.FormatLabelSelector(s)}
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

// restarts are those of containers, and the end of the last life.
type restarts struct {
	n    int32
	last metav1.Time
}

func (r *restarts) add(c *v1.ContainerStatus) {
	r.n += c.RestartCount
	if end := c.LastTerminationState.Terminated; end != nil && r.last.Before(&end.FinishedAt) {
		r.last = end.FinishedAt
	}
}

func endOf(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func podCells(p *v1.Pod) []any {
	is := func(t v1.PodConditionType) bool {
		i := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == t })
		return i >= 0 && p.Status.Conditions[i].Status == v1.ConditionTrue
	}
	status := cmp.Or(p.Status.Reason, string(p.Status.Phase))
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonSchedulingGated {
			status = c.Reason
		}
	}
	ready, total, sidecars := 0, len(p.Spec.Containers), map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if ptr.Deref(c.RestartPolicy, "") == v1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			total++
		}
	}
	var all, kept restarts // kept are those of sidecars
	begins := false
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		if all.add(c); sidecars[c.Name] {
			kept.add(c)
		}
		end, waits := c.State.Terminated, c.State.Waiting
		switch {
		case end != nil && end.ExitCode == 0:
			continue
		case sidecars[c.Name] && ptr.Deref(c.Started, false):
			if c.Ready {
				ready++
			}
			continue
		case end != nil:
			status = "Init:" + endOf(end)
		case waits != nil && waits.Reason != "" && waits.Reason != "PodInitializing":
			status = "Init:" + waits.Reason
		default:
			status = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		begins = true
		break
	}
	if !begins || is(v1.PodInitialized) {
		all = kept
		running, failed := false, ""
		for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
			c := &p.Status.ContainerStatuses[i]
			all.add(c)
			switch {
			case c.State.Waiting != nil && c.State.Waiting.Reason != "":
				status = c.State.Waiting.Reason
			case c.State.Terminated != nil:
				if status = endOf(c.State.Terminated); c.State.Terminated.ExitCode != 0 {
					failed = status
				}
			case c.Ready && c.State.Running != nil:
				running = true
				ready++
			}
		}
		switch {
		case status != "Completed":
		case running && is(v1.PodReady):
			status = "Running"
		case failed != "":
			status = failed
		case running:
			status = "NotReady"
		}
	}
	if p.DeletionTimestamp != nil && p.Status.Reason == "NodeLost" {
		status = "Unknown"
	} else if p.DeletionTimestamp != nil && ended[p.Status.Phase] == nil {
		status = "Terminating"
	}
	again := strconv.Itoa(int(all.n))
	if all.n != 0 && !all.last.IsZero() {
		again += " (" + since(all.last) + " ago)"
	}
	gates, passed := none, 0
	for _, g := range p.Spec.ReadinessGates {
		if is(g.ConditionType) {
			passed++
		}
		gates = fmt.Sprintf("%d/%d", passed, len(p.Spec.ReadinessGates))
	}
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{
		fmt.Sprintf("%d/%d", ready, total), status, again, age(p),
		cmp.Or(ip, none), cmp.Or(p.Spec.NodeName, none), cmp.Or(p.Status.NominatedNodeName, none), gates,
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
	for label, value := range n.Labels {
		if role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if label == "kubernetes.io/role" && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	address := func(t v1.NodeAddressType) string {
		i := slices.IndexFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == t })
		if i < 0 {
			return none
		}
		return n.Status.Addresses[i].Address
	}
	info := n.Status.NodeInfo
	kernel := cmp.Or(info.KernelVersion, unknown)
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		status, cmp.Or(strings.Join(slices.Compact(roles), ","), none), age(n), info.KubeletVersion, address(v1.NodeInternalIP), address(v1.NodeExternalIP),
		cmp.Or(info.OSImage, unknown), kernel, cmp.Or(info.ContainerRuntimeVersion, unknown),
	}
}

func eventCells(o runtime.Object, m metav1.Object) []any {
	e, ok := o.(*v1.Event)
	if !ok {
		return append(slices.Repeat([]any{unknown}, 9), m.GetName())
	}
	first, count := since(e.FirstTimestamp), cmp.Or(e.Count, 1)
	if e.FirstTimestamp.IsZero() {
		first = since(metav1.Time(e.EventTime))
	}
	last := since(e.LastTimestamp)
	if e.LastTimestamp.IsZero() {
		last = first
	}
	if e.Series != nil {
		last, count = since(metav1.Time(e.Series.LastObservedTime)), e.Series.Count
	}
	about := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name != "" {
		about += "/" + e.InvolvedObject.Name
	}
	source := cmp.Or(e.Source.Component, e.ReportingController)
	if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
		source += ", " + host
	}
	return []any{last, e.Type, e.Reason, about, e.InvolvedObject.FieldPath, source, strings.TrimSpace(e.Message), first, int64(count), e.Name}
}

func jobCells(j *batchv1.Job) []any {
	done := fmt.Sprintf("%d/%d", j.Status.Succeeded, ptr.Deref(j.Spec.Completions, 1))
	if n := ptr.Deref(j.Spec.Parallelism, 0); j.Spec.Completions == nil && n > 1 {
		done += fmt.Sprintf(" of %d", n)
	}
	lasts := ""
	if start := j.Status.StartTime; start != nil {
		lasts = duration.HumanDuration(ptr.Deref(j.Status.CompletionTime, metav1.Now()).Sub(start.Time))
	}
	status := "Running"
	for _, s := range []string{"SuccessCriteriaMet", "FailureTarget", "Suspended", "", "Failed", "Complete"} { // the last one counts
		is := slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return string(c.Type) == s && c.Status == v1.ConditionTrue })
		if is || s == "" && j.DeletionTimestamp != nil {
			status = cmp.Or(s, "Terminating")
		}
	}
	return append([]any{status, done, lasts, age(j)}, template(&j.Spec.Template, j.Spec.Selector)...)
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
