package keys

import (
	"fmt"

	"watchlab/impls"
	"watchlab/impls/internal/ring"
)

// CheckSizes checks the capacity of a queue, of which 0 means unbounded, and its number of shards, of
// which 0 means the variant's default. An unbounded variant allows no other capacity. The error wraps
// [impls.ErrOptions].
func CheckSizes(capacity int, bounded bool, shards, maxShards int) error {
	var says string
	switch {
	case capacity < 0:
		says = fmt.Sprintf("Capacity %d is negative (0 means unbounded)", capacity)
	case capacity > 0 && !bounded:
		says = fmt.Sprintf("Capacity %d: this variant is unbounded (allowed: 0)", capacity)
	case capacity > ring.MaxCapacity:
		says = fmt.Sprintf("Capacity %d is too large (allowed: 0 to %d)", capacity, ring.MaxCapacity)
	case shards < 0:
		says = fmt.Sprintf("Shards %d is negative (0 leaves it to the variant)", shards)
	case shards > maxShards && maxShards == 1:
		says = fmt.Sprintf("Shards %d: this variant has one part (allowed: 0, 1)", shards)
	case shards > maxShards:
		says = fmt.Sprintf("Shards %d is too large (allowed: 0 to %d)", shards, maxShards)
	default:
		return nil
	}
	return fmt.Errorf("%w: %s", impls.ErrOptions, says)
}
