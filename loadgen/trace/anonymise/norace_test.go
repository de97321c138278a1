//go:build !race

package anonymise

// raced reports whether the race detector is enabled.
const raced = false
