package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
)

// collectable returns the results of two pods of one small run, three cells each.
func collectable(t *testing.T) []*lab.Share {
	t.Helper()
	var shares []*lab.Share
	for i := range 2 {
		dir := filepath.Join(t.TempDir(), "run")
		var stderr bytes.Buffer
		code := run(t.Context(), []string{"run", "--ignore-host", "--family", "queue", "--impl", "cond", "--storm", tiny, "--events", "3000", "--rounds", "1", "--share", fmt.Sprintf("%d/2", i), "--out", dir}, new(bytes.Buffer), &stderr)
		if code != exitOK {
			t.Fatal(stderr.String())
		}
		o, err := lab.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		s := &lab.Share{Index: i, Of: 2, Pod: fmt.Sprintf("mine-%d", i), Node: "node-a", Outcome: o}
		for _, c := range o.Comparisons[0].Cells {
			s.Starts = append(s.Starts, lab.Start{Cell: c.BenchName(), Round: 1})
		}
		shares = append(shares, s)
	}
	return shares
}

func uploadTo(t *testing.T, s upload.Sink, run string, shares ...*lab.Share) {
	t.Helper()
	for _, share := range shares {
		p, err := upload.Encode(run, share)
		if err == nil {
			err = s.Upload(t.Context(), p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// collected runs collect and returns its exit code and output.
func collected(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(context.Background(), append([]string{"cluster", "collect"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

// TestCollectVerb: the pods' results become one results folder, from files of each kind.
// Missing pods are named, and nothing is printed without --partial.
func TestCollectVerb(t *testing.T) {
	shares := collectable(t)
	dir, work := t.TempDir(), t.TempDir()
	uploadTo(t, upload.Dir(dir), "mine", shares...)
	var log bytes.Buffer
	uploadTo(t, upload.Log{Writer: &log}, "mine", shares[1])
	logs := filepath.Join(work, "logs.txt")
	if err := os.WriteFile(logs, log.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out := func(name string) string { return filepath.Join(work, name) }
	for name, tc := range map[string]struct {
		args  []string
		code  int
		shown bool
		says  []string
	}{
		"all": {[]string{dir, "--out", out("all"), "--keep-pods"}, exitOK, true,
			[]string{"2 shares merged; results are in " + out("all")}},
		"missing": {[]string{logs, "--out", out("missing")}, exitInvalid, false,
			[]string{"pod 0 is missing\n", "1 of 2 shares merged"}},
		"partial": {[]string{logs, "--out", out("partial"), "--partial"}, exitOK, true,
			[]string{"pod 0 is missing\n", "1 of 2 shares merged"}},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := collected(t, tc.args...)
			if code != tc.code {
				t.Errorf("exit code %d: %s", code, stderr)
			}
			for _, s := range tc.says {
				if !strings.Contains(stderr, s) {
					t.Errorf("stderr lacks %q: %s", s, stderr)
				}
			}
			o, err := lab.Load(out(name))
			if err != nil {
				t.Fatal(err)
			}
			if o.Name != "mine" || o.Merged == nil {
				t.Errorf("%q, merged: %+v", o.Name, o.Merged)
			}
			for _, c := range o.Comparisons[0].Cells {
				if (len(c.Rounds) > 0) != tc.shown {
					t.Errorf("%s: %d rounds, %s", c.BenchName(), len(c.Rounds), c.Verdict)
				}
			}
			for _, file := range []string{"report.md", "report.html"} {
				text, err := os.ReadFile(filepath.Join(out(name), file))
				if err != nil || !strings.Contains(string(text), o.Merged.String()) {
					t.Errorf("%s doesn't say %q (%v)", file, o.Merged, err)
				}
			}
			if !strings.Contains(stdout, o.Merged.String()) {
				t.Errorf("the table doesn't say %q:\n%s", o.Merged, stdout)
			}
		})
	}
	// The kept bundles can be collected again.
	code, _, stderr := collected(t, filepath.Join(out("all"), podsDir), "--out", out("again"))
	if code != exitOK {
		t.Errorf("what was kept: exit code %d: %s", code, stderr)
	}
	all, err := lab.Load(out("all"))
	if err != nil {
		t.Fatal(err)
	}
	events := func(o *lab.Outcome) uint64 { return o.Comparisons[0].Cells[0].Rounds[0].Result.EventsIn }
	if got, want := events(all), events(shares[0].Outcome)+events(shares[1].Outcome); got != want {
		t.Errorf("%d events, want %d", got, want)
	}
}

// TestCollectInterrupted: an interruption has its own exit code, and leaves no folder.
func TestCollectInterrupted(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	uploadTo(t, upload.Dir(dir), "mine", collectable(t)...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stderr bytes.Buffer
	if code := run(ctx, []string{"cluster", "collect", dir, "--out", out}, new(bytes.Buffer), &stderr); code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("there is a folder")
	}
}

// TestCollectTellsOfDamage: damaged bundles and repeated attempts are reported.
func TestCollectTellsOfDamage(t *testing.T) {
	shares := collectable(t)
	dir := t.TempDir()
	uploadTo(t, upload.Dir(dir), "mine", shares...)
	retried, later := *shares[0], *shares[0].Outcome
	later.Started = later.Started.Add(time.Hour)
	retried.Attempt, retried.Pod, retried.Outcome = 1, "mine-0-again", &later
	uploadTo(t, upload.Dir(dir), "mine", &retried)
	if err := os.WriteFile(filepath.Join(dir, "mine", "x.wlresult"), []byte("half a res"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := collected(t, dir, "--out", filepath.Join(t.TempDir(), "out"))
	for _, want := range []string{"x.wlresult: damaged result", "pod 0: attempt 1 (pod mine-0-again) is not merged"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr lacks %q: %s", want, stderr)
		}
	}
	if code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// TestCollectRefusesInput: bad input causes one line and writes nothing.
func TestCollectRefusesInput(t *testing.T) {
	shares := collectable(t)
	dir, empty := t.TempDir(), t.TempDir()
	uploadTo(t, upload.Dir(dir), "mine", shares[0])
	uploadTo(t, upload.Dir(dir), "other", shares[0])
	mixed := t.TempDir()
	other := *shares[1].Outcome
	other.Env.Commit = "another"
	shares[1].Outcome = &other
	uploadTo(t, upload.Dir(mixed), "mine", shares...)
	out := filepath.Join(t.TempDir(), "out")
	for name, tc := range map[string]struct {
		args []string
		code int
		says string
	}{
		"two places":       {[]string{dir, "x"}, exitUsage, "takes one directory, or"},
		"a cluster":        {[]string{dir, "--context", "x"}, exitUsage, "--context: is not for " + dir},
		"an output":        {[]string{dir, "-o", "x"}, exitUsage, "--output"},
		"a folder in use":  {[]string{dir, "--out", dir}, exitUsage, "--out: " + dir + " exists"},
		"no file":          {[]string{dir + "-none"}, exitUsage, dir + "-none: no such file"},
		"a folder of logs": {[]string{"-", dir}, exitUsage, "name its files"},
		"no cluster":       {[]string{"--kubeconfig", dir + "-none"}, exitUsage, "--kubeconfig: "},
		"several runs":     {[]string{dir}, exitUsage, `--name: is required: several runs: ["mine" "other"]`},
		"mixed versions":   {[]string{mixed}, exitUsage, `the program's commit is`},
		"nothing there":    {[]string{empty}, exitInvalid, "no complete result in " + empty},
		"no such run":      {[]string{dir, "--name", "third"}, exitInvalid, "no complete result of run third in " + dir},
	} {
		t.Run(name, func(t *testing.T) {
			args := tc.args
			if name != "a folder in use" {
				args = append(args, "--out", out)
			}
			code, _, stderr := collected(t, args...)
			if code != tc.code || !strings.Contains(stderr, tc.says) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit code %d, stderr %q; want %d and %q", code, stderr, tc.code, tc.says)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("something was written")
			}
		})
	}
}

// storedMaps keeps uploaded ConfigMaps.
type storedMaps struct{ corev1.ConfigMapList }

func (s *storedMaps) Create(_ context.Context, m *corev1.ConfigMap, _ metav1.CreateOptions) (*corev1.ConfigMap, error) {
	s.Items = append(s.Items, *m)
	return m, nil
}

func (s *storedMaps) List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error) {
	return &s.ConfigMapList, nil
}

// TestCollectEarly: before the end of a run, collect writes nothing and says in one line when to
// collect.
func TestCollectEarly(t *testing.T) {
	shares := collectable(t)
	t.Chdir(t.TempDir())
	answers := map[string]string{
		"watchlab-mine": `"v1", "kind": "ConfigMap", "metadata": {}, "data": {"plan.yaml": "run: mine\nmode: self\npods: 2\nupload: configmap\nbarrier: 0s\n"}`,
		"jobs":          `"batch/v1", "kind": "JobList", "items": [{"metadata": {"name": "watchlab-mine"}}]`,
		"pods":          `"v1", "kind": "PodList", "items": []`,
		"leases":        `"coordination.k8s.io/v1", "kind": "LeaseList", "items": []`,
		"metadata":      `"meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "items": []`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		which := path.Base(r.URL.Path)
		if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			which = "metadata"
		}
		fmt.Fprintf(w, `{"apiVersion": %s}`, answers[which])
	}))
	defer s.Close()
	for _, n := range []int{0, 1} {
		maps := &storedMaps{}
		uploadTo(t, upload.ConfigMaps{Client: maps, Namespace: "watchlab"}, "mine", shares[:n]...)
		items, err := json.Marshal(maps.Items)
		if err != nil {
			t.Fatal(err)
		}
		answers["configmaps"] = fmt.Sprintf(`"v1", "kind": "ConfigMapList", "items": %s`, items)
		code, _, stderr := collected(t, "--kubeconfig", kubeconfigOf(t, s.URL), "--name", "mine")
		for _, want := range []string{"run mine has not ended: 2 pods: 2 absent; ", "watchlab cluster status"} {
			if code != exitInvalid || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("%d results: exit code %d, stderr %q, want one line with %q", n, code, stderr, want)
			}
		}
		if entries, err := os.ReadDir("."); err != nil || len(entries) > 0 {
			t.Errorf("%d results: %v are written, %v", n, entries, err)
		}
	}
}
