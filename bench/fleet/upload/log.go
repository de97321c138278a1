package upload

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"slices"
	"strconv"
)

const (
	frameMark = "watchlab-result " // starts a frame: one part of a bundle, in one line of a log
	maxLine   = 16 << 10           // bytes; container runtimes split longer ones (CRI logging format)
	// framePart is the number of bundle bytes in a frame. base64 expands them by 4/3; the rest is
	// for the head of the frame and a log prefix.
	framePart = 11_700
	// MaxLog is the largest bundle in a log, in bytes. The kubelet rotates a log at 10 MiB, and
	// the API server returns only the last file. The rest is for other output of the pod.
	MaxLog = 6 << 20
)

// Log writes a bundle as lines "watchlab-result RUN INDEX/OF ID PART/PARTS CRC BASE64".
// Each line is below 16 KiB and written at once, so that other output cannot split it.
// PART counts from 1. CRC is the hexadecimal CRC-32C of the part.
type Log struct{ io.Writer }

// Upload implements [Sink]. The error wraps [ErrTooLarge] for a bundle above [MaxLog].
func (l Log) Upload(ctx context.Context, p Bundle) error {
	if len(p.Data) > MaxLog {
		return fmt.Errorf("a result of %d bytes in a log: %w (allowed: %d; upload to configmap or dir=PATH)", len(p.Data), ErrTooLarge, MaxLog)
	}
	parts := slices.Collect(slices.Chunk(p.Data, framePart))
	var line []byte
	for i, part := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		line = fmt.Appendf(line[:0], "%s%s %d/%d %s %d/%d %08x ", frameMark, p.Run, p.Index, p.Of, p.ID(), i+1, len(parts), crc32.Checksum(part, castagnoli))
		line = append(base64.StdEncoding.AppendEncode(line, part), '\n')
		if _, err := l.Write(line); err != nil {
			return err
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// headForm matches the head of a frame, between the mark and the base64: at most maxHead bytes.
var headForm = regexp.MustCompile(`^([a-z0-9-]{1,63}) (\d{1,6})/(\d{1,6}) ([0-9a-f]{16}) (\d{1,6})/(\d{1,6}) ([0-9a-f]{8}) `)

const maxHead = 160

// parseFrame finds the frame in a line, which timestamps, pod names and the JSON of Docker's logs
// may surround. ok is false without a frame. damage describes a damaged one.
func parseFrame(line []byte) (p part, ok bool, damage error) {
	at := bytes.LastIndex(line, []byte(frameMark))
	if at < 0 {
		return part{}, false, nil
	}
	line = line[at+len(frameMark):]
	m := headForm.FindSubmatch(line[:min(len(line), maxHead)])
	if m == nil {
		return part{}, false, nil
	}
	number := func(i int) int {
		n, _ := strconv.Atoi(string(m[i])) // The form has six digits at most.
		return n
	}
	p = part{
		Header: Header{Run: string(m[1]), Index: number(2), Of: number(3)},
		id:     string(m[4]), number: number(5), parts: number(6),
	}
	if p.number < 1 || p.number > p.parts || p.parts > MaxLog/framePart+1 {
		return part{}, false, nil
	}
	text := line[len(m[0]):]
	if end := bytes.IndexAny(text, " \t\r\n\"\\"); end >= 0 {
		text = text[:end]
	}
	p.data, damage = base64.StdEncoding.AppendDecode(nil, text)
	if damage != nil || fmt.Sprintf("%08x", crc32.Checksum(p.data, castagnoli)) != string(m[7]) {
		damage = errors.New("its checksum is not that of its contents")
	}
	return p, true, damage
}

// NamedLog is one of [Logs].
type NamedLog struct {
	Name string                                       // for [Damage]
	Open func(context.Context) (io.ReadCloser, error) // opens the log; the reader closes it
}

// Logs reads frames from output of `kubectl logs`, log files of a node, or pod logs from the API
// server. All parts of a bundle must be in one log.
type Logs []NamedLog

// Read implements [Reader]. It reports an unreadable log as damage, unless ctx has ended.
func (l Logs) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	r := newReceiver(run, take)
	for _, log := range l {
		unreadable, err := log.read(ctx, r)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return r.unrepaired(), err
		}
		if unreadable != nil {
			r.damaged(log.Name, unreadable)
		}
		r.end(log.Name)
	}
	return r.unrepaired(), nil
}

// read passes the frames of a log to r. err is an error of r.
func (l NamedLog) read(ctx context.Context, r *receiver) (unreadable, err error) {
	log, err := l.Open(ctx)
	if err != nil {
		return err, nil
	}
	defer func() { _ = log.Close() }() // The log was only read.
	in := bufio.NewReaderSize(log, 4*maxLine)
	for {
		line, err := in.ReadSlice('\n')
		// A line beyond the buffer is not a frame. A frame split across two buffers
		// fails its checksum.
		if p, ok, damage := parseFrame(line); ok {
			if err := r.part(p, damage); err != nil {
				return nil, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil, nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return err, nil
		}
	}
}
