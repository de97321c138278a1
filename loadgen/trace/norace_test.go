//go:build !race

package trace

// raced is true where the race detector is on.
const raced = false
