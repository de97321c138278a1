//go:build race

package trace

// raced reports whether the race detector is enabled. With it, decoding a large recording
// takes a minute.
const raced = true
