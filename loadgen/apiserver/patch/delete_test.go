package patch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/loadgen/apiserver/resources"
)

// TestDeleteGracefully deletes pods as in a cluster: what remains for the kubelet, and for how long.
func TestDeleteGracefully(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := lookup(t, resources.New(), "", "v1", "pods")
		running := func(change ...func(*corev1.Pod)) *corev1.Pod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: corev1.PodSpec{NodeName: "n"}}
			for _, f := range change {
				f(p)
			}
			return p
		}
		grace := func(s int64) *metav1.DeleteOptions { return &metav1.DeleteOptions{GracePeriodSeconds: &s} }
		dying := func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(30*time.Second))), new(int64(30))
		}
		overdue := func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(-5*time.Second))), new(int64(30))
		}
		held := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/a"} }
		for name, c := range map[string]struct {
			pod       *corev1.Pod
			options   *metav1.DeleteOptions
			gone      bool
			unchanged bool
			grace     int64 // of a marked pod
			now       bool  // the grace period is over, and the kubelet has a second more
		}{
			"default":            {pod: running(), grace: 30},
			"period of the pod":  {pod: running(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(5)) }), grace: 5},
			"period of options":  {pod: running(), options: grace(7), grace: 7},
			"negative":           {pod: running(), options: grace(-1), grace: 1},
			"forced":             {pod: running(), options: grace(0), gone: true},
			"not scheduled":      {pod: running(func(p *corev1.Pod) { p.Spec.NodeName = "" }), gone: true},
			"finished":           {pod: running(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), gone: true},
			"again":              {pod: running(dying), unchanged: true, grace: 30},
			"longer":             {pod: running(dying), options: grace(60), unchanged: true, grace: 30},
			"shorter":            {pod: running(dying), options: grace(10), grace: 10},
			"shorter, overdue":   {pod: running(overdue), options: grace(10), grace: 1, now: true},
			"by the kubelet":     {pod: running(dying), options: grace(0), gone: true},
			"held":               {pod: running(held), options: grace(0), grace: 0},
			"held, kubelet":      {pod: running(held, dying), options: grace(0), grace: 0},
			"held, with a grace": {pod: running(held), grace: 30},
			"foreground": {
				pod: running(), options: &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground), GracePeriodSeconds: new(int64)},
			},
		} {
			if c.options == nil {
				c.options = &metav1.DeleteOptions{}
			}
			e := New()
			e.Graceful = true
			r, err := e.Delete(pods, c.pod, c.options)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if r.Gone != c.gone || r.Unchanged != c.unchanged {
				t.Errorf("%s: gone %v, unchanged %v, want %v and %v", name, r.Gone, r.Unchanged, c.gone, c.unchanged)
			}
			p := r.Object.(*corev1.Pod)
			if r.Marked != c.gone {
				t.Errorf("%s: marked %v: an event of the mark precedes the deletion of a pod, and no other", name, r.Marked)
			}
			if c.gone {
				continue
			}
			at := time.Now().Add(time.Duration(c.grace) * time.Second)
			if c.now {
				at = time.Now()
			}
			if p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds != c.grace || !p.DeletionTimestamp.Time.Equal(at) {
				t.Errorf("%s: %+v", name, p.ObjectMeta)
			}
		}
	})
}

// TestPropagation compares the finalizers for the garbage collector with those of a real server.
func TestPropagation(t *testing.T) {
	const mine = "example.com/a"
	const orphan, foreground = metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents
	policy := func(p metav1.DeletionPropagation) *metav1.DeleteOptions {
		return &metav1.DeleteOptions{PropagationPolicy: &p}
	}
	configMaps, jobs := [2]string{"", "configmaps"}, [2]string{"batch", "jobs"}
	for name, c := range map[string]struct {
		kind    [2]string
		has     []string
		options *metav1.DeleteOptions
		want    []string // nil if the object is gone
	}{
		"none":                     {configMaps, nil, &metav1.DeleteOptions{}, nil},
		"background":               {configMaps, nil, policy(metav1.DeletePropagationBackground), nil},
		"foreground":               {configMaps, nil, policy(metav1.DeletePropagationForeground), []string{foreground}},
		"orphan":                   {configMaps, []string{mine}, policy(metav1.DeletePropagationOrphan), []string{mine, orphan}},
		"orphanDependents":         {configMaps, nil, &metav1.DeleteOptions{OrphanDependents: new(true)}, []string{orphan}},  //nolint:staticcheck // Clients may still send it.
		"not orphanDependents":     {configMaps, []string{orphan}, &metav1.DeleteOptions{OrphanDependents: new(false)}, nil}, //nolint:staticcheck // Clients may still send it.
		"of the object":            {configMaps, []string{foreground, mine}, &metav1.DeleteOptions{}, []string{foreground, mine}},
		"background over object's": {configMaps, []string{foreground, mine}, policy(metav1.DeletePropagationBackground), []string{mine}},
		"foreground over object's": {configMaps, []string{orphan}, policy(metav1.DeletePropagationForeground), []string{foreground}},
		"jobs":                     {jobs, nil, &metav1.DeleteOptions{}, []string{orphan}},
		"jobs, background":         {jobs, nil, policy(metav1.DeletePropagationBackground), nil},
		"events":                   {[2]string{"", "events"}, nil, policy(metav1.DeletePropagationForeground), nil},
	} {
		res := lookup(t, resources.New(), c.kind[0], "v1", c.kind[1])
		o := res.NewObject()
		if job, ok := o.(*batchv1.Job); ok {
			job.Generation = 1
		}
		o.SetName("x")
		o.SetFinalizers(c.has)
		for _, graceful := range []bool{true, false} {
			e := New()
			e.Graceful = graceful
			want := c.want
			if !graceful {
				want = c.has
			}
			r, err := e.Delete(res, o, c.options)
			if err != nil || r.Gone != (len(want) == 0) || !slices.Equal(r.Object.GetFinalizers(), want) || r.Gone == (r.Object.GetDeletionTimestamp() != nil) {
				t.Errorf("%s, graceful %v: gone %v with %v, want %v; %v", name, graceful, r.Gone, r.Object.GetFinalizers(), want, err)
				continue
			}
			if r.Gone {
				continue
			}
			again, err := e.Delete(res, r.Object, c.options)
			if err != nil || !again.Unchanged {
				t.Errorf("%s, graceful %v, again: %+v, %v", name, graceful, again, err)
			}
			if graceful {
				other, err := e.Delete(res, r.Object, policy(metav1.DeletePropagationBackground))
				if err != nil || other.Gone == slices.Contains(want, mine) {
					t.Errorf("%s, in the background after all: %+v, %v", name, other, err)
				}
			}
		}
	}
}
