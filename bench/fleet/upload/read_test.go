package upload_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/kubernetes/scheme"
	k8stesting "k8s.io/client-go/testing"

	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
)

// Sizes of bundles that need several log lines, and several ConfigMaps.
const lines, maps = 150_000, 1_200_000

// large returns a bundle of about the given size.
func large(t testing.TB, index, size int) upload.Bundle {
	t.Helper()
	s := podResult(index, 2, 0)
	// Incompressible data.
	rng := rand.New(rand.NewPCG(1, uint64(index)))
	noise := make([]byte, size*8/7)
	for i := range noise {
		noise[i] = byte(' ' + 1 + rng.IntN(90))
	}
	s.Outcome.Env.Args = []string{string(noise)}
	p, err := upload.Encode("mine", s)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Data) < size*3/4 {
		t.Fatalf("%d bytes", len(p.Data))
	}
	return p
}

// names returns the sorted IDs of the bundles that a reader finds, and their damage.
func names(t testing.TB, r upload.Reader, run string) (found, damaged []string) {
	t.Helper()
	broken, err := r.Read(t.Context(), run, func(p upload.Bundle) error {
		found = append(found, fmt.Sprintf("%d/%d#%d", p.Index, p.Of, p.Attempt))
		_, err := p.PodResult()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range broken {
		damaged = append(damaged, d.String())
	}
	slices.Sort(found)
	slices.Sort(damaged)
	return found, damaged
}

func store(t testing.TB, s upload.Sink, bundles ...upload.Bundle) {
	t.Helper()
	for _, p := range bundles {
		if err := s.Upload(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
}

// logOf returns a log with the given text.
func logOf(name, text string) upload.Logs {
	return upload.Logs{{Name: name, Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}}
}

func logged(t testing.TB, bundles ...upload.Bundle) string {
	var b bytes.Buffer
	store(t, upload.Log{Writer: &b}, bundles...)
	return b.String()
}

// configMaps returns client-go's object tracker and a client of its ConfigMaps.
func configMaps() (*k8stesting.Fake, *gentype.FakeClientWithList[*corev1.ConfigMap, *corev1.ConfigMapList]) {
	server := &k8stesting.Fake{}
	server.AddReactor("*", "*", k8stesting.ObjectReaction(k8stesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())))
	return server, gentype.NewFakeClientWithList(server, "lab", corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithKind("ConfigMap"),
		func() *corev1.ConfigMap { return &corev1.ConfigMap{} }, func() *corev1.ConfigMapList { return &corev1.ConfigMapList{} },
		func(to, from *corev1.ConfigMapList) { to.ListMeta = from.ListMeta },
		func(l *corev1.ConfigMapList) []*corev1.ConfigMap { return gentype.ToPointerSlice(l.Items) },
		func(l *corev1.ConfigMapList, items []*corev1.ConfigMap) { l.Items = gentype.FromPointerSlice(items) })
}

// TestTargetKinds: each kind of target returns an uploaded bundle exactly once, for any
// size and any number of uploads.
func TestTargetKinds(t *testing.T) {
	bundles := []upload.Bundle{bundle(t, 0, 2, 0), bundle(t, 0, 2, 1), large(t, 1, maps)}
	var log bytes.Buffer
	_, client := configMaps()
	inMaps := upload.ConfigMaps{Client: client, Namespace: "lab"}
	for name, target := range map[string]struct {
		sink upload.Sink
		read func() upload.Reader
	}{
		"folder":     {upload.Dir(filepath.Join(t.TempDir(), "a/b")), nil},
		"log":        {upload.Log{Writer: &log}, func() upload.Reader { return logOf("pod", log.String()) }},
		"configmaps": {inMaps, nil},
	} {
		t.Run(name, func(t *testing.T) {
			store(t, target.sink, bundles...)
			store(t, target.sink, bundles[2], bundles[0])
			other := podResult(0, 1, 0)
			p, err := upload.Encode("other", other)
			if err != nil {
				t.Fatal(err)
			}
			reader, ok := target.sink.(upload.Reader)
			if !ok {
				reader = target.read()
			}
			want := []string{"0/2#0", "0/2#1", "1/2#0"}
			for _, run := range []string{"mine", ""} {
				if found, damaged := names(t, reader, run); !slices.Equal(found, want) || damaged != nil {
					t.Errorf("run %q: found %v, damaged %v", run, found, damaged)
				}
			}
			store(t, target.sink, p)
			if !ok {
				reader = target.read()
			}
			if found, _ := names(t, reader, "mine"); !slices.Equal(found, want) {
				t.Errorf("found %v", found)
			}
			take := func(upload.Bundle) error { return nil }
			if _, err := reader.Read(t.Context(), "", take); !errors.Is(err, upload.ErrRuns) || !strings.Contains(err.Error(), `["mine" "other"]`) {
				t.Errorf("ambiguous run: %v", err)
			}
			enough := errors.New("enough")
			if _, err := reader.Read(t.Context(), "mine", func(upload.Bundle) error { return enough }); !errors.Is(err, enough) {
				t.Errorf("take's error: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if name != "configmaps" { // The fake doesn't look at ctx.
				if _, err := reader.Read(ctx, "mine", take); !errors.Is(err, context.Canceled) {
					t.Errorf("canceled: %v", err)
				}
			}
		})
	}
}

// TestLogKinds: frames are found anywhere in a line, in any order, and between other output.
func TestLogKinds(t *testing.T) {
	p := large(t, 1, lines)
	lines := strings.SplitAfter(strings.TrimSuffix(logged(t, p), "\n"), "\n")
	for _, line := range lines {
		if len(line) > 16<<10-256 {
			t.Fatalf("a line of %d bytes leaves no room for a prefix", len(line))
		}
	}
	each := func(change func(string) string) string {
		var out []string
		for _, line := range lines {
			out = append(out, change(strings.TrimSuffix(line, "\n")))
		}
		return strings.Join(out, "\n")
	}
	shuffled := slices.Clone(lines)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	bare := func(line string) string { return strings.TrimSuffix(line, "\n") }
	for i := range shuffled {
		shuffled[i] = bare(shuffled[i])
	}
	for name, text := range map[string]string{
		"as written":         strings.Join(lines, ""),
		"windows":            each(func(s string) string { return s + "\r" }),
		"CRI":                each(func(s string) string { return "2026-11-21T22:00:00.123456789Z stdout F " + s }),
		"docker":             each(func(s string) string { return `{"log":"` + s + `\n","stream":"stdout","time":"2026-11-21T22:00:00Z"}` }),
		"kubectl --prefix":   each(func(s string) string { return "[pod/watchlab-mine-1-x/watchlab] " + s }),
		"between others":     each(func(s string) string { return "watchlab: half way\n" + s + "\n" + strings.Repeat("x", 200_000) }),
		"behind a part line": each(func(s string) string { return "42 % done" + s }),
		"twice":              strings.Join(lines, "") + "\n" + strings.Join(lines, ""),
		"in another order":   strings.Join(shuffled, "\n"),
	} {
		t.Run(name, func(t *testing.T) {
			if found, damaged := names(t, logOf("pod", text), "mine"); !slices.Equal(found, []string{"1/2#0"}) || damaged != nil {
				t.Errorf("found %v, damaged %v", found, damaged)
			}
		})
	}
}

// TestDamagedLogs: damage is reported and does not affect other bundles.
func TestDamagedLogs(t *testing.T) {
	whole, broken := logged(t, bundle(t, 0, 2, 0)), logged(t, large(t, 1, lines))
	lines := strings.SplitAfter(broken, "\n")
	n := len(lines) - 1
	with := func(at int, line string) string {
		out := slices.Clone(lines)
		out[at] = line
		return strings.Join(out, "")
	}
	for name, tc := range map[string]struct{ text, says string }{
		"cut":                  {strings.Join(lines[:5], ""), fmt.Sprintf("5 of %d parts are present", n)},
		"cut within a line":    {broken[:len(broken)-100], fmt.Sprintf("%d of %d parts are present; part %d: its checksum", n-1, n, n)},
		"a letter changed":     {with(3, lines[3][:200]+"#"+lines[3][201:]), "part 4: "},
		"two lines in one":     {with(3, lines[3][:8000]+strings.TrimSuffix(lines[4], "\n")+lines[3][8000:]), "part 5: its checksum"},
		"a line in the middle": {with(3, lines[3][:8000]+"\nwatchlab: 50 %\n"+lines[3][8000:]), "part 4: its checksum"},
		"rotated away":         {strings.Join(lines[7:], ""), fmt.Sprintf("%d of %d parts are present", n-7, n)},
		"nonsense of parts":    {strings.Replace(strings.Join(lines[:2], ""), fmt.Sprintf(" 1/%d ", n), fmt.Sprintf(" 0/%d ", n), 1), fmt.Sprintf("1 of %d parts", n)},
		"other numbers":        {strings.Replace(broken, fmt.Sprintf(" 2/%d ", n), fmt.Sprintf(" 2/%d ", n+1), 1), fmt.Sprintf("parts disagree on their number: %d, %d", n, n+1)},
	} {
		t.Run(name, func(t *testing.T) {
			found, damaged := names(t, logOf("the pod", tc.text+"\n"+whole), "mine")
			if !slices.Equal(found, []string{"0/2#0"}) || len(damaged) != 1 || !strings.HasPrefix(damaged[0], "the pod: pod 1/2: ") || !strings.Contains(damaged[0], tc.says) {
				t.Errorf("found %v, damaged %v; want %q", found, damaged, tc.says)
			}
			// Damage is not reported if another log has the complete bundle.
			logs := append(logOf("the pod", tc.text), logOf("its copy", broken)...)
			if found, damaged := names(t, logs, "mine"); !slices.Equal(found, []string{"1/2#0"}) || damaged != nil {
				t.Errorf("with a copy: found %v, damaged %v", found, damaged)
			}
		})
	}
	failing := upload.Logs{{Name: "gone", Open: func(context.Context) (io.ReadCloser, error) { return nil, errors.New("no such pod") }}}
	if found, damaged := names(t, append(failing, logOf("pod", whole)...), ""); len(found) != 1 || !slices.Equal(damaged, []string{"gone: no such pod"}) {
		t.Errorf("found %v, damaged %v", found, damaged)
	}
}

func TestLogLimit(t *testing.T) {
	p := upload.Bundle{Data: make([]byte, upload.MaxLog+1)}
	if err := (upload.Log{Writer: io.Discard}).Upload(t.Context(), p); !errors.Is(err, upload.ErrTooLarge) {
		t.Error(err)
	}
}

// TestDamagedFiles: an incomplete file is reported. A temporary file is ignored.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	f := upload.Dir(dir)
	store(t, f, bundle(t, 0, 2, 0), bundle(t, 1, 2, 0))
	files, err := filepath.Glob(filepath.Join(dir, "mine/*"))
	if err != nil || len(files) != 2 || filepath.Base(files[0])[:7] != "0-of-2-" {
		t.Fatal(files, err)
	}
	if err := os.Truncate(files[1], 500); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mine/.tmp-1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, damaged := names(t, f, "")
	if !slices.Equal(found, []string{"0/2#0"}) || len(damaged) != 1 || !strings.HasPrefix(damaged[0], files[1]+": damaged result") {
		t.Errorf("found %v, damaged %v", found, damaged)
	}
	if _, err := upload.Dir(filepath.Join(dir, "none")).Read(t.Context(), "", nil); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestDamagedConfigMaps: an incomplete result is reported with its parts.
func TestDamagedConfigMaps(t *testing.T) {
	_, stored := configMaps()
	c := upload.ConfigMaps{Client: stored, Namespace: "lab"}
	store(t, c, bundle(t, 0, 2, 0), large(t, 1, maps))
	list, err := stored.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Items {
		if m.Labels[upload.PodLabel] != "1" || m.Annotations[upload.PartAnnotation] != "1/2" {
			continue
		}
		if m.Immutable == nil || !*m.Immutable || len(m.OwnerReferences) > 0 || len(m.BinaryData["part"]) != 900_000 {
			t.Errorf("%+v", m.ObjectMeta)
		}
		if err := stored.Delete(t.Context(), m.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.Name, m.ResourceVersion, m.Annotations = "odd", "", nil
		if _, err := stored.Create(t.Context(), &m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	found, damaged := names(t, c, "")
	if want := []string{"namespace lab: pod 1/2: 1 of 2 parts are present", "odd: labels or annotations of the part are missing"}; !slices.Equal(found, []string{"0/2#0"}) || !slices.Equal(damaged, want) {
		t.Errorf("found %v, damaged %v", found, damaged)
	}
}

// TestConfigMapPages: Read returns complete bundles from several pages, even
// after a continue token has expired.
func TestConfigMapPages(t *testing.T) {
	server, client := configMaps()
	c := upload.ConfigMaps{Client: client, Namespace: "lab"}
	var want []string
	for i := range 4 {
		store(t, c, bundle(t, i, 4, 0))
		want = append(want, fmt.Sprintf("%d/4#0", i))
	}
	all, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	expired := false
	server.PrependReactor("list", "configmaps", func(a k8stesting.Action) (bool, runtime.Object, error) {
		opts := a.(k8stesting.ListActionImpl).ListOptions
		asked = append(asked, opts.Continue)
		at := len(opts.Continue)
		if opts.Continue == "oo" && !expired {
			expired = true
			err := apierrors.NewResourceExpired("too old")
			err.ErrStatus.Continue = "nn"
			return true, nil, err
		}
		page := &corev1.ConfigMapList{Items: all.Items[at : at+1]}
		if at+1 < len(all.Items) {
			page.Continue = strings.Repeat("o", at+1)
		}
		return true, page, nil
	})
	if found, damaged := names(t, c, ""); !slices.Equal(found, want) || damaged != nil {
		t.Errorf("found %v, damaged %v", found, damaged)
	}
	if !slices.Equal(asked, []string{"", "o", "oo", "nn", "ooo"}) {
		t.Errorf("asked for %q", asked)
	}
}

// TestConfigMapRetries: temporary errors are retried until the context ends;
// permanent ones are returned at once.
func TestConfigMapRetries(t *testing.T) {
	resource := corev1.Resource("configmaps")
	p := bundle(t, 0, 1, 0)
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
				server, client := configMaps()
				tries := 0
				server.PrependReactor("create", "configmaps", func(k8stesting.Action) (bool, runtime.Object, error) {
					tries++
					return tries <= tc.times, nil, tc.err
				})
				ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
				defer cancel()
				err := upload.ConfigMaps{Client: client, Namespace: "lab"}.Upload(ctx, p)
				if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) || tc.tries > 0 && tries != tc.tries {
					t.Errorf("%d tries, error %v", tries, err)
				}
			})
		})
	}
}

// TestCollect: Collect merges one attempt per pod, and reports superseded and damaged results.
func TestCollect(t *testing.T) {
	from := upload.Dir(t.TempDir())
	store(t, from, bundle(t, 0, 2, 0), bundle(t, 0, 2, 1), bundle(t, 1, 2, 0))
	spool := t.TempDir()
	c, err := upload.Collect(t.Context(), from, "", 2, spool, lab.MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m := c.Outcome.Merged
	if c.Run != "mine" || c.Bundles != 3 || len(m.Shares) != 2 || m.Shares[0].Attempt != 0 || len(m.Superseded) != 1 || m.Superseded[0].Attempt != 1 {
		t.Errorf("%+v: %+v", c, m)
	}
	if r := c.Outcome.Comparisons[0].Cells[0].Rounds; len(r) != 1 || r[0].Result.EventsIn != 2000 {
		t.Errorf("%+v", r)
	}
	kept := t.TempDir()
	if err := os.CopyFS(kept, os.DirFS(c.Spool)); err != nil {
		t.Fatal(err)
	}
	again, err := upload.Collect(t.Context(), upload.Dir(kept), "", 2, t.TempDir(), lab.MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c.Outcome, again.Outcome); diff != "" {
		t.Errorf("the kept bundles differ:\n%s", diff)
	}
}

func TestCollectErrors(t *testing.T) {
	other := podResult(1, 2, 0)
	other.Outcome.Env.Commit = "def"
	mixed, err := upload.Encode("mine", other)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		bundles []upload.Bundle
		of      int
		want    error
		says    string
	}{
		"nothing":       {nil, 2, upload.ErrNone, ""},
		"mixed commits": {[]upload.Bundle{bundle(t, 0, 2, 0), mixed}, 2, lab.ErrShares, `"def-dirty"`},
		"other numbers": {[]upload.Bundle{bundle(t, 0, 3, 0)}, 2, lab.ErrShares, "pod 0 belongs to 3"},
	} {
		t.Run(name, func(t *testing.T) {
			from := upload.Dir(t.TempDir())
			store(t, from, tc.bundles...)
			c, err := upload.Collect(t.Context(), from, "", tc.of, t.TempDir(), lab.MergeOptions{})
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) || c.Outcome != nil {
				t.Errorf("error %v", err)
			}
		})
	}
}
