package storm_test

import (
	"fmt"
	"time"

	"watchlab/loadgen/storm"
)

// A storm of a profile, yielded event by event without being held in memory.
func ExampleGenerator() {
	p := storm.DefaultNodeLoss()
	storm.Resize(p, 20, 0, 0) // the pods and the rates follow
	p.Lost = 0.1
	g, err := storm.Compose(p, 1).Generator()
	if err != nil {
		fmt.Println(err)
		return
	}
	deleted := 0
	for s := (storm.Step{}); g.Next(&s); {
		if s.Kind == storm.Deleted {
			deleted++
		}
	}
	fmt.Println(deleted, "pods are deleted of", p.Pods)
	// Output: 220 pods are deleted of 2200
}

// Two profiles at the same time, as storms that pipelines can play.
func ExampleComposition() {
	rollout, loss := storm.DefaultRollout(), storm.DefaultNodeLoss()
	storm.Resize(rollout, 0, 500, 0)
	storm.Resize(loss, 5, 0, 0)
	set, err := storm.Composition{Name: "friday", Parts: []storm.Part{
		{Profile: rollout, Seed: 1},
		{Profile: loss, Seed: 2, Start: 20 * time.Second},
	}}.Set()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range set.Storms {
		fmt.Println(s.Name, s.Initial)
	}
	// Output:
	// friday 1050
	// friday-endpointslices 5
	// friday-nodes 5
	// friday-leases 5
}
