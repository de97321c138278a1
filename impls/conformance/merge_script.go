package conformance

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"watchlab/impls/merge"
)

// script is a sequence of updates.
type script struct {
	channel  bool
	capacity int // of variants that support it
	steps    []step
}

type step struct {
	source  string
	op      merge.Op
	pods    []*v1.Pod
	origins []string // origins of the pods
	// alone: there is no receiver during the step. If the step blocks, its
	// context ends. Variants that hold a lock during a send skip this.
	alone bool
}

// String returns the script as one line a step.
func (s script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "through the channel: %v, capacity %d\n", s.channel, s.capacity)
	for i, step := range s.steps {
		fmt.Fprintf(&b, "%d: %v %s", i, step.op, step.source)
		if step.alone {
			b.WriteString(" (no receiver)")
		}
		for j, pod := range step.pods {
			fmt.Fprintf(&b, " %s_%s(%s: %s)", pod.Name, pod.Namespace, pod.UID, step.origins[j])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// mutations are the possible changes of a pod between two updates, besides a new resourceVersion.
var mutations = []struct {
	name string
	run  func(*v1.Pod)
}{
	{"nothing", func(*v1.Pod) {}},
	{"image", newImage},
	{"status", newMessage},
	{"conditions nil", func(p *v1.Pod) { p.Status.Conditions = nil }},
	{"conditions empty", func(p *v1.Pod) { p.Status.Conditions = []v1.PodCondition{} }},
	{"tolerations nil", func(p *v1.Pod) { p.Spec.Tolerations = nil }},
	{"tolerations empty", func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{} }},
	{"selector", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": p.Spec.NodeSelector["pool"] + "+"} }},
	{"labels nil", func(p *v1.Pod) { p.Labels = nil }},
	{"labels empty", func(p *v1.Pod) { p.Labels = map[string]string{} }},
	{"label", func(p *v1.Pod) { metav1.SetMetaDataLabel(&p.ObjectMeta, "app", p.Labels["app"]+"+") }},
	{"annotations nil", func(p *v1.Pod) { p.Annotations = nil }},
	{"annotation", func(p *v1.Pod) { annotated("note", p.Annotations["note"]+"+")(p) }},
	{"no annotation", unannotated("note")},
	{"source", annotated(merge.ConfigSourceAnnotation, "elsewhere")},
	{"seen", annotated(merge.ConfigFirstSeenAnnotation, "never")},
	{"mirror", annotated(merge.ConfigMirrorAnnotation, "m")},
	{"other mirror", annotated(merge.ConfigMirrorAnnotation, "n")},
	{"no mirror", unannotated(merge.ConfigMirrorAnnotation)},
	{"deleted", markDeleted},
	{"not deleted", func(p *v1.Pod) { p.DeletionTimestamp = nil }},
	{"grace", func(p *v1.Pod) { p.DeletionGracePeriodSeconds = new(int64) }},
	{"no grace", func(p *v1.Pod) { p.DeletionGracePeriodSeconds = nil }},
	{"no version", func(p *v1.Pod) { p.ResourceVersion = "" }},
	{"finalizer", func(p *v1.Pod) { p.Finalizers = append(p.Finalizers, "f") }},
	{"named a", named("a")},
	{"named b", named("b")},
	{"elsewhere", func(p *v1.Pod) { p.Namespace = "elsewhere" }},
	{"afresh", func(p *v1.Pod) { *p = *newPod(string(p.UID)) }},
}

// dice draws the choices of a script: numbers from 0 to n-1.
type dice interface {
	draw(n int, what string) int
}

// rapidDice draws with rapid, which shrinks scripts.
type rapidDice struct{ t *rapid.T }

func (d rapidDice) draw(n int, what string) int { return rapid.IntRange(0, n-1).Draw(d.t, what) }

// byteDice draws one byte of a fuzzer's input per choice, then 0.
type byteDice struct{ bytes []byte }

func (d *byteDice) draw(n int, _ string) int {
	if len(d.bytes) == 0 {
		return 0
	}
	b := d.bytes[0]
	d.bytes = d.bytes[1:]
	return int(b) % n
}

func oneOf[T any](d dice, what string, values ...T) T { return values[d.draw(len(values), what)] }

// maxSteps is the maximum length of a script.
const maxSteps = 24

// drawScript draws updates of a few pods, so that updates of the same pod are frequent.
func drawScript(d dice) script {
	s := script{
		channel:  d.draw(2, "channel") == 1,
		capacity: oneOf(d, "capacity", 0, 1, 2, 7),
	}
	newest := make(map[place]*version)
	for range 1 + d.draw(maxSteps, "steps") {
		s.steps = append(s.steps, drawStep(d, newest))
	}
	if d.draw(2, "again") == 1 { // The first versions come again, after others.
		first := s.steps[0]
		first.pods = copies(first.pods)
		s.steps = append(s.steps, first)
	}
	if d.draw(8, "crowd") == 7 {
		s.addCrowd()
	}
	// The last step has a receiver, so that all notifications are received.
	s.steps[len(s.steps)-1].alone = false
	return s
}

func copies(pods []*v1.Pod) (all []*v1.Pod) {
	for _, pod := range pods {
		all = append(all, pod.DeepCopy())
	}
	return all
}

// addCrowd puts many pods before those of the first steps: with new versions, of which two have changes, and
// the second time with one more by another name.
func (s *script) addCrowd() {
	const steps, n = 6, 100
	crowd := make([]*v1.Pod, n)
	for i := range crowd {
		crowd[i] = newPod(fmt.Sprintf("crowd%d", i))
	}
	for i := range min(steps, len(s.steps)) {
		for j := range crowd {
			crowd[j] = changed(crowd[j])
		}
		crowd[i], crowd[2*i] = changed(crowd[i], newImage), changed(crowd[2*i], newMessage)
		st := &s.steps[i]
		st.pods = slices.Concat(crowd, []*v1.Pod{changed(crowd[5], named("twin"), newMessage)}, st.pods)
		st.origins = slices.Concat(slices.Repeat([]string{"crowd"}, n+1), st.origins)
	}
}

type place struct {
	source string
	uid    types.UID
}

// version is the newest pod of a place. Its number is the resourceVersion, so that pods of several UIDs have
// the same one.
type version struct {
	*v1.Pod
	n int
}

func drawStep(d dice, newest map[place]*version) step {
	st := step{
		source: oneOf(d, "source", merge.APISource, merge.FileSource, merge.HTTPSource),
		op:     oneOf(d, "op", merge.SET, merge.ADD, merge.UPDATE, merge.DELETE, merge.REMOVE, merge.SET, merge.SET),
		alone:  d.draw(4, "alone") == 3,
	}
	for range d.draw(8, "pods") {
		uid := oneOf[types.UID](d, "uid", "a", "b", "c", "d", "e", "f")
		at := place{st.source, uid}
		pod, origin := newest[at], "same"
		if pod == nil {
			pod, origin = &version{Pod: newPod(string(uid))}, "new"
			if uid == "f" { // with fields of all kinds
				recorded := RealisticPod(1)
				pod.Spec, pod.Status = recorded.Spec, recorded.Status
			}
			newest[at] = pod
		} else if kind := d.draw(5, "kind"); kind == 1 {
			// Equal, as pods with one version are.
			pod.Pod, origin = pod.DeepCopy(), "copied"
		} else if kind > 1 {
			pod.Pod, origin = pod.DeepCopy(), ""
			pod.n++
			pod.ResourceVersion = fmt.Sprint("of ", pod.n)
			for range 1 + d.draw(2, "mutations") {
				m := mutations[d.draw(len(mutations), "mutation")]
				m.run(pod.Pod)
				origin += m.name + ","
			}
		}
		st.pods = append(st.pods, pod.Pod)
		st.origins = append(st.origins, strings.TrimSuffix(origin, ","))
	}
	return st
}
