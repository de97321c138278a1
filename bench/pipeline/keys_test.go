package pipeline

import (
	"hash/maphash"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/impls"
	"watchlab/loadgen/pace"
	"watchlab/loadgen/source"
	"watchlab/loadgen/storm"
)

// BenchmarkKeys reads and hashes the keys of the events that BenchmarkQueue plays, in their order and
// without a queue. A queue of keys cannot take less CPU time for an event on the same machine. names=no reads the
// metadata and not the bytes of the names.
func BenchmarkKeys(b *testing.B) {
	for _, skew := range []string{"uniform", "zipf:1.1"} {
		p, err := storm.NewProfile("ceiling")
		if err != nil {
			b.Fatal(err)
		}
		p.Events = 200_000
		if p.Skew, err = storm.ParseSkew(skew); err != nil {
			b.Fatal(err)
		}
		set, err := p.Set(1)
		if err != nil {
			b.Fatal(err)
		}
		m := &preparedStorm{Config: Config{Family: impls.Queue, Storm: set.Storms[0].Metadata(), Source: source.MemoryName, Events: int(p.Events), Seed: 1, Producers: 1}}
		calls := m.at(pace.Pace{}).parts()[0]
		for _, names := range []string{"no", "yes"} {
			b.Run("storm=ceiling/skew="+skew+"/names="+names, func(b *testing.B) {
				seed, sum := maphash.MakeSeed(), uint64(0)
				for b.Loop() {
					for i := range calls {
						o, ok := calls[i].obj.(metav1.Object)
						if !ok {
							continue
						}
						namespace, name := o.GetNamespace(), o.GetName()
						if names == "yes" {
							sum += maphash.String(seed, namespace) ^ maphash.String(seed, name)
						}
						sum += uint64(len(namespace) + len(name))
					}
				}
				if sum == 0 {
					b.Fatal("no keys")
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(calls)), "ns/event")
			})
		}
	}
}
