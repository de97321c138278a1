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
	"strconv"
	"sync"
)

const (
	// frameMark starts a frame: one part of a bundle, in one line of a log.
	frameMark = "watchlab-result "
	// maxLine is the largest line in bytes. Container runtimes split lines above 16 KiB
	// (CRI logging format).
	maxLine = 16 << 10
	// framePart is the number of bundle bytes in a frame. base64 expands them by 4/3.
	// The rest of the line is for the head of the frame and for a log prefix.
	framePart = 11_700
	// MaxLog is the largest bundle in a log, in bytes. The kubelet rotates a log at 10
	// MiB (containerLogMaxSize), and the API server returns only the last file. The
	// rest is for other output of the pod.
	MaxLog = 6 << 20
)

// Log writes a bundle as lines "watchlab-result RUN INDEX/OF ID PART/PARTS CRC BASE64".
// Each line is below 16 KiB and written at once, so that other output cannot split it.
// PART counts from 1. CRC is the hexadecimal CRC-32C of the part.
type Log struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLog returns a sink that writes to w.
func NewLog(w io.Writer) *Log { return &Log{w: w} }

// Upload implements [Sink]. The error wraps [ErrTooLarge] for a bundle above [MaxLog].
func (l *Log) Upload(ctx context.Context, p Bundle) error {
	if len(p.Data) > MaxLog {
		return fmt.Errorf("a result of %d bytes in a log: %w (allowed: %d; upload to dir=PATH or s3=URL)", len(p.Data), ErrTooLarge, MaxLog)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	parts := (len(p.Data) + framePart - 1) / framePart
	var line []byte
	for i := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := p.Data[i*framePart : min((i+1)*framePart, len(p.Data))]
		line = fmt.Appendf(line[:0], "%s%s %d/%d %s %d/%d %08x ", frameMark, p.Run, p.Index, p.Of, p.ID(), i+1, parts, crc32.Checksum(part, castagnoli))
		line = base64.StdEncoding.AppendEncode(line, part)
		line = append(line, '\n')
		if _, err := l.w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is a part of a bundle.
type frame struct {
	id, run                string
	index, of, part, parts int
	data                   []byte
}

// headForm matches the head of a frame, between the mark and the base64.
var headForm = regexp.MustCompile(`^([a-z0-9-]{1,63}) (\d{1,6})/(\d{1,6}) ([0-9a-f]{16}) (\d{1,6})/(\d{1,6}) ([0-9a-f]{8}) `)

// maxHead is longer than any match of headForm.
const maxHead = 160

// parseFrame finds the frame in a line. Timestamps, pod names and the JSON of Docker's
// logs may surround it. found is false if there is no frame. err describes a damaged
// frame.
func parseFrame(line []byte) (f frame, found bool, err error) {
	at := bytes.LastIndex(line, []byte(frameMark))
	if at < 0 {
		return frame{}, false, nil
	}
	line = line[at+len(frameMark):]
	m := headForm.FindSubmatch(line[:min(len(line), maxHead)])
	if m == nil {
		return frame{}, false, nil
	}
	number := func(text []byte) int {
		n, _ := strconv.Atoi(string(text)) // The form has six digits at most.
		return n
	}
	f = frame{run: string(m[1]), index: number(m[2]), of: number(m[3]), id: string(m[4]), part: number(m[5]), parts: number(m[6])}
	if f.part < 1 || f.part > f.parts || f.parts > MaxLog/framePart+1 {
		return f, true, fmt.Errorf("part %d of %d", f.part, f.parts)
	}
	line = line[len(m[0]):]
	if end := bytes.IndexFunc(line, notBase64); end >= 0 {
		line = line[:end]
	}
	f.data, err = base64.StdEncoding.DecodeString(string(line))
	if err != nil || fmt.Sprintf("%08x", crc32.Checksum(f.data, castagnoli)) != string(m[7]) {
		err = errors.New("its checksum is not that of its contents")
	}
	return f, true, err
}

func notBase64(c rune) bool {
	return (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '+' && c != '/' && c != '='
}

// assembly joins the parts of bundles. Parts may arrive in any order and repeatedly.
type assembly struct {
	// where is the name of the source, for [Damage].
	where string
	// bundles are keyed by ID; ids holds their order of appearance.
	bundles map[string]*assembled
	ids     []string
}

// assembled is a bundle in assembly.
type assembled struct {
	Header
	parts [][]byte // by number; nil while missing
	have  int      // number of present parts
	why   string   // damage of a part; empty for none
	done  bool     // all parts were present; parts is nil
}

func newAssembly(where string) *assembly {
	return &assembly{where: where, bundles: map[string]*assembled{}}
}

// bundle returns the bundle of a part, and creates it if needed.
func (a *assembly) bundle(id string, h Header, parts int) *assembled {
	p, ok := a.bundles[id]
	if !ok {
		p = &assembled{Header: h, parts: make([][]byte, parts)}
		a.bundles[id] = p
		a.ids = append(a.ids, id)
	}
	return p
}

// add adds a part. When all parts are present it returns the bytes of the bundle and
// true, once.
func (p *assembled) add(part int, data []byte, parts int) ([]byte, bool) {
	switch {
	case p.done:
		return nil, false
	case parts != len(p.parts):
		p.why = fmt.Sprintf("parts disagree on their number: %d, %d", len(p.parts), parts)
		return nil, false
	}
	if p.parts[part-1] == nil {
		p.parts[part-1] = data
		p.have++
	}
	if p.have < len(p.parts) {
		return nil, false
	}
	var whole []byte
	for _, part := range p.parts {
		whole = append(whole, part...)
	}
	p.parts, p.done = nil, true
	return whole, true
}

// damaged returns the incomplete bundles.
func (a *assembly) damaged() []Damage {
	var out []Damage
	for _, id := range a.ids {
		p := a.bundles[id]
		if p.done {
			continue
		}
		why := fmt.Sprintf("%d of %d parts are present", p.have, len(p.parts))
		if p.why != "" {
			why += "; " + p.why
		}
		out = append(out, Damage{Where: a.where, Of: p.Header, Why: why, id: id})
	}
	return out
}

// NamedLog is a log to read.
type NamedLog struct {
	Name string                                       // for [Damage]
	Open func(context.Context) (io.ReadCloser, error) // opens the log; the reader closes it
}

// Logs reads frames from logs: output of `kubectl logs`, log files of a node, or pod
// logs from the API server. All parts of a bundle must be in one log.
type Logs []NamedLog

// Read implements [Reader]. It reports an unreadable log as damage, unless ctx has ended.
func (l Logs) Read(ctx context.Context, run string, take func(Bundle) error) ([]Damage, error) {
	wanted := runs{asked: run}
	taken := map[string]bool{}
	var damaged []Damage
	for _, log := range l {
		if err := ctx.Err(); err != nil {
			return damaged, err
		}
		a := newAssembly(log.Name)
		var takeErr error
		err := log.lines(ctx, func(line []byte) bool {
			f, found, err := parseFrame(line)
			if !found || !wanted.wants(f.run) {
				return true
			}
			if takeErr = wanted.err(); takeErr != nil {
				return false
			}
			h := Header{Run: f.run, Index: f.index, Of: f.of}
			if err != nil {
				if f.part >= 1 && f.part <= f.parts && f.parts <= MaxLog/framePart+1 {
					a.bundle(f.id, h, f.parts).why = fmt.Sprintf("part %d: %v", f.part, err)
				}
				return true
			}
			p := a.bundle(f.id, h, f.parts)
			whole, ok := p.add(f.part, f.data, f.parts)
			if !ok || taken[f.id] {
				return true
			}
			bundle, err := Decode(whole)
			if err != nil {
				damaged = append(damaged, Damage{Where: log.Name, Of: h, Why: err.Error()})
				return true
			}
			taken[f.id] = true
			takeErr = take(bundle)
			return takeErr == nil
		})
		if takeErr != nil {
			return damaged, takeErr
		}
		damaged = append(damaged, a.damaged()...)
		if err != nil {
			if ctx.Err() != nil {
				return damaged, ctx.Err()
			}
			damaged = append(damaged, Damage{Where: log.Name, Of: unknown(), Why: err.Error()})
		}
	}
	return unrepaired(damaged, taken), nil
}

// lines calls each for every line until it returns false.
func (l NamedLog) lines(ctx context.Context, each func([]byte) bool) error {
	r, err := l.Open(ctx)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(r, 4*maxLine)
	for {
		line, err := in.ReadSlice('\n')
		// A line beyond the buffer is not a frame. A frame split across two buffers
		// fails its checksum.
		if len(line) > 0 && !each(line) {
			return r.Close()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(err, r.Close())
		}
	}
}
