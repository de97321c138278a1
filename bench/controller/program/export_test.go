package program

var Parse = parse

// CutLogs cuts logs at a size. It returns a function that restores the limit.
func CutLogs(size int64) (restore func()) {
	old := logLimit
	logLimit = size
	return func() { logLimit = old }
}
