package upload

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

const (
	format = 1 // version of the bundle format
	// magic starts the first line; the format and the checksum of the other lines follow.
	magic = "watchlab-bundle "
	// maxHeader and maxContents are the largest sizes in bytes that a reader accepts.
	maxHeader   = 64 << 10
	maxContents = 1 << 30
	// maxRatio limits the compression of contents above maxSmall. A result compresses about 10:1.
	maxRatio = 1000
	maxSmall = 16 << 20
	idLength = 16 // number of checksum digits in an ID
)

// Header describes the content of a bundle. It is readable without decompression.
type Header struct {
	Run string `json:"run"` // name of the run
	// Index, Of, Attempt, Pod and Node are those of the share; see [lab.Share].
	Index   int    `json:"index"`
	Of      int    `json:"of"`
	Attempt int    `json:"attempt,omitempty"`
	Pod     string `json:"pod,omitempty"`
	Node    string `json:"node,omitempty"`
	// Commit is the program's revision, with the suffix -dirty if its source was modified.
	Commit   string    `json:"commit"`
	Started  time.Time `json:"started"`  // start of the pod's run
	Finished bool      `json:"finished"` // false if the run was interrupted
	Size     int64     `json:"size"`     // size of the uncompressed contents in bytes
}

// Bundle is an encoded result.
type Bundle struct {
	Header
	Data []byte // whole bundle, including the header

	sum      string // hexadecimal SHA-256 of Data after the first line
	contents []byte // compressed part of Data
}

// ID identifies a bundle. Different attempts of one pod have different IDs.
func (p Bundle) ID() string { return p.sum[:idLength] }

// contents is the compressed part. The JSON form of a result lacks the histograms, which are in
// a list, in the order of [histograms].
type contents struct {
	Share      *lab.Share `json:"shard"`
	Env        lab.Env    `json:"env"`
	Histograms []string   `json:"histograms"`
}

// Encode encodes the result of a pod, without medians and pooled latencies, which are computed
// from the rounds. A round of a cell takes about 4 kB compressed (docs/scale.md).
func Encode(run string, s *lab.Share) (Bundle, error) {
	if s == nil || s.Outcome == nil {
		return Bundle{}, errors.New("a result without an outcome cannot be uploaded")
	}
	o := s.Outcome
	c := contents{Share: slim(*s), Env: o.Env}
	histograms(c.Share.Outcome, func(q *cell.Quantiles) { c.Histograms = append(c.Histograms, q.Histogram) })
	text, err := json.Marshal(c)
	if err != nil {
		return Bundle{}, fmt.Errorf("encode the result: %w", err)
	}
	return encode(Header{
		Run: run, Index: s.Index, Of: s.Of, Attempt: s.Attempt, Pod: s.Pod, Node: s.Node,
		Commit: o.Env.Revision(), Started: o.Started, Finished: o.Ended != nil && !o.Interrupted,
	}, text)
}

func encode(head Header, text []byte) (Bundle, error) {
	head.Size = int64(len(text))
	p := Bundle{Header: head}
	header, err := json.Marshal(p.Header)
	if err != nil {
		return Bundle{}, fmt.Errorf("encode the result: %w", err)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return Bundle{}, err
	}
	p.contents = enc.EncodeAll(text, nil)
	body := slices.Concat(header, []byte("\n"), p.contents)
	p.sum = checksum(body)
	p.Data = append(fmt.Appendf(nil, "%s%d %s\n", magic, format, p.sum), body...)
	return p, nil
}

// slim copies the result without withheld rounds and values that are computed from the rounds.
func slim(s lab.Share) *lab.Share {
	o := *s.Outcome
	o.Comparisons = slices.Clone(o.Comparisons)
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		c.Cells = slices.Clone(c.Cells)
		for j := range c.Cells {
			c.Cells[j].Latency, c.Cells[j].Medians, c.Cells[j].Withheld = nil, nil, nil
			if len(c.Cells[j].Rounds) > 0 {
				c.Cells[j].Lag = nil // that of the median round
			}
		}
	}
	s.Outcome = &o
	return &s
}

// histograms calls each for every histogram of an outcome, in a fixed order.
func histograms(o *lab.Outcome, each func(*cell.Quantiles)) {
	for _, c := range o.Cells() {
		if c.Lag != nil {
			each(&c.Lag.Quantiles)
		}
		for k := range c.Rounds {
			r := &c.Rounds[k].Result
			for l := range r.Latency {
				each(&r.Latency[l].Quantiles)
			}
			if r.Lag != nil {
				each(&r.Lag.Quantiles)
			}
		}
	}
}

// Decode parses a bundle and verifies its checksum without decompressing it. The bundle
// retains data. The error wraps [ErrBundle], and also [ErrFormat] for another format.
func Decode(data []byte) (Bundle, error) {
	line, body, ok := bytes.Cut(data[:min(len(data), maxHeader)], []byte("\n"))
	if !ok || !bytes.HasPrefix(line, []byte(magic)) {
		return Bundle{}, fmt.Errorf("%w: it doesn't begin with %q", ErrBundle, strings.TrimSpace(magic))
	}
	var version int
	var sum string
	if _, err := fmt.Sscanf(string(line[len(magic):]), "%d %64s", &version, &sum); err != nil {
		return Bundle{}, fmt.Errorf("%w: its first line is broken", ErrBundle)
	}
	if version != format {
		return Bundle{}, fmt.Errorf("%w: %d, want %d", ErrFormat, version, format)
	}
	header, _, ok := bytes.Cut(body, []byte("\n"))
	body = data[len(line)+1:]
	if !ok || checksum(body) != sum {
		return Bundle{}, fmt.Errorf("%w: its checksum is not that of its contents", ErrBundle)
	}
	p := Bundle{Data: data, sum: sum, contents: body[len(header)+1:]}
	if err := json.Unmarshal(header, &p.Header); err != nil {
		return Bundle{}, fmt.Errorf("%w: its header: %w", ErrBundle, err)
	}
	held := int64(len(p.contents))
	most := min(maxContents, held<<15, max(maxSmall, held*maxRatio)) // a block of zstd has at least 4 bytes, for at most 128 KiB
	if p.Of < 1 || p.Index < 0 || p.Index >= p.Of || p.Size < 0 || p.Size > most {
		return Bundle{}, fmt.Errorf("%w: invalid header: pod %d/%d, %d bytes", ErrBundle, p.Index, p.Of, p.Size)
	}
	return p, nil
}

func (p Bundle) broken(err error) error {
	return fmt.Errorf("%w: pod %d/%d: %w", ErrBundle, p.Index, p.Of, err)
}

func (p Bundle) decompress() ([]byte, error) {
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(p.Size, 1))))
	if err != nil {
		return nil, p.broken(err)
	}
	defer dec.Close()
	text, err := dec.DecodeAll(p.contents, nil)
	if err != nil {
		return nil, p.broken(err)
	}
	if int64(len(text)) != p.Size {
		return nil, p.broken(fmt.Errorf("it is not of %d bytes", p.Size))
	}
	return text, nil
}

// PodResult decompresses and decodes the result. The error wraps [ErrBundle].
func (p Bundle) PodResult() (*lab.Share, error) {
	text, err := p.decompress()
	if err != nil {
		return nil, err
	}
	var c contents
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, p.broken(err)
	}
	if c.Share == nil || c.Share.Outcome == nil {
		return nil, p.broken(errors.New("there is no outcome in it"))
	}
	c.Share.Outcome.Env = c.Env
	at := 0
	histograms(c.Share.Outcome, func(q *cell.Quantiles) {
		if at < len(c.Histograms) {
			q.Histogram = c.Histograms[at]
		}
		at++
	})
	if at != len(c.Histograms) {
		return nil, p.broken(fmt.Errorf("it has %d histograms for %d distributions", len(c.Histograms), at))
	}
	return c.Share, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
