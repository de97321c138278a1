package delivery

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
	// frameMark begins a frame: a part of a parcel on a line of a log.
	frameMark = "watchlab-result "
	// maxLine is how long a line of a container's log may be: above 16 KiB, container
	// runtimes write it as several (the CRI's logging format).
	maxLine = 16 << 10
	// framePart of a parcel's bytes go into one frame. As base64 they take 4/3 of
	// that; what is left of the line is for what stands before them, and for a prefix
	// that a log's reader may add.
	framePart = 11_700
	// MaxLog is the largest parcel that goes into a log. The kubelet begins another
	// file at 10 MiB (containerLogMaxSize), and the API server returns the last one
	// only: the frames, and what else the pod has to say, have to fit.
	MaxLog = 6 << 20
)

// Log writes parcels as lines: "watchlab-result RUN INDEX/OF ID PART/PARTS CRC BASE64",
// each below 16 KiB and in a single write, so that lines of others stand between, not
// within. PART counts from 1, CRC is CRC-32C of the part's bytes in hexadecimal.
type Log struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLog returns the sink for lines that go to w.
func NewLog(w io.Writer) *Log { return &Log{w: w} }

// Deliver implements [Sink]. The error wraps [ErrTooLarge] above [MaxLog].
func (l *Log) Deliver(ctx context.Context, p Parcel) error {
	if len(p.Data) > MaxLog {
		return fmt.Errorf("a result of %d bytes in a log: %w (allowed: %d; deliver to dir=PATH or s3=URL)", len(p.Data), ErrTooLarge, MaxLog)
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

// frame is a part of a parcel.
type frame struct {
	id, run                string
	index, of, part, parts int
	data                   []byte
}

// headForm is what stands between the mark and the base64.
var headForm = regexp.MustCompile(`^([a-z0-9-]{1,63}) (\d{1,6})/(\d{1,6}) ([0-9a-f]{16}) (\d{1,6})/(\d{1,6}) ([0-9a-f]{8}) `)

// maxHead is longer than what headForm finds.
const maxHead = 160

// parseFrame reads a line, wherever the frame stands in it: behind a time, a pod's name,
// or within the JSON of Docker's log files. found is false where there is none, and err
// says what is wrong with one.
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
		n, _ := strconv.Atoi(string(text))
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

// assembly puts parcels together from parts that come in any order, any number of
// times.
type assembly struct {
	where string

	parcels map[string]*assembled
	ids     []string
}

type assembled struct {
	Header
	parts [][]byte
	have  int
	why   string
	done  bool
}

func newAssembly(where string) *assembly {
	return &assembly{where: where, parcels: map[string]*assembled{}}
}

// of returns the parcel that a part belongs to.
func (a *assembly) of(id string, h Header, parts int) *assembled {
	p, ok := a.parcels[id]
	if !ok {
		p = &assembled{Header: h, parts: make([][]byte, parts)}
		a.parcels[id] = p
		a.ids = append(a.ids, id)
	}
	return p
}

// add takes a part in, and returns the parcel's bytes once all are there: true once.
func (p *assembled) add(part int, data []byte, parts int) ([]byte, bool) {
	switch {
	case p.done:
		return nil, false
	case parts != len(p.parts):
		p.why = fmt.Sprintf("it is said to have %d parts, and %d", len(p.parts), parts)
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

// damaged are the parcels that have not come whole.
func (a *assembly) damaged() []Damage {
	var out []Damage
	for _, id := range a.ids {
		p := a.parcels[id]
		if p.done {
			continue
		}
		why := fmt.Sprintf("%d of %d parts are there", p.have, len(p.parts))
		if p.why != "" {
			why += "; " + p.why
		}
		out = append(out, Damage{Where: a.where, Of: p.Header, Why: why, id: id})
	}
	return out
}

// NamedLog is a log to read.
type NamedLog struct {
	Name string
	Open func(context.Context) (io.ReadCloser, error)
}

// Logs reads the frames of logs: files of `kubectl logs`, the node's own files, or what
// the API server has of pods. A parcel has to be in one of them with all its parts.
type Logs []NamedLog

// Read implements [Reader]. A log that can't be read to its end is told of as damage,
// unless ctx has ended.
func (l Logs) Read(ctx context.Context, run string, take func(Parcel) error) ([]Damage, error) {
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
					a.of(f.id, h, f.parts).why = fmt.Sprintf("part %d: %v", f.part, err)
				}
				return true
			}
			p := a.of(f.id, h, f.parts)
			whole, ok := p.add(f.part, f.data, f.parts)
			if !ok || taken[f.id] {
				return true
			}
			parcel, err := Decode(whole)
			if err != nil {
				damaged = append(damaged, Damage{Where: log.Name, Of: h, Why: err.Error()})
				return true
			}
			taken[f.id] = true
			takeErr = take(parcel)
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

// lines calls each with the lines of a log, until it returns false.
func (l NamedLog) lines(ctx context.Context, each func([]byte) bool) error {
	r, err := l.Open(ctx)
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(r, 4*maxLine)
	for {
		line, err := in.ReadSlice('\n')
		// What is longer than the buffer is none of ours: its pieces are looked at one by
		// one, and a frame that lies across two of them is found to be broken.
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
