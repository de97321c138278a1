package store_test

import (
	"fmt"
	"log"
	"time"

	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"watchlab/impls/store"
)

func ExampleUndeltaStore() {
	push := func(list []any) { fmt.Println("push:", contents(list)) }
	u, err := store.NewUndeltaStore("clientgo", push, store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_ = u.Add(configMap("default/a", "1"))
	_ = u.Add(configMap("default/b", "2"))
	_ = u.Delete(configMap("default/a", "3"))
	// Output:
	// push: default/a@1
	// push: default/a@1 default/b@2
	// push: default/b@2
}

func ExampleExpirationCache() {
	clock := testingclock.NewFakeClock(time.Now())
	policy := &cache.TTLPolicy{TTL: time.Minute, Clock: clock}
	c, err := store.NewExpirationCache("clientgo", policy, clock, store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	_ = c.Add(configMap("default/a", "1"))
	clock.Step(40 * time.Second)
	_ = c.Add(configMap("default/b", "2"))
	clock.Step(40 * time.Second)
	fmt.Println(contents(c.List()))
	// Output: default/b@2
}
