package storm_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/watch"

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
	g, err := p.Generator(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	deleted := 0
	for s := (storm.Step{}); g.Next(&s); {
		if s.Type == watch.Deleted {
			deleted++
		}
	}
	fmt.Println(deleted, "pods are deleted of", p.Pods)
	// Output: 220 pods are deleted of 2200
}
