//go:build race

package anonymise

// raced reports whether the race detector is enabled. With it, decoding a large recording
// takes a minute.
const raced = true
