package fleet

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"watchlab/bench/chart"
	"watchlab/bench/lab"
)

// Print prints a table of the pods.
func (s State) Print(w io.Writer) error {
	fmt.Fprintf(w, "run %s: %s\n", s.Ref, s.Line())
	if s.Failure != "" {
		fmt.Fprintf(w, "the Job failed: %s\n", s.Failure)
	}
	fmt.Fprintln(w)
	t := chart.NewTable("", []string{"INDEX", "POD", "NODE", "PHASE", "FAILURES", "PROGRESS"})
	for _, p := range s.Pods {
		t.Add(strconv.Itoa(p.Index), cmp.Or(p.Name, chart.None), cmp.Or(p.Node, chart.None), p.PhaseText(), strconv.Itoa(p.Failures), cmp.Or(p.Progress, chart.None))
	}
	return t.Text(w)
}

// PhaseText returns the phase with its reason.
func (p Pod) PhaseText() string {
	if p.Reason == "" {
		return string(p.Phase)
	}
	return string(p.Phase) + " (" + p.Reason + ")"
}

// String returns the phase, the name, the node and the progress, as far as they are known.
func (p Pod) String() string {
	parts := []string{p.PhaseText(), p.Name, p.Node, p.Progress}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

// Line counts the pods by phase.
func (s State) Line() string {
	var parts []string
	for _, phase := range []Phase{Absent, Waiting, Running, Failed, GivenUp, Succeeded} {
		if n := s.Count(phase); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, phase))
		}
	}
	return fmt.Sprintf("%s: %s", lab.Plural(s.Plan.Pods, "pod"), strings.Join(parts, ", "))
}

// Unfinished names the pods without a result, and the failure of the Job.
func (s State) Unfinished() []string {
	var all []string
	for _, p := range s.Pods {
		if p.Phase != Succeeded {
			all = append(all, fmt.Sprintf("pod %d %s", p.Index, p.PhaseText()))
		}
	}
	if s.Failure != "" {
		all = append(all, s.Failure)
	}
	return all
}

// waitsFor returns the reason why the pod waits, with what it lacks.
func (p Pod) waitsFor() string {
	what := cmp.Or(p.Message, p.Image)
	if imagePullFailed(p) {
		what = p.Image // The message says so at length.
	}
	return cmp.Or(p.Reason, "ContainerCreating") + ": " + what
}

// StartHint returns advice for a pod that does not start.
func StartHint(p Pod, context, overlay, namespace string) string {
	cluster, kind := strings.CutPrefix(context, "kind-")
	switch {
	case p.Reason == corev1.PodReasonUnschedulable:
		return fmt.Sprintf("overlay %s asks for more than the nodes have", cmp.Or(overlay, "base"))
	case !imagePullFailed(p):
		return fmt.Sprintf("kubectl -n %s get events says more", namespace)
	case kind:
		return fmt.Sprintf("make image-load IMAGE=%s CLUSTER=%s loads it, --image names another", p.Image, cluster)
	}
	return "load it into the nodes, or a registry that they reach"
}

// imagePullFailed reports ErrImagePull, ImagePullBackOff and others.
func imagePullFailed(p Pod) bool {
	return p.Phase == Waiting && strings.Contains(p.Reason, "Image")
}
