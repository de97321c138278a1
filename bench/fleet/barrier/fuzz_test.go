package barrier_test

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/fleet/barrier"
)

// FuzzLease: a Lease that others write is a member's progress, on one line, or it is none.
func FuzzLease(f *testing.F) {
	f.Add("2", `{"position":3,"plays":9,"play":"round 2 of Queue/impl=cond","refused":1}`)
	f.Add("0", `{"left":true,"done":true}`)
	f.Add("-1", `{"position":-9223372036854775808}`)
	f.Add("x", "null")
	f.Fuzz(func(t *testing.T, label, text string) {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"watchlab.dev/member": label}, Annotations: map[string]string{"watchlab.dev/barrier": text},
		}}
		if m, p, ok := barrier.Read(l); ok && (m < 0 || strings.Contains(p.String(), "\n")) {
			t.Fatalf("%q, %q reads as %d: %q", label, text, m, p)
		}
	})
}
