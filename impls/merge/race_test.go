//go:build race

package merge_test

// raced is true where the race detector is on, under which a big recording
// takes a minute to decode.
const raced = true
