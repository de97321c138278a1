//go:build !race

package anonymise

// raced is true where the race detector is on.
const raced = false
