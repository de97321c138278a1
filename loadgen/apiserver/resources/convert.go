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
		add((*autoscalingv1.HorizontalPodAutoscaler)(nil), (*autoscalingv2.HorizontalPodAutoscaler)(nil), autoscaler(autoscalerToV2)),
		add((*autoscalingv2.HorizontalPodAutoscaler)(nil), (*autoscalingv1.HorizontalPodAutoscaler)(nil), autoscaler(autoscalerToV1)),
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

// metric converts a metric of a spec (target) or a status (current).
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
		out[kind] = made
		if target, ok := made["target"].(map[string]any); ok && toV2 && side == "target" {
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
	}
	return out
}

// autoscalerNotes are the annotations of autoscaling/v1 with what it has no fields for.
const autoscalerNotes = "autoscaling.alpha.kubernetes.io/"

// cpuOf returns the utilization of a resource metric of CPUs, or nil.
func cpuOf(m map[string]any, side string) any {
	if name, _, _ := unstructured.NestedString(m, "resource", "name"); name != "cpu" {
		return nil
	}
	v, _, _ := unstructured.NestedFieldNoCopy(m, "resource", side, "averageUtilization")
	return v
}

// autoscaler returns a conversion that reads the old notes, which are dropped, and returns new ones.
func autoscaler(convert func(h map[string]any, old map[string]string) (notes map[string]string)) func(h map[string]any) {
	return func(h map[string]any) {
		all, _, _ := unstructured.NestedStringMap(h, "metadata", "annotations")
		notes := convert(h, all)
		maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, autoscalerNotes) })
		maps.Insert(notes, maps.All(all))
		if unstructured.RemoveNestedField(h, "metadata", "annotations"); len(notes) > 0 {
			_ = unstructured.SetNestedStringMap(h, notes, "metadata", "annotations") // metadata is a map
		}
	}
}

func autoscalerToV1(h map[string]any, _ map[string]string) map[string]string {
	spec, status := h["spec"].(map[string]any), h["status"].(map[string]any) // typed objects have both
	notes := map[string]string{}
	note := func(name string, v any) {
		if text, err := json.Marshal(v); err == nil && string(text) != "null" {
			notes[autoscalerNotes+name] = string(text)
		}
	}
	metrics := func(part map[string]any, field, side string) (noted []any) {
		cpu := side + "CPUUtilizationPercentage"
		list, _ := part[field].([]any)
		for _, m := range list {
			m := m.(map[string]any) // of a typed object
			used := cpuOf(m, side)
			if used != nil && (part[cpu] == nil || side == "current") { // the first target and the last state, as in kube-apiserver
				part[cpu] = used
			}
			if used == nil || side == "current" {
				noted = append(noted, metric(m, side, false))
			}
		}
		return noted
	}
	note("metrics", metrics(spec, "metrics", "target"))
	note("current-metrics", metrics(status, "currentMetrics", "current"))
	note("behavior", spec["behavior"])
	note("conditions", status["conditions"])
	return notes
}

func autoscalerToV2(h map[string]any, notes map[string]string) map[string]string {
	spec, status := h["spec"].(map[string]any), h["status"].(map[string]any) // typed objects have both
	read := func(name string, typed any) (v any) {                           // What cannot be read is ignored, as by kube-apiserver.
		if json.Unmarshal([]byte(notes[autoscalerNotes+name]), typed) == nil {
			text, _ := json.Marshal(typed)
			_ = json.Unmarshal(text, &v)
		}
		return v
	}
	readMetrics := func(name, side string, typed any) []any {
		list, _ := read(name, typed).([]any)
		for i := range list {
			list[i] = metric(list[i].(map[string]any), side, true)
		}
		return list
	}
	cpu := func(side string, used any) any {
		return metric(map[string]any{"type": "Resource", "resource": map[string]any{"name": "cpu", side + "AverageUtilization": used}}, side, true)
	}
	metrics := readMetrics("metrics", "target", new([]autoscalingv1.MetricSpec))
	used := spec["targetCPUUtilizationPercentage"]
	if used == nil && len(metrics) == 0 {
		used = int64(80) // kube-apiserver's default
	}
	if used != nil {
		metrics = append(metrics, cpu("target", used))
	}
	spec["metrics"] = metrics
	spec["behavior"] = read("behavior", new(autoscalingv2.HorizontalPodAutoscalerBehavior)) // in any letters
	status["conditions"] = read("conditions", new([]autoscalingv2.HorizontalPodAutoscalerCondition))
	current := readMetrics("current-metrics", "current", new([]autoscalingv1.MetricStatus))
	if used := status["currentCPUUtilizationPercentage"]; used != nil && current == nil {
		current = []any{cpu("current", used)}
	}
	status["currentMetrics"] = current
	return map[string]string{}
}
