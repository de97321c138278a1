package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/cell"
	"watchlab/bench/lab"
)

// fakeMaps are the ConfigMaps of a namespace, each on a page of its own.
type fakeMaps struct {
	items  []corev1.ConfigMap
	create func() error                    // nil for no failure
	list   func(continuation string) error // nil for no failure
}

func (f *fakeMaps) Create(_ context.Context, m *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	if f.create != nil {
		if err := f.create(); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(f.items, func(other corev1.ConfigMap) bool { return other.Name == m.Name }) {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("configmaps"), m.Name)
	}
	f.items = append(f.items, *m)
	return m, nil
}

func (f *fakeMaps) List(_ context.Context, opts metav1.ListOptions) (*corev1.ConfigMapList, error) {
	if f.list != nil {
		if err := f.list(opts.Continue); err != nil {
			return nil, err
		}
	}
	at := len(opts.Continue)
	page := &corev1.ConfigMapList{Items: f.items[min(at, len(f.items)):min(at+1, len(f.items))]}
	if at+1 < len(f.items) {
		page.Continue = strings.Repeat("o", at+1)
	}
	return page, nil
}

func (f *fakeMaps) upload(t testing.TB, shares ...*lab.Share) {
	t.Helper()
	for _, s := range shares {
		if _, err := (ConfigMaps{f}).Upload(t.Context(), "mine", s); err != nil {
			t.Fatal(err)
		}
	}
}

var began = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// recorded is a recorder's result with 1000 durations.
var recorded = func() cell.Result {
	rec := new(cell.Recorder)
	rec.Begin()
	rec.End()
	rec.Count(1000, 2000)
	for i := range 1000 {
		rec.Latency("intended→handled", time.Duration(i*i))
		rec.Lag(time.Duration(i), 0)
	}
	r, err := rec.Result()
	if err != nil {
		panic(err)
	}
	return r
}()

// podResult returns the result of one pod. Results of different attempts differ.
func podResult(index, of, attempt int) *lab.Share {
	ended, steal := began.Add(time.Minute), 0.0
	s := &lab.Share{
		Index: index, Of: of, Pod: fmt.Sprintf("mine-%d-%d", index, attempt), Node: "node-a", Attempt: attempt,
		Starts: []lab.Start{{Cell: "Queue/impl=a", Round: 1, Late: time.Duration(index), Absent: []int{}}},
	}
	r := recorded
	r.Elapsed = time.Second
	s.Outcome = &lab.Outcome{
		Format: lab.Format, Name: "mine", Started: began.Add(time.Duration(attempt) * time.Hour), Ended: &ended, Seed: 7, Rounds: 1,
		Env: lab.Env{
			Started: began, Build: lab.Build{Commit: "abc", Dirty: true}, GoVersion: "go1.26", CPU: "Some CPU", Cores: 2, StealShare: &steal,
			Args: []string{"pod"},
		},
		Comparisons: []lab.ComparisonResult{{
			Family: "queue", Title: "fakes", Input: "storm",
			Cells: []lab.CellResult{{
				Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "a"}}, Verdict: lab.Verdict{Status: lab.Valid},
				Rounds: []lab.Round{{Round: 1, Place: 1, Started: began, Took: time.Second, Result: r}},
			}, {
				Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "b"}, {Key: "rate", Value: "5"}},
				Verdict: lab.Verdict{Status: lab.Invalid, Cause: lab.CauseGenerator, Detail: "late"}, Lag: recorded.Lag,
			}},
		}},
	}
	return s
}

// largeResult returns a result that needs two ConfigMaps.
func largeResult(index, of int) *lab.Share {
	s := podResult(index, of, 0)
	rng := rand.New(rand.NewPCG(1, uint64(index)))
	noise := make([]byte, 3*partSize/2)
	for i := range noise {
		noise[i] = byte(' ' + 1 + rng.IntN(90))
	}
	s.Outcome.Env.Args = []string{string(noise)}
	return s
}

// TestResultRoundTrip: reading restores the encoded result, with histograms and environment but without the
// values computed from the rounds.
func TestResultRoundTrip(t *testing.T) {
	sent := podResult(2, 4, 1)
	c := &sent.Outcome.Comparisons[0].Cells[0]
	c.Medians, c.Latency, c.Lag = c.Samples().Summaries(), c.Rounds[0].Result.Latency, c.Rounds[0].Result.Lag
	maps := &fakeMaps{}
	maps.upload(t, sent)
	if len(c.Medians) == 0 || c.Lag == nil {
		t.Error("the upload changed the result")
	}
	c.Medians, c.Latency, c.Lag = nil, nil, nil
	bundles, _, err := ConfigMaps{maps}.read(t.Context(), "mine")
	if err != nil || len(bundles) != 1 {
		t.Fatalf("%d results, %v", len(bundles), err)
	}
	got, err := bundles[0].share()
	if diff := cmp.Diff(sent, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(lab.Outcome{})); diff != "" || err != nil {
		t.Errorf("%v (-sent +got):\n%s", err, diff)
	}
	for name, s := range map[string]*lab.Share{"no result": nil, "no outcome": {Of: 1}} {
		if _, err := (ConfigMaps{maps}).Upload(t.Context(), "mine", s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestReadResults: each complete result is found once, for any size and number of uploads; each other one is
// damaged.
func TestReadResults(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(maps []corev1.ConfigMap) []corev1.ConfigMap // that of pod 0, and the two of pod 1
		found   []string
		damaged string
	}{
		"all":       {func(m []corev1.ConfigMap) []corev1.ConfigMap { return m }, []string{"0/2#0", "1/2#0"}, ""},
		"any order": {func(m []corev1.ConfigMap) []corev1.ConfigMap { slices.Reverse(m); return m }, []string{"0/2#0", "1/2#0"}, ""},
		"a part":    {func(m []corev1.ConfigMap) []corev1.ConfigMap { return m[:2] }, []string{"0/2#0"}, "pod 1/2: 1 of 2 parts are present"},
		"a bit": {func(m []corev1.ConfigMap) []corev1.ConfigMap {
			m[2].BinaryData[dataKey][100] ^= 4
			return m
		}, []string{"0/2#0"}, "result-1"},
		"header": {func(m []corev1.ConfigMap) []corev1.ConfigMap {
			m[0].Annotations[partAnnotation] = strings.Replace(m[0].Annotations[partAnnotation], "abc", "abd", 1)
			return m
		}, []string{"1/2#0"}, "its checksum is not that of its contents"},
		"annotation": {func(m []corev1.ConfigMap) []corev1.ConfigMap {
			m[0].Annotations[partAnnotation] = "{"
			return m
		}, []string{"1/2#0"}, "annotation watchlab.dev/part"},
	} {
		t.Run(name, func(t *testing.T) {
			maps := &fakeMaps{}
			maps.upload(t, podResult(0, 2, 0), podResult(0, 2, 0), largeResult(1, 2))
			if len(maps.items) != 3 {
				t.Fatalf("%d ConfigMaps", len(maps.items))
			}
			maps.items = tc.change(maps.items)
			var pages, found []string
			maps.list = func(continuation string) error {
				pages = append(pages, continuation)
				if continuation != "o" || slices.Contains(pages[:len(pages)-1], "o") {
					return nil
				}
				err := apierrors.NewResourceExpired("the continue token is too old")
				err.ErrStatus.Continue = "n"
				return err
			}
			bundles, damaged, err := ConfigMaps{maps}.read(t.Context(), "mine")
			for _, b := range bundles {
				found = append(found, fmt.Sprintf("%d/%d#%d", b.Index, b.Of, b.Number))
				_, failed := b.share()
				err = errors.Join(err, failed)
			}
			slices.Sort(found)
			if err != nil || !slices.Equal(found, tc.found) || (tc.damaged != "") != (len(damaged) == 1) || tc.damaged != "" && !strings.Contains(damaged[0], tc.damaged) {
				t.Errorf("found %q, damaged %q, %v", found, damaged, err)
			}
			if !slices.Equal(pages[:3], []string{"", "o", "n"}) {
				t.Errorf("pages %q", pages)
			}
		})
	}
}

// TestUploadRetries: temporary errors are retried until the context ends; permanent ones are returned at once.
func TestUploadRetries(t *testing.T) {
	resource := corev1.Resource("configmaps")
	for name, tc := range map[string]struct {
		err   error
		times int
		limit time.Duration
		tries int
		says  string
	}{
		"busy":         {apierrors.NewTooManyRequests("slow down", 0), 3, time.Hour, 4, ""},
		"no server":    {errors.New("connection refused"), 10, time.Hour, 11, ""},
		"never":        {errors.New("connection refused"), 1 << 20, time.Minute, 0, "connection refused"},
		"forbidden":    {apierrors.NewForbidden(resource, "x", errors.New("no right")), 1, time.Hour, 1, "no right"},
		"too large":    {apierrors.NewRequestEntityTooLargeError("limit is 1"), 1, time.Hour, 1, "limit is 1"},
		"there before": {apierrors.NewAlreadyExists(resource, "x"), 1, time.Hour, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				maps := &fakeMaps{create: func() error {
					if tries++; tries <= tc.times {
						return tc.err
					}
					return nil
				}}
				ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
				defer cancel()
				_, err := ConfigMaps{maps}.Upload(ctx, "mine", podResult(0, 1, 0))
				if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || tc.tries > 0 && tries != tc.tries {
					t.Errorf("%d tries, error %v", tries, err)
				}
			})
		})
	}
}

// TestCollect: Collect merges one attempt per pod.
func TestCollect(t *testing.T) {
	other := podResult(1, 2, 0)
	other.Outcome.Env.Commit = "def"
	for name, tc := range map[string]struct {
		shares []*lab.Share
		want   error
		says   string
	}{
		"all":           {[]*lab.Share{podResult(0, 2, 0), podResult(0, 2, 1), podResult(1, 2, 0)}, nil, ""},
		"nothing":       {nil, ErrNoResult, ""},
		"mixed commits": {[]*lab.Share{podResult(0, 2, 0), other}, lab.ErrShares, `"def-dirty"`},
		"other numbers": {[]*lab.Share{podResult(0, 3, 0)}, lab.ErrShares, "pod 0 belongs to 3"},
	} {
		maps := &fakeMaps{}
		maps.upload(t, tc.shares...)
		o, _, err := ConfigMaps{maps}.Collect(t.Context(), "mine", 2, lab.MergeOptions{})
		if !errors.Is(err, tc.want) || err != nil && !strings.Contains(err.Error(), tc.says) || (o != nil) != (err == nil) {
			t.Errorf("%s: error %v", name, err)
		}
		if err != nil {
			continue
		}
		m := o.Merged
		if len(m.Shares) != 2 || m.Shares[0].Attempt != 0 {
			t.Errorf("%+v", m)
		}
		if r := o.Comparisons[0].Cells[0].Rounds; len(r) != 1 || r[0].Result.EventsIn != 2000 {
			t.Errorf("%+v", r)
		}
	}
}

// minimal is the content of a bundle.
const minimal = `{"share":{"index":0,"of":2,"outcome":{"format":%d,"name":"x","comparisons":[{"family":"queue","cells":[` +
	`{"name":"Queue","labels":[{"key":"impl","value":"a"}],"verdict":{"status":"valid"},"rounds":[{"round":1,"result":{"events":10,"elapsedNs":5,` +
	`"latency":[{"boundary":"a→b","count":0,"histogram":"x"}]}}]}]}]}},"env":{}}`

// FuzzContents: the contents of a bundle with the right checksum are a result that can be merged with another, or
// an error.
func FuzzContents(f *testing.F) {
	f.Add(fmt.Appendf(nil, minimal, lab.Format))
	f.Add([]byte(`{"share":{"index":0,"of":2,"outcome":{"comparisons":[{"cells":[{},{}]},{}]}}}`))
	f.Add([]byte(`{"share":{"outcome":{"comparisons":[{"cells":[{"rounds":[{"round":-1},{"round":-1}],"lag":{}}]}]}}}`))
	f.Add([]byte("null"))
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		var shares []*lab.Share
		for i := range 2 {
			s, err := bundle{header{lab.Attempt{Index: i, Of: 2}, int64(len(text))}, enc.EncodeAll(text, nil)}.share()
			if err != nil {
				if !errors.Is(err, errBundle) {
					t.Fatal(err)
				}
				return
			}
			s.Index = i
			shares = append(shares, s)
		}
		o, err := lab.Merge([]lab.Attempt{{Index: 0}, {Index: 1}}, func(i int) (*lab.Share, error) { return shares[i], nil }, lab.MergeOptions{})
		if err == nil {
			_ = errors.Join(lab.EncodeJSON(io.Discard, o), o.WriteBench(io.Discard))
		}
	})
}

// FuzzPart: a ConfigMap is a part of a bundle, of bounded size, or not.
func FuzzPart(f *testing.F) {
	f.Add(`{"index":0,"of":2,"id":"x","number":1,"parts":3}`)
	f.Add(`{"index":-1,"number":9223372036854775807,"parts":9223372036854775807}`)
	f.Add(`{"parts":0}`)
	f.Fuzz(func(t *testing.T, annotation string) {
		p, err := partOf(metav1.ObjectMeta{Annotations: map[string]string{partAnnotation: annotation}})
		if err != nil && !errors.Is(err, errBundle) || err == nil && (p.Number < 1 || p.Number > p.Parts || p.Parts > maxParts) {
			t.Fatalf("%+v, %v", p, err)
		}
	})
}

// allocated returns the bytes that f allocates.
func allocated(f func()) uint64 {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	f()
	goruntime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// TestHostile: a bundle that promises more than it has does not allocate it.
func TestHostile(t *testing.T) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	small, bomb := enc.EncodeAll([]byte("{}"), nil), enc.EncodeAll(make([]byte, 64<<20), nil)
	for name, tc := range map[string]struct {
		size int64
		data []byte
		most uint64
	}{
		"a size above the limit": {maxContents + 1, small, 1 << 20},
		"a size without data":    {maxSmall, small, 1 << 20},
		"a bomb":                 {64 << 20, bomb, 1 << 20},
		"a bomb, small by name":  {10, bomb, 4 << 20},
		// A single segment of 2^24 bytes, and an empty last block.
		"a frame of zstd that says it has 16 MiB": {16 << 20, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 1, 1, 0, 0}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			n := allocated(func() { _, err = bundle{header{lab.Attempt{Of: 1}, tc.size}, tc.data}.share() })
			if !errors.Is(err, errBundle) || n > tc.most {
				t.Errorf("%d bytes allocated for %d: %v", n, len(tc.data), err)
			}
		})
	}
}
