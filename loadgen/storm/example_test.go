package storm_test

import (
	"fmt"

	"watchlab/loadgen/storm"
)

// Yields a storm of a profile event by event, without holding it in memory.
func ExampleGenerator() {
	p, err := storm.NewProfile("nodeloss")
	if err != nil {
		fmt.Println(err)
		return
	}
	p.Resize(20, 0, 0) // the pods and the rates scale with the nodes
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

// Reads two profiles that play at the same time from YAML and returns them as storms.
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
