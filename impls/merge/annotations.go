package merge

import (
	"maps"
	"slices"
	"time"
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

// localAnnotations are kubelet's own.
var localAnnotations = [...]string{ConfigSourceAnnotation, ConfigMirrorAnnotation, ConfigFirstSeenAnnotation}

// annotationsDiffer reports whether the annotations of a held pod differ from
// those of a received one by anything but kubelet's own.
func annotationsDiffer(held, received map[string]string) bool {
	// more is the number of annotations that held has and received lacks, without kubelet's own.
	more := len(held)
	for _, key := range localAnnotations {
		if _, ok := held[key]; ok {
			more--
		}
	}
	for key, value := range received {
		if slices.Contains(localAnnotations[:], key) {
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
	maps.Copy(merged, received)
	merged[ConfigSourceAnnotation] = source
	merged[ConfigFirstSeenAnnotation] = time.Now().Format(firstSeenFormat)
	return merged
}

// mergeAnnotations returns the annotations of a held pod after it changed:
// those received, with kubelet's own kept as they are held.
func mergeAnnotations(held, received map[string]string) map[string]string {
	merged := make(map[string]string, len(received)+3)
	maps.Copy(merged, received)
	for _, key := range localAnnotations {
		if value, ok := held[key]; ok {
			merged[key] = value
		}
	}
	return merged
}
