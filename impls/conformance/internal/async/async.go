// Package async lets a check look whether a call that may block has returned.
package async

// Go calls f in a goroutine. The result tells what f returned, and whether it
// has; it is told once.
func Go(f func() error) (result func() (err error, returned bool)) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() (error, bool) {
		select {
		case err := <-done:
			return err, true
		default:
			return nil, false
		}
	}
}
