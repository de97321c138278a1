package delivery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// Format is the version of parcels that this package writes.
const Format = 1

const (
	// magic begins a parcel; its format, the checksum of what follows the line, and a
	// line break come after it.
	magic = "watchlab-shard "
	// maxHeader and maxContents bound what is believed of a parcel's sizes.
	maxHeader   = 64 << 10
	maxContents = 1 << 30
	// idLength of a checksum's digits tell parcels apart.
	idLength = 16
)

// Header says what a parcel holds, without unpacking it.
type Header struct {
	Run string `json:"run"`

	Index   int    `json:"index"`
	Of      int    `json:"of"`
	Attempt int    `json:"attempt,omitempty"`
	Pod     string `json:"pod,omitempty"`
	Node    string `json:"node,omitempty"`

	Commit string `json:"commit"`

	Started  time.Time `json:"started"`
	Finished bool      `json:"finished"`

	Size int64 `json:"size"`
}

// Parcel is a result, packed.
type Parcel struct {
	Header

	Data []byte

	sum      string
	contents []byte
}

// ID tells a parcel from all others, those of other attempts of its shard included.
func (p Parcel) ID() string { return p.sum[:idLength] }

// contents is what is packed. Histograms have no place in the JSON form of a result:
// they stand in a list, in the order in which [histograms] comes by.
type contents struct {
	Shard      *lab.Shard `json:"shard"`
	Env        lab.Env    `json:"env"`
	Histograms []string   `json:"histograms"`
}

// Encode packs what a shard of a run measured. What follows from the rounds, the
// medians and pooled latencies of cells, is left out.
//
// O(n) in time and memory, n being the size of the result. Compressed, a round of a cell
// takes some four kilobytes (see docs/scale.md).
func Encode(run string, s *lab.Shard) (Parcel, error) {
	if s == nil || s.Outcome == nil {
		return Parcel{}, errors.New("a shard without an outcome can't be delivered")
	}
	sent := slim(*s)
	c := contents{Shard: &sent, Env: s.Outcome.Env}
	histograms(sent.Outcome, func(q *cell.Quantiles) { c.Histograms = append(c.Histograms, q.Histogram) })
	text, err := json.Marshal(c)
	if err != nil {
		return Parcel{}, fmt.Errorf("pack the result: %w", err)
	}
	o := s.Outcome
	head := Header{
		Run: run, Index: s.Index, Of: s.Of, Attempt: s.Attempt, Pod: s.Pod, Node: s.Node,
		Commit: o.Env.Revision(), Started: o.Started, Finished: o.Ended != nil && !o.Interrupted, Size: int64(len(text)),
	}
	header, err := json.Marshal(head)
	if err != nil {
		return Parcel{}, fmt.Errorf("pack the result: %w", err)
	}
	body := append(header, '\n')
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return Parcel{}, err
	}
	at := len(body)
	body = enc.EncodeAll(text, body)
	sum := checksum(body)
	data := fmt.Appendf(nil, "%s%d %s\n", magic, Format, sum)
	at += len(data)
	data = append(data, body...)
	return Parcel{Header: head, Data: data, sum: sum, contents: data[at:]}, nil
}

// slim copies a shard down to its cells, without what follows from their rounds.
func slim(s lab.Shard) lab.Shard {
	o := *s.Outcome
	o.Comparisons = append([]lab.ComparisonResult(nil), o.Comparisons...)
	for i := range o.Comparisons {
		c := &o.Comparisons[i]
		c.Cells = append([]lab.CellResult(nil), c.Cells...)
		for j := range c.Cells {
			c.Cells[j].Latency, c.Cells[j].Medians = nil, nil
			if len(c.Cells[j].Rounds) > 0 {
				// That of the median round.
				c.Cells[j].Lag = nil
			}
		}
	}
	s.Outcome = &o
	return s
}

// histograms comes by all distributions of an outcome.
func histograms(o *lab.Outcome, each func(*cell.Quantiles)) {
	for i := range o.Comparisons {
		for j := range o.Comparisons[i].Cells {
			c := &o.Comparisons[i].Cells[j]
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
}

// Decode reads a parcel and checks that it is whole, without unpacking it. The parcel
// keeps data. The error wraps [ErrParcel], and [ErrFormat] where it is of another
// version.
func Decode(data []byte) (Parcel, error) {
	line, body, ok := bytes.Cut(data[:min(len(data), maxHeader)], []byte("\n"))
	if !ok || !bytes.HasPrefix(line, []byte(magic)) {
		return Parcel{}, fmt.Errorf("%w: it doesn't begin with %q", ErrParcel, strings.TrimSpace(magic))
	}
	var format int
	var sum string
	if _, err := fmt.Sscanf(string(line[len(magic):]), "%d %64s", &format, &sum); err != nil {
		return Parcel{}, fmt.Errorf("%w: its first line is broken", ErrParcel)
	}
	if format != Format {
		return Parcel{}, fmt.Errorf("%w: %d, want %d", ErrFormat, format, Format)
	}
	header, _, ok := bytes.Cut(body, []byte("\n"))
	body = data[len(line)+1:]
	if !ok || checksum(body) != sum {
		return Parcel{}, fmt.Errorf("%w: its checksum is not that of its contents", ErrParcel)
	}
	p := Parcel{Data: data, sum: sum, contents: body[len(header)+1:]}
	if err := json.Unmarshal(header, &p.Header); err != nil {
		return Parcel{}, fmt.Errorf("%w: its header: %w", ErrParcel, err)
	}
	if p.Of < 1 || p.Index < 0 || p.Index >= p.Of || p.Size < 0 || p.Size > maxContents {
		return Parcel{}, fmt.Errorf("%w: its header tells of shard %d/%d with %d bytes", ErrParcel, p.Index, p.Of, p.Size)
	}
	return p, nil
}

// Shard unpacks the result. The error wraps [ErrParcel].
func (p Parcel) Shard() (*lab.Shard, error) {
	broken := func(err error) (*lab.Shard, error) {
		return nil, fmt.Errorf("%w: shard %d/%d: %w", ErrParcel, p.Index, p.Of, err)
	}
	dec, err := zstd.NewReader(bytes.NewReader(p.contents), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxContents))
	if err != nil {
		return broken(err)
	}
	defer dec.Close()
	text, err := io.ReadAll(io.LimitReader(dec, p.Size+1))
	if err != nil {
		return broken(err)
	}
	if int64(len(text)) != p.Size {
		return broken(fmt.Errorf("it is not of %d bytes", p.Size))
	}
	var c contents
	if err := json.Unmarshal(text, &c); err != nil {
		return broken(err)
	}
	if c.Shard == nil || c.Shard.Outcome == nil {
		return broken(errors.New("there is no outcome in it"))
	}
	c.Shard.Outcome.Env = c.Env
	at := 0
	histograms(c.Shard.Outcome, func(q *cell.Quantiles) {
		if at < len(c.Histograms) {
			q.Histogram = c.Histograms[at]
		}
		at++
	})
	if at != len(c.Histograms) {
		return broken(fmt.Errorf("it has %d histograms for %d distributions", len(c.Histograms), at))
	}
	return c.Shard, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
