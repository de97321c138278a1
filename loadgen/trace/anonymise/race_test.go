//go:build race

package anonymise

// raced is true where the race detector is on, under which a big recording
// takes a minute to decode.
const raced = true
