package program

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const defaultLogLimit = 64 << 20 // bytes

// logDelay is how long a log waits for a process that left the group and still holds the pipe.
const logDelay = time.Second

// boundedLog copies a pipe to a file. Beyond the limit it still reads, so that the program never blocks.
type boundedLog struct {
	in, out *os.File // of the pipe
	file    *os.File
	limit   int64 // bytes
	room    int64 // bytes up to the limit; negative after the cut
	broken  bool  // a write failed; that ends the log, not the program
	done    chan struct{}
}

func openLog(path string, limit int64) (*boundedLog, error) {
	l := &boundedLog{limit: cmp.Or(limit, defaultLogLimit), done: make(chan struct{})}
	var err error
	if l.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return nil, fmt.Errorf("log of the program: %w", err)
	}
	info, err := l.file.Stat()
	if err == nil {
		l.room = l.limit - info.Size()
		l.out, l.in, err = os.Pipe()
	}
	if err != nil {
		return nil, errors.Join(err, l.file.Close())
	}
	go func() {
		defer close(l.done)
		_, _ = io.Copy(l, l.out) // Ends with the program, or with the deadline of wait.
	}()
	return l, nil
}

// Write implements io.Writer. It never fails.
func (l *boundedLog) Write(p []byte) (int, error) {
	if l.room < 0 || l.broken {
		return len(p), nil
	}
	_, err := l.file.Write(p[:min(int64(len(p)), l.room)])
	l.broken = err != nil
	if l.room -= int64(len(p)); l.room < 0 {
		fmt.Fprintf(l.file, "\n(cut at %d bytes)\n", l.limit)
	}
	return len(p), nil
}

// started releases the end of the pipe that the program has now.
func (l *boundedLog) started() { _ = l.in.Close() }

// wait completes the log after the end of the program.
func (l *boundedLog) wait() {
	_ = l.out.SetReadDeadline(time.Now().Add(logDelay))
	<-l.done
	_, _ = l.out.Close(), l.file.Close()
}
