//go:build !linux

package pace

// Precise returns the most precise clock that does not spin: on this system, [Timers].
func Precise() Clock { return Timers() }
