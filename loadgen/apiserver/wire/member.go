package wire

import (
	"bytes"
	"compress/gzip"
	"io"
	"sync"
)

// members are writers of the level of k8s.io/apiserver v0.37. Each holds some 800 kB.
var members = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails for an unknown level
	return z
}}

// Member is a gzip member as k8s.io/apiserver v0.37.2 writes one for each flush of a watch
// (pkg/endpoints/handlers/watch.go, perFlushGzipWriter). The zero value is not usable; see [NewMember].
type Member struct{ *gzip.Writer }

// NewMember begins a member.
func NewMember(w io.Writer) *Member {
	z := members.Get().(*gzip.Writer)
	z.Reset(w)
	return &Member{z}
}

// Close ends the member. Flush says that its bytes are flushed before, as those of a watch are. The member must not
// be used afterwards.
func (m *Member) Close(flush bool) error {
	var err error
	if flush {
		err = m.Flush()
	}
	if err == nil {
		err = m.Writer.Close()
	}
	m.Reset(io.Discard)
	members.Put(m.Writer)
	return err
}

// AppendMember appends data as a flushed member. O(bytes).
func AppendMember(dst, data []byte) []byte {
	out := bytes.NewBuffer(dst)
	m := NewMember(out)
	_, _ = m.Write(data) // a buffer takes all
	_ = m.Close(true)
	return out.Bytes()
}
