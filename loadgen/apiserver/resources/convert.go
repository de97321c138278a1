package resources

import (
	"cmp"
	"encoding/json"
	"maps"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cohabitants are the built-in resources that are stored as another one, which is the same collection.
var cohabitants = map[schema.GroupVersionResource]schema.GroupVersionResource{
	eventsv1.SchemeGroupVersion.WithResource("events"):                        corev1.SchemeGroupVersion.WithResource("events"),
	autoscalingv1.SchemeGroupVersion.WithResource("horizontalpodautoscalers"): autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers"),
}

// addConversions adds the conversions of cohabitants, with kube-apiserver's rules (Kubernetes v1.37,
// pkg/apis/events/v1 and pkg/apis/autoscaling/v1), on the content in JSON.
func addConversions(s *runtime.Scheme) error {
	add := func(a, b Object, convert func(content map[string]any)) error {
		return s.AddConversionFunc(a, b, func(from, to any, _ conversion.Scope) error {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(from)
			if err != nil {
				return err
			}
			kind := to.(runtime.Object).GetObjectKind().GroupVersionKind()
			delete(content, "apiVersion")
			delete(content, "kind")
			convert(content)
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, to)
			to.(runtime.Object).GetObjectKind().SetGroupVersionKind(kind)
			return err
		})
	}
	return cmp.Or(
		add((*eventsv1.Event)(nil), (*corev1.Event)(nil), func(e map[string]any) { rename(e, false) }),
		add((*corev1.Event)(nil), (*eventsv1.Event)(nil), func(e map[string]any) { rename(e, true) }),
		add((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil), autoscalerToV2),
		add((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil), autoscalerToV1),
	)
}

// rename gives the fields of an event the names of events.k8s.io/v1, or those of core/v1.
func rename(e map[string]any, toEvents bool) {
	for names := range strings.FieldsSeq("involvedObject=regarding message=note source=deprecatedSource firstTimestamp=deprecatedFirstTimestamp " +
		"lastTimestamp=deprecatedLastTimestamp count=deprecatedCount reportingComponent=reportingController") {
		from, to, _ := strings.Cut(names, "=")
		if !toEvents {
			from, to = to, from
		}
		if v, ok := e[from]; ok {
			delete(e, from)
			e[to] = v
		}
	}
}

// metricFields are the fields of a metric in autoscaling/v2 and in v1's annotations; @ is target or current.
var metricFields = map[string]string{
	"object":            "describedObject=target metric.name=metricName metric.selector=selector @.value=@Value @.averageValue=averageValue",
	"pods":              "metric.name=metricName metric.selector=selector @.averageValue=@AverageValue",
	"resource":          "name=name @.averageUtilization=@AverageUtilization @.averageValue=@AverageValue",
	"containerResource": "name=name container=container @.averageUtilization=@AverageUtilization @.averageValue=@AverageValue",
	"external":          "metric.name=metricName metric.selector=metricSelector @.value=@Value @.averageValue=@AverageValue",
}

func metric(from map[string]any, side string, toV2 bool) map[string]any {
	out := map[string]any{"type": from["type"]}
	for kind, names := range metricFields {
		source, ok := from[kind].(map[string]any)
		if !ok {
			continue
		}
		made := map[string]any{}
		for name := range strings.FieldsSeq(strings.ReplaceAll(names, "@", side)) {
			a, b, _ := strings.Cut(name, "=")
			if toV2 {
				a, b = b, a
			}
			if v, has, _ := unstructured.NestedFieldNoCopy(source, strings.Split(a, ".")...); has {
				_ = unstructured.SetNestedField(made, v, strings.Split(b, ".")...) // made has no other types
			}
		}
		if out[kind] = made; toV2 && side == "target" {
			setTargetType(kind, made)
		}
	}
	return out
}

// setTargetType sets the type of a target, which v1 does not have.
func setTargetType(kind string, m map[string]any) {
	target, _ := m["target"].(map[string]any)
	if target == nil {
		return
	}
	if kind == "object" && target["averageValue"] != nil && target["value"] == "0" {
		delete(target, "value") // v1 cannot omit it
	}
	switch {
	case target["averageUtilization"] != nil:
		target["type"] = "Utilization"
	case target["value"] != nil && (kind == "external" || target["averageValue"] == nil):
		target["type"] = "Value"
	default:
		target["type"] = "AverageValue"
	}
}

const autoscalerNotes = "autoscaling.alpha.kubernetes.io/" // prefix of the annotations with what v1 has no fields for

// autoscalerParts returns the spec, the status and the annotations of an autoscaler, never nil.
func autoscalerParts(h map[string]any) (spec, status, notes map[string]any) {
	part := func(of map[string]any, name string) map[string]any {
		p, ok := of[name].(map[string]any)
		if !ok {
			p = map[string]any{}
			of[name] = p
		}
		return p
	}
	metadata := part(h, "metadata")
	notes = maps.Clone(part(metadata, "annotations"))
	metadata["annotations"] = notes
	return part(h, "spec"), part(h, "status"), notes
}

// cpu returns the utilization of a resource metric of CPUs, or nil.
func cpu(m any, side string) any {
	content, _ := m.(map[string]any)
	if name, _, _ := unstructured.NestedString(content, "resource", "name"); name != "cpu" {
		return nil
	}
	v, _, _ := unstructured.NestedFieldNoCopy(content, "resource", side, "averageUtilization")
	return v
}

func autoscalerToV1(h map[string]any) {
	spec, status, notes := autoscalerParts(h)
	maps.DeleteFunc(notes, func(name string, _ any) bool { return strings.HasPrefix(name, autoscalerNotes) })
	note := func(name string, typed, value any) {
		text, err := json.Marshal(value)
		if err == nil && typed != nil {
			if err = json.Unmarshal(text, typed); err == nil {
				text, err = json.Marshal(typed)
			}
		}
		if err == nil {
			notes[autoscalerNotes+name] = string(text)
		}
	}
	var others, current []any
	metrics, _ := spec["metrics"].([]any)
	for _, m := range metrics {
		switch used := cpu(m, "target"); {
		case used == nil:
			others = append(others, metric(m.(map[string]any), "target", false))
		case spec["targetCPUUtilizationPercentage"] == nil:
			spec["targetCPUUtilizationPercentage"] = used
		}
	}
	metrics, _ = status["currentMetrics"].([]any)
	for _, m := range metrics {
		if used := cpu(m, "current"); used != nil {
			status["currentCPUUtilizationPercentage"] = used
		}
		current = append(current, metric(m.(map[string]any), "current", false))
	}
	if others != nil {
		note("metrics", new([]autoscalingv1.MetricSpec), others)
	}
	if current != nil {
		note("current-metrics", new([]autoscalingv1.MetricStatus), current)
	}
	if b := spec["behavior"]; b != nil {
		note("behavior", nil, initials(b, strings.ToUpper))
	}
	if c, _ := status["conditions"].([]any); len(c) > 0 {
		note("conditions", new([]autoscalingv1.HorizontalPodAutoscalerCondition), c)
	}
}

func autoscalerToV2(h map[string]any) {
	spec, status, notes := autoscalerParts(h)
	read := func(name string) (v any) {
		text, _ := notes[autoscalerNotes+name].(string)
		_ = json.Unmarshal([]byte(text), &v) // as kube-apiserver, which ignores what it cannot read
		delete(notes, autoscalerNotes+name)
		return v
	}
	all := func(name, side string) (out []any) {
		list, _ := read(name).([]any)
		for _, m := range list {
			if m, ok := m.(map[string]any); ok {
				out = append(out, metric(m, side, true))
			}
		}
		return out
	}
	ofCPU := func(side string, used any) any {
		m := map[string]any{"averageUtilization": used}
		if side == "target" {
			m["type"] = "Utilization"
		}
		return map[string]any{"type": "Resource", "resource": map[string]any{"name": "cpu", side: m}}
	}
	metrics := all("metrics", "target")
	used := spec["targetCPUUtilizationPercentage"]
	if used == nil && len(metrics) == 0 {
		used = int64(80) // kube-apiserver's default
	}
	if used != nil {
		metrics = append(metrics, ofCPU("target", used))
	}
	spec["metrics"] = metrics
	if current := all("current-metrics", "current"); current != nil {
		status["currentMetrics"] = current
	} else if used := status["currentCPUUtilizationPercentage"]; used != nil {
		status["currentMetrics"] = []any{ofCPU("current", used)}
	}
	if b := read("behavior"); b != nil {
		spec["behavior"] = initials(b, strings.ToLower)
	}
	if c := read("conditions"); c != nil {
		status["conditions"] = c
	}
	maps.DeleteFunc(notes, func(name string, _ any) bool { return strings.HasPrefix(name, autoscalerNotes) })
}

// initials changes the first letters of all names: kube-apiserver's annotation has those of a Go type.
func initials(v any, by func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, e := range v {
			out[by(name[:min(1, len(name))])+name[min(1, len(name)):]] = initials(e, by)
		}
		return out
	case []any:
		for i := range v {
			v[i] = initials(v[i], by)
		}
	}
	return v
}
