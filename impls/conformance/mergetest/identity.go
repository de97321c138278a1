package mergetest

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"watchlab/impls/merge"
)

// expectEvents compares the events since the last call.
func (r *rig) expectEvents(want ...string) {
	r.Helper()
	if diff := cmp.Diff(strings.Join(want, "\n"), strings.Join(r.events.take(), "\n")); diff != "" {
		r.Errorf("events (-want +got):\n%s", diff)
	}
}

func duplicateEvent(pod *v1.Pod, source string) string {
	return string(pod.UID) + " Warning FailedValidation: Error validating pod " + pod.Name + "_" + pod.Namespace +
		"(" + string(pod.UID) + ") from " + source + " due to duplicate pod name \"" + pod.Name + "\", ignoring"
}

// duplicates: of pods with one full name in one update, the first is taken.
func (r *rig) duplicates() {
	a, twin := newPod("a"), changed(newPod("twin"), named("a"))
	elsewhere := changed(newPod("elsewhere"), named("a"), func(p *v1.Pod) { p.Namespace = "other" })
	for _, op := range []merge.Op{merge.SET, merge.ADD, merge.UPDATE, merge.DELETE} {
		source := op.String()
		r.expect(r.mergeFrom(source, op, a, twin, elsewhere, changed(a, newImage)), "ADD "+source+" a elsewhere")
		r.expectEvents(duplicateEvent(twin, source), duplicateEvent(a, source))
		// In the next update, the other may be first.
		got := r.mergeFrom(source, op, twin, a, elsewhere)
		if op == merge.SET {
			r.expect(got, "REMOVE SET a", "ADD SET twin")
		} else {
			r.expect(got, "ADD "+source+" twin")
		}
		r.expectEvents(duplicateEvent(a, source))
	}
	// Names count within one update and source; REMOVE doesn't look at them.
	r.expect(r.mergeFrom("one", merge.ADD, a), "ADD one a")
	r.expect(r.mergeFrom("one", merge.ADD, twin), "ADD one twin")
	r.expect(r.mergeFrom("two", merge.ADD, newPod("a")), "ADD two a")
	r.expect(r.mergeFrom("one", merge.REMOVE, a, twin), "REMOVE one a twin")
	r.expectEvents()

	// The underscore between name and namespace can be part of them.
	left := changed(newPod("left"), named("x"), func(p *v1.Pod) { p.Namespace = "y_z" })
	right := changed(newPod("right"), named("x_y"), func(p *v1.Pod) { p.Namespace = "z" })
	r.expect(r.mergeFrom("one", merge.ADD, left, right), "ADD one left")
	r.expectEvents(duplicateEvent(right, "one"))
}

// duplicatesByKnownPointers: pods that were received before by the same
// pointers are duplicates as well.
func (r *rig) duplicatesByKnownPointers() {
	a, twin, b := newPod("a"), changed(newPod("twin"), named("a")), newPod("b")
	r.merge(merge.ADD, a, b)
	r.merge(merge.ADD, twin)
	r.expectEvents()
	r.expect(r.merge(merge.ADD, twin, b, a, b))
	r.expectEvents(duplicateEvent(a, "api"), duplicateEvent(b, "api"))
	// A known pod is dropped for a new one of its name and the other way round.
	third := changed(newPod("third"), named("b"))
	r.expect(r.merge(merge.ADD, third, b), "ADD api third")
	r.expectEvents(duplicateEvent(b, "api"))
	fourth := changed(newPod("fourth"), named("b"))
	r.expect(r.merge(merge.ADD, b, fourth))
	r.expectEvents(duplicateEvent(fourth, "api"))
	// What a SET drops, it removes.
	r.expect(r.merge(merge.SET, b, twin, a, third, b), "REMOVE api a third", "ADD api")
	r.expectEvents(duplicateEvent(a, "api"), duplicateEvent(third, "api"), duplicateEvent(b, "api"))
	r.expectHeld("api/b", "api/twin")
}

// duplicateUIDs: like kubelet, variants accept two pods with one UID and
// different names in one update.
func (r *rig) duplicateUIDs() {
	a := newPod("u")
	b := changed(a, named("b"), newImage)
	// In a SET, both are new; the second is held.
	r.expect(r.merge(merge.SET, a, b), "ADD api u u")
	if got := r.state()["api/u"]; got.Name != "b" || got.Spec.Containers[0].Image != "image:1+" {
		r.Errorf("held %s with %s, want the second", got.Name, got.Spec.Containers[0].Image)
	}
	// Known, both are compared with the held pod, which is sent in its last state,
	// under its first name.
	u := changed(b, named("u"), newImage)
	got := r.merge(merge.SET, u, changed(u, named("b"), newImage))
	r.expect(got, "UPDATE api u u")
	for _, pod := range got[0].Pods {
		if pod.Name != "b" || pod.Spec.Containers[0].Image != "image:1+++" {
			r.Errorf("sent %s with %s", pod.Name, pod.Spec.Containers[0].Image)
		}
	}
	// In an ADD, the second changes the first.
	a = newPod("u")
	got = r.mergeFrom("file", merge.ADD, a, changed(a, named("b"), newImage))
	r.expect(got, "ADD file u", "UPDATE file u")
	if image := got[0].Pods[0].Spec.Containers[0].Image; image != "image:1+" {
		r.Errorf("added with %s, want it as it is in the end", image)
	}
	r.expectEvents()
	r.expect(r.merge(merge.SET), "REMOVE api u")
	r.expect(r.merge(merge.SET, newPod("u")), "ADD api u")
}

// namesMove: the name of the last received pod counts.
func (r *rig) namesMove() {
	one, two := changed(newPod("one"), named("x")), changed(newPod("two"), named("y"))
	r.merge(merge.SET, one, two)
	// They trade names.
	one, two = changed(one, named("y")), changed(two, named("x"))
	r.expect(r.merge(merge.SET, one, two))
	r.expectEvents()
	r.expect(r.merge(merge.SET, two, one))
	r.expectEvents()
	// A name that a pod gives up within an update stays taken in it.
	moved := changed(one, named("z"))
	three := changed(newPod("three"), named("y"))
	r.expect(r.merge(merge.ADD, one, moved, three))
	r.expectEvents(duplicateEvent(three, "api"))
	r.expect(r.merge(merge.ADD, three), "ADD api three")
	r.expect(r.merge(merge.REMOVE, three, moved, two), "REMOVE api one three two")
	r.expect(r.merge(merge.ADD, changed(newPod("four"), named("y"))), "ADD api four")
	r.expectEvents()
}

// annotations: the merger sets config.source and config.seen for every received
// pod, and config.seen never changes.
func (r *rig) annotations() {
	pod := changed(newPod("a"), annotated(merge.ConfigSourceAnnotation, "elsewhere"), annotated(merge.ConfigFirstSeenAnnotation, "never"))
	before := time.Now()
	got := r.merge(merge.SET, pod, changed(newPod("bare"), func(p *v1.Pod) { p.Annotations = nil }))
	r.expect(got, "ADD api a bare")
	for _, sent := range got[0].Pods {
		if source := sent.Annotations[merge.ConfigSourceAnnotation]; source != "api" {
			r.Errorf("%s: config.source is %q, want api", sent.UID, source)
		}
		seen, err := time.Parse(time.RFC3339Nano, sent.Annotations[merge.ConfigFirstSeenAnnotation])
		if err != nil || !seen.Equal(before) {
			r.Errorf("%s: config.seen is %q (%v), want %v", sent.UID, sent.Annotations[merge.ConfigFirstSeenAnnotation], err, before)
		}
	}
	seen := got[0].Pods[0].Annotations[merge.ConfigFirstSeenAnnotation]

	for _, step := range []struct {
		change func(*v1.Pod)
		want   string
	}{
		{newMessage, "RECONCILE"},
		{newImage, "UPDATE"},
		{annotated(merge.ConfigFirstSeenAnnotation, "later"), ""},
		{func(p *v1.Pod) { newImage(p); annotated(merge.ConfigSourceAnnotation, "nowhere")(p) }, "UPDATE"},
		{func(p *v1.Pod) { p.Annotations = map[string]string{"other": "x"} }, "UPDATE"},
		{markDeleted, "DELETE"},
	} {
		advance(time.Second)
		pod = changed(pod, step.change)
		sent := r.merge(merge.ADD, pod)
		held := r.state()["api/a"]
		if step.want == "" {
			r.expect(sent)
		} else {
			r.expect(sent, step.want+" api a")
			if !reflect.DeepEqual(sent[0].Pods[0], held) {
				r.Errorf("sent and held differ:\n%s", cmp.Diff(sent[0].Pods[0], held))
			}
		}
		want := withLocal(pod, "api", seen).Annotations
		if diff := cmp.Diff(want, held.Annotations); diff != "" {
			r.Errorf("%s (-want +got):\n%s", step.want, diff)
		}
	}
	advance(time.Second)
	r.merge(merge.SET)
	again := r.merge(merge.SET, pod)
	r.expect(again, "ADD api a")
	if again[0].Pods[0].Annotations[merge.ConfigFirstSeenAnnotation] == seen {
		r.Error("config.seen of a pod that was added again is the old one")
	}
}

// mirrorAnnotation: the annotation is kept once set, and added with the first compared change.
func (r *rig) mirrorAnnotation() {
	mirror := func() (string, bool) {
		value, ok := r.state()["api/a"].Annotations[merge.ConfigMirrorAnnotation]
		return value, ok
	}
	pod := newPod("a")
	r.merge(merge.SET, pod)
	pod = changed(pod, annotated(merge.ConfigMirrorAnnotation, "one"))
	r.expect(r.merge(merge.SET, pod))
	if value, ok := mirror(); ok {
		r.Errorf("mirror annotation %q came without a change", value)
	}
	pod = changed(pod, newImage)
	r.expect(r.merge(merge.SET, pod), "UPDATE api a")
	if value, _ := mirror(); value != "one" {
		r.Errorf("mirror annotation %q, want one", value)
	}
	pod = changed(pod, newImage, annotated(merge.ConfigMirrorAnnotation, "two"))
	r.expect(r.merge(merge.SET, pod), "UPDATE api a")
	pod = changed(pod, newImage, unannotated(merge.ConfigMirrorAnnotation))
	r.expect(r.merge(merge.SET, pod), "UPDATE api a")
	if value, _ := mirror(); value != "one" {
		r.Errorf("mirror annotation %q, want the first", value)
	}
}

// knownPointers: a pod with its last pointer is unchanged, in any order and
// number. After its removal it is new.
func (r *rig) knownPointers() {
	var pods []*v1.Pod
	for i := range 60 {
		pods = append(pods, newPod(string(rune('A'+i))))
	}
	r.merge(merge.SET, pods...)
	slices.Reverse(pods)
	r.expect(r.merge(merge.SET, pods...))
	pods[7] = changed(pods[7], newMessage)
	r.expect(r.merge(merge.SET, pods...), "RECONCILE api "+string(pods[7].UID))
	r.expect(r.merge(merge.SET, pods...))
	r.expect(r.merge(merge.ADD, pods[3:9]...))
	r.expect(r.merge(merge.SET, append(slices.Clone(pods[:20]), pods[21:]...)...), "REMOVE api "+string(pods[20].UID))
	r.expect(r.merge(merge.SET, pods...), "ADD api "+string(pods[20].UID))
	got := r.merge(merge.SET, pods[1], pods[2])
	if len(got) != 1 || got[0].Op != merge.REMOVE || len(got[0].Pods) != 58 {
		r.Errorf("SET of two of 60 sent %s", show(got))
	}
	got = r.merge(merge.SET, pods...)
	if len(got) != 1 || got[0].Op != merge.ADD || len(got[0].Pods) != 58 {
		r.Errorf("SET of 60 after two sent %s", show(got))
	}
	r.expectEvents()
}

// knownVersions: an equal pod is unchanged by any rule, and a different pod is changed by any rule.
func (r *rig) knownVersions() {
	for _, source := range []string{merge.APISource, merge.FileSource} {
		pod := newPod("a")
		before := pod.DeepCopy()
		r.expect(r.mergeFrom(source, merge.SET, pod, newPod("b")), "ADD "+source+" a b")
		for _, op := range []merge.Op{merge.ADD, merge.UPDATE, merge.DELETE} {
			r.expect(r.mergeFrom(source, op, pod.DeepCopy()))
			r.expect(r.mergeFrom(source, op, changed(pod)))
		}
		// A version says nothing about a pod of another UID, nor does none.
		other := newPod("c")
		other.ResourceVersion = pod.ResourceVersion
		r.expect(r.mergeFrom(source, merge.ADD, other), "ADD "+source+" c")
		none := pod.DeepCopy()
		none.ResourceVersion = ""
		r.expect(r.mergeFrom(source, merge.ADD, none))
		none = none.DeepCopy()
		newMessage(none)
		r.expect(r.mergeFrom(source, merge.ADD, none), "RECONCILE "+source+" a")
		none = none.DeepCopy()
		newImage(none)
		none.Generation++
		r.expect(r.mergeFrom(source, merge.ADD, none), "UPDATE "+source+" a")
		// It is the version received last that counts.
		r.expect(r.mergeFrom(source, merge.ADD, before), "UPDATE "+source+" a")
	}
	// What a source knows says nothing about another's.
	pod := newPod("d")
	r.merge(merge.SET, pod)
	r.expect(r.mergeFrom("http", merge.SET, pod.DeepCopy()), "ADD http d")
}

// sameGeneration returns a changed copy of a pod with the same generation.
func sameGeneration(pod *v1.Pod, changes ...func(*v1.Pod)) *v1.Pod {
	other := changed(pod, changes...)
	other.Generation = pod.Generation
	return other
}

// generationsLookedAt: without trust in generations, a change of a spec with the
// same generation is detected.
func (r *rig) generationsLookedAt() {
	pod := newPod("a")
	r.merge(merge.SET, pod)
	r.expect(r.merge(merge.SET, sameGeneration(pod, newImage)), "UPDATE api a")
}

// generationsTrusted: the spec of a pod with the same generation is equal. Nothing else is trusted:
// no other source, generation 0, other node or other field of the pod.
func (r *rig) generationsTrusted() {
	pod := newPod("a")
	r.expect(r.merge(merge.SET, pod), "ADD api a")
	pod = sameGeneration(pod, newImage)
	r.expect(r.merge(merge.SET, pod))
	if image := r.state()["api/a"].Spec.Containers[0].Image; image != "image:1" {
		r.Errorf("held with %s, want the first: the generation is the same", image)
	}
	pod = sameGeneration(pod, newMessage)
	r.expect(r.merge(merge.UPDATE, pod), "RECONCILE api a")
	for _, c := range []struct {
		change func(*v1.Pod)
		want   string
	}{
		{func(p *v1.Pod) { p.Spec.NodeName += "+" }, "UPDATE"},
		{func(p *v1.Pod) { p.Labels["app"] += "+" }, "UPDATE"},
		{annotated("note", "other"), "UPDATE"},
		{markDeleted, "DELETE"},
		{func(p *v1.Pod) { *p.DeletionGracePeriodSeconds-- }, "DELETE"},
	} {
		if pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds == nil {
			grace := int64(30)
			pod = sameGeneration(pod, func(p *v1.Pod) { p.DeletionGracePeriodSeconds = &grace })
			r.expect(r.merge(merge.SET, pod), "DELETE api a")
		}
		pod = sameGeneration(pod, c.change)
		r.expect(r.merge(merge.SET, pod), c.want+" api a")
	}
	// It is the generation received last that counts: the one before says nothing.
	b := newPod("b")
	r.expect(r.merge(merge.ADD, b), "ADD api b")
	next := changed(b, func(p *v1.Pod) { p.Generation++ })
	r.expect(r.merge(merge.ADD, next))
	r.expect(r.merge(merge.ADD, sameGeneration(b, newImage)), "UPDATE api b")
	// None says nothing, from whichever side.
	none := newPod("c")
	none.Generation = 0
	r.expect(r.merge(merge.ADD, none), "ADD api c")
	r.expect(r.merge(merge.ADD, sameGeneration(none, newImage)), "UPDATE api c")
	// A pod of another UID has generations of its own, and so has the same pod of another time.
	r.expect(r.merge(merge.ADD, newPod("d")), "ADD api d")
	r.expect(r.merge(merge.REMOVE, pod), "REMOVE api a")
	r.expect(r.merge(merge.ADD, newPod("a")), "ADD api a")
	// Other sources have no API server to count for them.
	e := newPod("e")
	r.mergeFrom(merge.FileSource, merge.SET, e)
	r.expect(r.mergeFrom(merge.FileSource, merge.SET, sameGeneration(e, newImage)), "UPDATE file e")
	// In a list that is compared on several cores as well.
	pods := make([]*v1.Pod, 100)
	for i := range pods {
		pods[i] = newPod(fmt.Sprintf("%03d", i))
	}
	r.mergeFrom(merge.APISource, merge.SET, pods...)
	for i := range pods {
		pods[i] = sameGeneration(pods[i], newImage)
	}
	pods[40] = changed(pods[40], newImage)
	r.expect(r.mergeFrom(merge.APISource, merge.SET, pods...), "UPDATE api 040")
}

// bigFreshLists: lists with unknown pointers, with the same and another version,
// with changes and duplicates.
func (r *rig) bigFreshLists() {
	const n = 150
	for _, source := range []string{merge.APISource, merge.FileSource} {
		pods := make([]*v1.Pod, n)
		for i := range pods {
			pods[i] = newPod(fmt.Sprintf("%03d", i))
		}
		r.mergeFrom(source, merge.SET, pods...)
		fresh := func(change func(*v1.Pod, ...func(*v1.Pod)) *v1.Pod) []*v1.Pod {
			for i := range pods {
				pods[i] = change(pods[i])
			}
			return slices.Clone(pods)
		}
		copied := func(pod *v1.Pod, _ ...func(*v1.Pod)) *v1.Pod { return pod.DeepCopy() }
		r.expect(r.mergeFrom(source, merge.SET, fresh(copied)...))
		r.expect(r.mergeFrom(source, merge.SET, fresh(changed)...))
		fresh(changed)
		pods[3], pods[140] = changed(pods[3], newMessage), changed(pods[140], newMessage)
		pods[77], pods[90] = changed(pods[77], newImage), changed(pods[90], markDeleted)
		r.expect(r.mergeFrom(source, merge.SET, pods...),
			"UPDATE "+source+" 077", "DELETE "+source+" 090", "RECONCILE "+source+" 003 140")
		// One of a UID that came before by another name, with another status.
		twice := append(fresh(changed), changed(pods[5], named("twin"), newMessage))
		r.expect(r.mergeFrom(source, merge.UPDATE, twice...), "RECONCILE "+source+" 005")
		pods[5] = changed(twice[n], newImage)
		r.expect(r.mergeFrom(source, merge.SET, fresh(changed)[1:]...), "REMOVE "+source+" 000", "UPDATE "+source+" 005")
		r.expectEvents()
	}
}

// oftenCompared: caches for pods that are compared often hide no change.
func (r *rig) oftenCompared() {
	changes := []struct {
		change func(*v1.Pod)
		want   string
	}{
		{newImage, "UPDATE"},
		{func(p *v1.Pod) { p.Spec.Containers[0].Env[0].Value += "+" }, "UPDATE"},
		{func(p *v1.Pod) { p.Spec.Tolerations = []v1.Toleration{} }, "UPDATE"},
		{func(p *v1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: "k"}) }, "UPDATE"},
		{func(p *v1.Pod) { p.Spec.Tolerations = nil }, "UPDATE"},
		{func(p *v1.Pod) { p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "d"}) }, "UPDATE"},
		{func(p *v1.Pod) { p.Spec.Containers = p.Spec.Containers[:1] }, "UPDATE"},
		{func(p *v1.Pod) { p.Spec.NodeSelector["pool"] += "+" }, "UPDATE"},
		{func(p *v1.Pod) { delete(p.Spec.Containers[0].Resources.Requests, v1.ResourceCPU) }, "UPDATE"},
		{func(p *v1.Pod) { *p.Spec.TerminationGracePeriodSeconds++ }, "UPDATE"},
		{func(p *v1.Pod) { p.Labels["app"] += "+" }, "UPDATE"},
		{func(p *v1.Pod) { p.Labels = nil }, "UPDATE"},
		{annotated("note", "other"), "UPDATE"},
		{markDeleted, "DELETE"},
	}
	for _, source := range []string{merge.APISource, merge.FileSource} {
		pod := newPod("a")
		r.expect(r.mergeFrom(source, merge.SET, pod), "ADD "+source+" a")
		for _, c := range changes {
			for range 6 {
				pod = changed(pod)
				r.expect(r.mergeFrom(source, merge.UPDATE, pod))
				pod = changed(pod, newMessage)
				r.expect(r.mergeFrom(source, merge.SET, pod), "RECONCILE "+source+" a")
			}
			pod = changed(pod, c.change)
			r.expect(r.mergeFrom(source, merge.SET, pod), c.want+" "+source+" a")
		}
	}
}

// removedAndBack: a pod that is removed and added again is new, also with its old pointer.
func (r *rig) removedAndBack() {
	a, b := newPod("a"), newPod("b")
	r.merge(merge.SET, a, b)
	r.expect(r.merge(merge.REMOVE, a), "REMOVE api a")
	r.expect(r.merge(merge.SET, a, b), "ADD api a")
	r.expect(r.merge(merge.SET, b), "REMOVE api a")
	r.expect(r.merge(merge.UPDATE, a), "ADD api a")
	r.expect(r.merge(merge.SET), "REMOVE api a b")
	r.expect(r.merge(merge.SET, b, a), "ADD api b a")
	r.expect(r.merge(merge.SET, a, b))
	r.expectEvents()
}
