package storm_test

import (
	"fmt"

	"watchlab/loadgen/storm"
)

// A storm of a profile, yielded event by event without being held in memory.
func ExampleGenerator() {
	p, err := storm.NewProfile("nodeloss")
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Resize(20, 0, 0) // the pods and the rates follow
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

// Two profiles at the same time, from YAML, as storms that pipelines can play.
func ExampleParse() {
	c, err := storm.Parse("friday.yaml", []byte(`
name: friday
profiles:
- profile: rollout
  seed: 1
  pods: 500
- profile: nodeloss
  seed: 2
  start: 20s
  nodes: 5
`), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := c.Set()
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
