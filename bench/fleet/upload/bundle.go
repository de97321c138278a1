package upload

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

const (
	// maxContents is the largest uncompressed result in bytes, a hundred thousand rounds of cells.
	maxContents = 1 << 30
	// maxRatio limits the compression of contents above maxSmall. A result compresses about 10:1.
	maxRatio = 1000
	maxSmall = 16 << 20
)

// Header describes a bundle. It is readable without decompression.
type Header struct {
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

// check limits what a decoder allocates for contents of n bytes.
func (h Header) check(n int) error {
	held := int64(n)
	most := min(maxContents, held<<15, max(maxSmall, held*maxRatio)) // a block of zstd has at least 4 bytes, for at most 128 KiB
	if h.Of < 1 || h.Index < 0 || h.Index >= h.Of || h.Size < 0 || h.Size > most {
		return fmt.Errorf("%w: invalid header: pod %d/%d, %d bytes", ErrBundle, h.Index, h.Of, h.Size)
	}
	return nil
}

// Bundle is an encoded result.
type Bundle struct {
	Header
	contents []byte // compressed
}

// Len returns the number of bytes to upload.
func (b Bundle) Len() int { return len(b.contents) }

// id identifies a bundle: the start of the checksum of header and contents.
func (b Bundle) id() (string, error) {
	header, err := json.Marshal(b.Header)
	sum := sha256.Sum256(append(header, b.contents...))
	return hex.EncodeToString(sum[:8]), err
}

// contents is the compressed part. The JSON form of a result lacks the histograms, which are in
// a list, in the order of [histograms].
type contents struct {
	Share      *lab.Share `json:"shard"`
	Env        lab.Env    `json:"env"`
	Histograms []string   `json:"histograms"`
}

// Encode encodes the result of a pod, without medians and pooled latencies, which are computed
// from the rounds.
func Encode(s *lab.Share) (Bundle, error) {
	if s == nil || s.Outcome == nil {
		return Bundle{}, errors.New("a result without an outcome cannot be uploaded")
	}
	o := s.Outcome
	c := contents{Share: slim(*s), Env: o.Env}
	histograms(c.Share.Outcome, func(q *cell.Quantiles) { c.Histograms = append(c.Histograms, q.Histogram) })
	text, err := json.Marshal(c)
	enc, encErr := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err := cmp.Or(err, encErr); err != nil {
		return Bundle{}, fmt.Errorf("encode the result: %w", err)
	}
	return Bundle{Header{
		Index: s.Index, Of: s.Of, Attempt: s.Attempt, Pod: s.Pod, Node: s.Node,
		Commit: o.Env.Revision(), Started: o.Started.UTC(), Finished: o.Ended != nil && !o.Interrupted, Size: int64(len(text)),
	}, enc.EncodeAll(text, nil)}, nil
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

// Share decodes the result. The error wraps [ErrBundle].
func (b Bundle) Share() (*lab.Share, error) {
	s, err := b.decode()
	if err != nil {
		return nil, fmt.Errorf("%w: pod %d/%d: %w", ErrBundle, b.Index, b.Of, err)
	}
	return s, nil
}

func (b Bundle) decode() (*lab.Share, error) {
	if err := b.check(len(b.contents)); err != nil {
		return nil, err
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(max(b.Size, 1))))
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	text, err := dec.DecodeAll(b.contents, nil)
	if err != nil {
		return nil, err
	}
	var c contents
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	switch {
	case int64(len(text)) != b.Size:
		return nil, fmt.Errorf("it has %d bytes, not %d", len(text), b.Size)
	case c.Share == nil || c.Share.Outcome == nil:
		return nil, errors.New("there is no outcome in it")
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
		return nil, fmt.Errorf("it has %d histograms for %d distributions", len(c.Histograms), at)
	}
	return c.Share, nil
}
