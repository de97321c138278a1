package merge

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// firstSeenFormat is the layout in which kubelet writes config.seen: RFC 3339
// with all nine digits (k8s.io/kubernetes v1.31.14, pkg/kubelet/types/types.go).
const firstSeenFormat = "2006-01-02T15:04:05.000000000Z07:00"

// duplicateReason and duplicateFormat are kubelet's words for a dropped pod
// (k8s.io/kubernetes v1.31.14, filterInvalidPods).
const (
	duplicateReason = "FailedValidation"
	duplicateFormat = "Error validating pod %s from %s due to duplicate pod name %q, ignoring"
)

// recordDuplicates records an event for each dropped pod.
func recordDuplicates(recorder EventRecorder, source string, pods []*v1.Pod) {
	if recorder == nil {
		return
	}
	for _, pod := range pods {
		desc := pod.Name + "_" + pod.Namespace + "(" + string(pod.UID) + ")"
		recorder.Eventf(pod, v1.EventTypeWarning, duplicateReason, duplicateFormat, desc, source, pod.Name)
	}
}

// localAnnotations are kubelet's own.
var localAnnotations = [...]string{ConfigSourceAnnotation, ConfigMirrorAnnotation, ConfigFirstSeenAnnotation}

func isLocalAnnotation(key string) bool {
	switch key {
	case ConfigSourceAnnotation, ConfigMirrorAnnotation, ConfigFirstSeenAnnotation:
		return true
	default:
		return false
	}
}

// annotationsDiffer reports whether the annotations of a held pod differ from
// those of a received one by anything but kubelet's own.
func annotationsDiffer(held, received map[string]string) bool {
	// How many more foreign annotations held has. Every one of received is in
	// held, so that the two are equal if this is none.
	more := len(held)
	for _, key := range localAnnotations {
		if _, ok := held[key]; ok {
			more--
		}
	}
	for key, value := range received {
		if isLocalAnnotation(key) {
			continue
		}
		if have, ok := held[key]; !ok || have != value {
			return true
		}
		more--
	}
	return more != 0
}

// firstAnnotations returns the annotations of a pod that is new to its source.
func firstAnnotations(source string, received map[string]string) map[string]string {
	merged := make(map[string]string, len(received)+2)
	for key, value := range received {
		merged[key] = value
	}
	merged[ConfigSourceAnnotation] = source
	merged[ConfigFirstSeenAnnotation] = time.Now().Format(firstSeenFormat)
	return merged
}

// mergeAnnotations returns the annotations of a held pod after it changed:
// those received, with kubelet's own kept as they are held.
func mergeAnnotations(held, received map[string]string) map[string]string {
	merged := make(map[string]string, len(received)+3)
	for key, value := range received {
		merged[key] = value
	}
	for _, key := range localAnnotations {
		if value, ok := held[key]; ok {
			merged[key] = value
		}
	}
	return merged
}
