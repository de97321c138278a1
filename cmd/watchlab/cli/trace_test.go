package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/trace"
)

// TestTraceVerbs converts and cuts traces in all formats.
func TestTraceVerbs(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	must := func(args ...string) string {
		t.Helper()
		code, out, errs := call(t, args...)
		if code != exitOK || errs != "" {
			t.Fatalf("%v: exit code %d, stderr %q", args, code, errs)
		}
		return out
	}
	lines, err := os.ReadFile(tiny)
	if err != nil {
		t.Fatal(err)
	}
	must("trace", "convert", tiny, in("a.jsonl.zst"))
	must("trace", "convert", in("a.jsonl.zst"), in("b.jsonl"))
	must("trace", "convert", in("b.jsonl"), in("c.jsonl.zst"))
	want := must("trace", "convert", tiny, "-", "--format", "watch")
	if got := must("trace", "convert", in("c.jsonl.zst"), "-", "--format", "watch"); got != want || strings.Count(got, "\n") != bytes.Count(lines, []byte("\n")) {
		t.Errorf("back and forth: got\n%s\nwant\n%s", got, want)
	}
	must("trace", "convert", in("a.jsonl.zst"), in("d.json"))
	must("trace", "convert", in("b.jsonl"), in("e.jsonl.zst"), "--anonymise")
	for name, events := range map[string]int{"a.jsonl.zst": 0, "b.jsonl": 0, "d.json": 0, "e.jsonl.zst": 0} {
		s, err := trace.Load(in(name))
		if err != nil {
			t.Fatal(err)
		}
		original, err := trace.Load(tiny)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Events) != len(original.Events)+events || s.Keys != original.Keys {
			t.Errorf("%s: %d events of %d keys, want %d of %d", name, len(s.Events), s.Keys, len(original.Events), original.Keys)
		}
	}
	s := trace.Summary{Stats: &trace.Stats{}}
	if err := json.Unmarshal([]byte(must("trace", "inspect", in("e.jsonl.zst"), "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	if !s.Header.Anonymised || s.Format != "trace" || len(s.Resources) != 1 || s.Resources[0].Keys == 0 || s.LastNs < 1e7 {
		t.Errorf("%+v", s)
	}
	// The header names the main resource, for readers of the header alone.
	f, err := trace.Open(in("a.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if named := trace.NewReader(f, "a").Header().Resources; len(named) != 1 || named[0].String() != "v1/pods" {
		t.Errorf("the header names %v", named)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	// A piece begins with the state at its start.
	must("trace", "convert", in("e.jsonl.zst"), in("f.jsonl.zst"), "--from", "4500us")
	cut, err := trace.Load(in("f.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := trace.Load(in("e.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if len(cut.Final()) != len(whole.Final()) || len(cut.Events) > len(whole.Events) {
		t.Errorf("%d and %d objects in the end", len(cut.Final()), len(whole.Final()))
	}
	must("trace", "convert", in("a.jsonl.zst"), in("e.jsonl.zst"), in("h.jsonl.zst"))
	both, err := trace.Load(in("h.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if both.Keys != 2*whole.Keys || len(both.Events) != 2*len(whole.Events) {
		t.Errorf("merged: %d events of %d keys", len(both.Events), both.Keys)
	}
	out := must("trace", "inspect", in("h.jsonl.zst"))
	for _, want := range []string{"ZIPF", "v1/pods", "PEAK/S"} {
		if !strings.Contains(out, want) {
			t.Errorf("inspect does not say %q:\n%s", want, out)
		}
	}
	// Damage is reported and the rest is kept.
	file, err := os.ReadFile(in("a.jsonl.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in("torn.jsonl.zst"), file[:len(file)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"inspect", in("torn.jsonl.zst")}, {"convert", in("torn.jsonl.zst"), in("mended.jsonl.zst")}} {
		code, _, errs := call(t, append([]string{"trace"}, args...)...)
		if code != exitInvalid || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "truncated") || !strings.Contains(errs, "byte ") {
			t.Errorf("%v: exit code %d, stderr %q", args, code, errs)
		}
	}
	if _, err := trace.Load(in("mended.jsonl.zst")); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(in("*.tmp"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestRecordCluster records from a server named by a kubeconfig.
func TestRecordCluster(t *testing.T) {
	s, err := trace.Load(tiny)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(s, apiserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	url, err := srv.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() {
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
	}()
	srv.Release(uint64(len(s.Events)))
	dir := t.TempDir()
	kubeconfig, out := filepath.Join(dir, "kc"), filepath.Join(dir, "x.jsonl.zst")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":""}}],"clusters":[{"name":"c","cluster":{"server":"` + url + `"}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errs := call(t, "record", "--kubeconfig", kubeconfig, "--resource", "pods", "--for", "500ms", "-o", out, "--keep")
	if code != exitOK || !strings.Contains(errs, "v1/pods: ") || !strings.Contains(errs, out) {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	r, err := trace.Load(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Final()) != len(s.Final()) {
		t.Errorf("%d objects, want %d", len(r.Final()), len(s.Final()))
	}
	code, _, errs = call(t, "record", "--kubeconfig", kubeconfig, "--resource", "gadgets", "-o", out+"2")
	if code != exitUsage || !strings.Contains(errs, "--resource") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
}
