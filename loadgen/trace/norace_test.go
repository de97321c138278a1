//go:build !race

package trace

// raced reports whether the race detector is enabled.
const raced = false
