//go:build !linux

package pace

func newPreciseClock() clock { return &timers{} }
