package apiserver

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// continueToken says where the next page of a list starts. The fields are
// those of a real server's.
type continueToken struct {
	Version         string `json:"v"`
	ResourceVersion uint64 `json:"rv"`
	// StartKey is the last key of the page before.
	StartKey string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

func (t continueToken) encode() (string, error) {
	b, err := json.Marshal(t)
	return base64.RawURLEncoding.EncodeToString(b), err
}

func decodeContinue(s string) (continueToken, error) {
	var t continueToken
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, &t)
	}
	if err == nil && (t.Version != continueVersion || t.StartKey == "") {
		err = errContinue
	}
	if err != nil {
		return t, apierrors.NewBadRequest(fmt.Sprintf("%v: %v", errContinue, err))
	}
	return t, nil
}

// page is one page of a list.
type page struct {
	meta metav1.ListMeta
	// items are indexes of events.
	items []int32
}

// pageOf finds what a list request is to be answered with.
func (s *Server) pageOf(q *query) (page, error) {
	version, match, after := q.opts.ResourceVersion, q.opts.ResourceVersionMatch, ""
	limit := int(min(q.opts.Limit, 1<<30))
	if q.opts.Continue != "" {
		token, err := decodeContinue(q.opts.Continue)
		if err != nil {
			return page{}, err
		}
		version, match, after = strconv.FormatUint(token.ResourceVersion, 10), metav1.ResourceVersionMatchExact, token.StartKey
	} else if version == "0" {
		// Any state will do: a real server answers from its watch cache,
		// which has no pages.
		limit = 0
	}
	at, err := s.stream.ListAt(version, match)
	if err != nil {
		return page{}, err
	}
	p := page{meta: metav1.ListMeta{ResourceVersion: strconv.FormatUint(at, 10)}}
	var remaining int64
	for _, i := range s.stream.State(at) {
		e := &s.storm.Events[i]
		if e.Key <= after || !q.filter.matches(e.Object) {
			continue
		}
		if limit > 0 && len(p.items) == limit {
			remaining++
			continue
		}
		p.items = append(p.items, i)
	}
	if remaining == 0 {
		return p, nil
	}
	last := s.storm.Events[p.items[len(p.items)-1]].Key
	p.meta.Continue, err = continueToken{Version: continueVersion, ResourceVersion: at, StartKey: last}.encode()
	if !q.filter.selects() {
		p.meta.RemainingItemCount = &remaining
	}
	return p, err
}

// list serves a collection.
func (s *Server) list(w http.ResponseWriter, q *query) error {
	p, err := s.pageOf(q)
	if err != nil {
		return err
	}
	kind := s.storm.Kind
	kind.Kind += "List"
	head, err := encodeTypeMeta(kind)
	if err != nil {
		return err
	}
	meta, err := json.Marshal(p.meta)
	if err != nil {
		return err
	}
	s.lists.Add(1)
	if q.opts.Continue == "" {
		s.snapshots.Add(1)
	}
	w.Header().Set("Content-Type", contentJSON)
	// Where this fails, the client is gone, and there is nobody to tell.
	_ = s.writePage(w, head, meta, p.items)
	return nil
}

// writePage writes a list from what it begins with, its metadata and the
// indexes of the events that its items come from.
func (s *Server) writePage(w io.Writer, head, meta []byte, items []int32) error {
	// A failed write sticks to the buffer.
	out := bufio.NewWriterSize(w, 64<<10)
	_, _ = out.Write(head)
	_, _ = out.WriteString(`,"metadata":`)
	_, _ = out.Write(meta)
	_, _ = out.WriteString(`,"items":[`)
	for n, i := range items {
		if n > 0 {
			_ = out.WriteByte(',')
		}
		_ = out.WriteByte('{')
		if _, err := out.Write(s.frames.bare(i, s.storm.Events[i].Type)); err != nil {
			return err
		}
	}
	_, _ = out.WriteString("]}\n")
	return out.Flush()
}
