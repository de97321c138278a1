package upload_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"watchlab/bench/cell"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var began = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)

// result is a recorder's result with 1000 durations.
var result = func() cell.Result {
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
		Index: index, Of: of, Pod: fmt.Sprintf("mine-%d-%d", index, attempt), Node: "node-a", Attempt: attempt, Whole: []string{"whole"},
		Starts: []lab.Start{{Cell: "Queue/impl=a", Round: 1, Late: time.Duration(index), Absent: []int{}}},
	}
	r := result
	r.Elapsed = time.Second
	s.Outcome = &lab.Outcome{
		Format: lab.Format, Name: "mine", Started: began.Add(time.Duration(attempt) * time.Hour), Ended: &ended, Seed: 7, Rounds: 1,
		Env: lab.Env{
			Started: began, Build: lab.Build{Commit: "abc", Dirty: true}, GoVersion: "go1.26", CPU: "Some CPU", Cores: 2, StealShare: &steal,
			Args: []string{"pod"},
		},
		Comparisons: []lab.ComparisonResult{{
			Family: "queue", Title: "fakes", Input: fmt.Sprint("part ", index),
			Cells: []lab.CellResult{{
				Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "a"}}, Verdict: lab.Verdict{Status: lab.Valid},
				Rounds: []lab.Round{{Round: 1, Place: 1, Started: began, Took: time.Second, Result: r}},
			}, {
				Name: "Queue", Labels: []lab.Label{{Key: "impl", Value: "b"}, {Key: "rate", Value: "5"}},
				Verdict: lab.Verdict{Status: lab.Invalid, Cause: lab.CauseGenerator, Detail: "late"}, Lag: result.Lag,
			}},
		}},
	}
	return s
}

func bundle(t testing.TB, index, of, attempt int) upload.Bundle {
	t.Helper()
	p, err := upload.Encode("mine", podResult(index, of, attempt))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEncodeAndDecode: decoding restores the encoded result, with histograms and
// environment but without the values computed from the rounds.
func TestEncodeAndDecode(t *testing.T) {
	sent := podResult(2, 4, 1)
	c := &sent.Outcome.Comparisons[0].Cells[0]
	c.Medians, c.Latency, c.Lag = c.Samples("").Summaries(), c.Rounds[0].Result.Latency, c.Rounds[0].Result.Lag
	p, err := upload.Encode("mine", sent)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Medians) == 0 || c.Lag == nil {
		t.Error("Encode changed the result")
	}
	read, err := upload.Decode(p.Data)
	if err != nil {
		t.Fatal(err)
	}
	want := upload.Header{
		Run: "mine", Index: 2, Of: 4, Attempt: 1, Pod: "mine-2-1", Node: "node-a",
		Commit: "abc-dirty", Started: began.Add(time.Hour), Finished: true, Size: p.Size,
	}
	if diff := cmp.Diff(want, read.Header); diff != "" || read.ID() != p.ID() {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	got, err := read.PodResult()
	if err != nil {
		t.Fatal(err)
	}
	c.Medians, c.Latency, c.Lag = nil, nil, nil
	if diff := cmp.Diff(sent, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-sent +got):\n%s", diff)
	}
	again, err := upload.Encode("mine", sent)
	if err != nil || !bytes.Equal(again.Data, p.Data) {
		t.Errorf("a second encoding differs (%v)", err)
	}
}

func TestEncodeErrors(t *testing.T) {
	for name, s := range map[string]*lab.Share{"no result": nil, "no outcome": {Of: 1}} {
		if _, err := upload.Encode("mine", s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestDecodeFindsChanges: Decode detects a change of any bit.
func TestDecodeFindsChanges(t *testing.T) {
	whole := bundle(t, 0, 2, 0).Data
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 1 << (i % 8)
		if _, err := upload.Decode(changed); !errors.Is(err, upload.ErrBundle) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for n := range whole {
		if _, err := upload.Decode(whole[:n]); !errors.Is(err, upload.ErrBundle) {
			t.Fatalf("truncated after %d bytes: %v", n, err)
		}
	}
	if _, err := upload.Decode(append(bytes.Clone(whole), 0)); !errors.Is(err, upload.ErrBundle) {
		t.Errorf("a byte too many: %v", err)
	}
	other := bytes.Replace(whole, []byte("watchlab-bundle 1 "), []byte("watchlab-bundle 2 "), 1)
	if _, err := upload.Decode(other); !errors.Is(err, upload.ErrFormat) {
		t.Errorf("another format: %v", err)
	}
}

// FuzzDecode: invalid data is an error, never a panic.
func FuzzDecode(f *testing.F) {
	f.Add(bundle(f, 0, 2, 0).Data)
	f.Add([]byte("watchlab-bundle 1 abc\n{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("an input took more than a minute") }).Stop()
		p, err := upload.Decode(data)
		if err == nil {
			_, err = p.PodResult()
		}
		if err != nil && !errors.Is(err, upload.ErrBundle) {
			t.Error(err)
		}
	})
}

func TestTargets(t *testing.T) {
	for text, want := range map[string]string{
		"configmap": "", "log": "", "dir=/results": "",
		"": "allowed: configmap", "pvc": "allowed", "dir": "allowed", "dir=": "allowed", "log=x": "allowed", "configmap=": "allowed",
	} {
		w, err := upload.ParseTarget(text)
		if want == "" {
			if err != nil || strings.Trim(w.Kind+"="+w.To, "=") != text {
				t.Errorf("%q: %q, %v", text, w, err)
			}
			continue
		}
		if !errors.Is(err, upload.ErrTarget) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}
