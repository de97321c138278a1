package barrier_test

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"watchlab/bench/fleet/barrier"
)

// FuzzLease: a Lease that others write is a member's progress, on one line, or it is none.
func FuzzLease(f *testing.F) {
	f.Add("pod-2", `{"position":3,"plays":9,"play":"round 2 of Queue/impl=cond","refused":1}`)
	f.Add("writer-0", `{"left":true,"done":true}`)
	f.Add("pod--1", `{"position":-9223372036854775808}`)
	f.Add("x", "null")
	f.Fuzz(func(t *testing.T, label, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		l := &coordinationv1.Lease{}
		l.Labels = map[string]string{barrier.MemberLabel: label}
		l.Annotations = map[string]string{"watchlab.dev/barrier": text}
		p, ok := barrier.Read(l)
		if !ok {
			return
		}
		if p.Member.Index < 0 {
			t.Fatalf("member %v", p.Member)
		}
		if got, err := p.Member.MarshalText(); err != nil || !strings.HasPrefix(string(got), strings.SplitAfter(label, "-")[0]) {
			t.Fatalf("%q reads as %q, %v", label, got, err)
		}
		_ = p.String()
	})
}
