package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	pacedMode = "paced"
	// pacedEvents is the number of events of a round. One is due every pacedPeriod.
	pacedEvents = 100
	pacedPeriod = time.Second / 20
	// pacedStamp is the annotation with the intended time of a write.
	pacedStamp = "watchlab.dev/n"
)

// changePaced writes events in an open loop: each write has an intended time, which does
// not depend on earlier answers. It returns the time from the intended time to the
// answer of each write, and the largest lag of a start.
func changePaced(ctx context.Context, client rest.Interface, object deliveryObject) (took []time.Duration, lag time.Duration) {
	took = make([]time.Duration, pacedEvents)
	lags := make([]time.Duration, pacedEvents)
	begin := time.Now().Add(pacedPeriod)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range deliveryWriters {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= pacedEvents {
					return
				}
				meant := begin.Add(time.Duration(i) * pacedPeriod)
				select {
				case <-time.After(time.Until(meant)):
				case <-ctx.Done():
					return
				}
				lags[i] = time.Since(meant)
				patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d-%d"}}}`, pacedStamp, meant.UnixNano(), i)
				// A failed write needs no handling here: the watchers time out.
				_ = client.Patch(types.MergePatchType).Namespace("default").Resource(object.resource).
					Name(fmt.Sprintf("delivery-%03d", i%deliveryObjects)).Body([]byte(patch)).Do(ctx).Error()
				took[i] = time.Since(meant)
			}
		})
	}
	wg.Wait()
	return took, slices.Max(lags)
}

// watchPaced opens a watch and returns the latency of each event, from the intended time
// of its write.
func watchPaced(ctx context.Context, client rest.Interface, object deliveryObject, encoding, version string, opened *sync.WaitGroup) ([]time.Duration, error) {
	once := sync.OnceFunc(opened.Done)
	defer once()
	stream, err := openWatch(ctx, client, object, encoding, version)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	once()
	in := bufio.NewReaderSize(stream, 256<<10)
	took := make([]time.Duration, 0, pacedEvents)
	for range pacedEvents {
		frame, err := readFrame(in, encoding)
		at := time.Now()
		if err != nil {
			return took, fmt.Errorf("a watch ended early: %w", err)
		}
		meant, err := stampOf(frame)
		if err != nil {
			return took, err
		}
		took = append(took, at.Sub(meant))
	}
	return took, nil
}

func readFrame(in *bufio.Reader, encoding string) ([]byte, error) {
	if encoding != runtime.ContentTypeProtobuf {
		return in.ReadBytes('\n')
	}
	var size [4]byte
	if _, err := io.ReadFull(in, size[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(in, frame)
	return frame, err
}

var errNoStamp = errors.New("an event has no stamp")

// stampOf finds the annotation in a frame without decoding, which would take longer than
// the measured latency. The annotation is plain text in JSON and in protobuf. Managed
// fields contain its name too, after "f:".
func stampOf(frame []byte) (time.Time, error) {
	for rest := frame; ; {
		i := bytes.Index(rest, []byte(pacedStamp))
		if i < 0 {
			return time.Time{}, errNoStamp
		}
		managed := bytes.HasSuffix(rest[:i], []byte("f:"))
		rest = rest[i+len(pacedStamp):]
		if managed {
			continue
		}
		isDigit := func(r rune) bool { return r >= '0' && r <= '9' }
		digits := rest[max(bytes.IndexFunc(rest, isDigit), 0):]
		if end := bytes.IndexByte(digits, '-'); end >= 0 {
			digits = digits[:end]
		}
		nanos, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return time.Time{}, fmt.Errorf("%w: %w", errNoStamp, err)
		}
		return time.Unix(0, nanos), nil
	}
}

// quantile returns the nearest-rank quantile in milliseconds.
func quantile(d []time.Duration, q float64) float64 {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	rank := int(math.Ceil(q*float64(len(d)))) - 1
	return float64(d[max(rank, 0)]) / 1e6
}

func TestStampOf(t *testing.T) {
	want := time.Unix(0, 1795303095123456789)
	for _, frame := range []string{
		`{"object":{"metadata":{"annotations":{"watchlab.dev/n":"1795303095123456789-7"},"managedFields":[{"f:watchlab.dev/n":{}}]}}}`,
		`{"object":{"metadata":{"managedFields":[{"f:watchlab.dev/n":{}}],"annotations":{"watchlab.dev/n":"1795303095123456789-7"}}}}`,
		"\x0a\x0ewatchlab.dev/n\x12\x151795303095123456789-7\x1a",
	} {
		if got, err := stampOf([]byte(frame)); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v", frame, got, err)
		}
	}
	for _, frame := range []string{"", `{"f:watchlab.dev/n":{}}`, `{"watchlab.dev/n":"soon-1"}`} {
		if got, err := stampOf([]byte(frame)); !errors.Is(err, errNoStamp) {
			t.Errorf("%q: %v, %v", frame, got, err)
		}
	}
}
