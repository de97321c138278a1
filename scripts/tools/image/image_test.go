package main

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// build runs the command on two small binaries and returns the archive.
func build(t *testing.T, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	args := append([]string{"--ref", "watchlab:test", "--revision", "0123456789ab", "--out", filepath.Join(dir, "image.tar")}, more...)
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(dir, arch)
		if err := os.WriteFile(path, []byte("a binary for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--binary", "linux/"+arch+"="+path)
	}
	var out, errs bytes.Buffer
	if code := run(args, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	if !strings.Contains(out.String(), "docker.io/library/watchlab:test@sha256:") {
		t.Errorf("stdout %q lacks the image's name and digest", &out)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".layout-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return filepath.Join(dir, "image.tar")
}

// unpack extracts an archive into a temporary folder and returns the folder.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	f := must(os.Open(archive))(t)
	defer func() { _ = f.Close() }()
	dir := t.TempDir()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestReproducibleBuild(t *testing.T) {
	a := must(os.ReadFile(build(t)))(t)
	b := must(os.ReadFile(build(t)))(t)
	if !bytes.Equal(a, b) {
		t.Error("two builds of the same binaries differ")
	}
}

func TestArchive(t *testing.T) {
	path := must(layout.FromPath(unpack(t, build(t))))(t)
	outer := must(path.ImageIndex())(t)
	if err := validate.Index(outer); err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("index.json: %v %+v, want one entry", err, manifest)
	}
	entry := manifest.Manifests[0]
	if got := entry.Annotations["io.containerd.image.name"]; got != "docker.io/library/watchlab:test" {
		t.Errorf("containerd would name it %q", got)
	}
	inner := must(outer.ImageIndex(entry.Digest))(t)
	images := must(inner.IndexManifest())(t)
	var platforms []string
	for _, m := range images.Manifests {
		platforms = append(platforms, m.Platform.String())
		img := must(inner.Image(m.Digest))(t)
		checkImage(t, img, m.Platform)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("platforms %q, want %q", platforms, want)
	}
}

// checkImage checks the platform, user, entrypoint, labels and files of an image.
func checkImage(t *testing.T, img v1.Image, platform *v1.Platform) {
	t.Helper()
	cfg := must(img.ConfigFile())(t)
	if cfg.Architecture != platform.Architecture || cfg.Config.User != "65532:65532" || !slices.Equal(cfg.Config.Entrypoint, []string{"/watchlab"}) {
		t.Errorf("%s: config %+v", platform, cfg)
	}
	if cfg.Config.Labels["org.opencontainers.image.revision"] != "0123456789ab" {
		t.Errorf("%s: labels %v", platform, cfg.Config.Labels)
	}
	files := map[string][]byte{}
	flat := mutate.Extract(img)
	defer func() { _ = flat.Close() }()
	for r := tar.NewReader(flat); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data := must(io.ReadAll(r))(t)
		name := strings.TrimSuffix(h.Name, "/")
		files[name] = data
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() != 0 {
			t.Errorf("%s: %s is of %d:%d and %v", platform, name, h.Uid, h.Gid, h.ModTime)
		}
		if mode := fs.FileMode(h.Mode) & 0o777; name == "watchlab" && mode != 0o755 {
			t.Errorf("%s: mode %v", platform, mode)
		}
	}
	if got, want := string(files["watchlab"]), "a binary for "+platform.Architecture; got != want {
		t.Errorf("%s: the command is %q, want %q", platform, got, want)
	}
	if !strings.Contains(string(files["etc/passwd"]), "nonroot:x:65532:65532:") {
		t.Errorf("%s: passwd %q", platform, files["etc/passwd"])
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(files[caFile]) {
		t.Errorf("%s: no readable certificate in %s", platform, caFile)
	}
}

// TestAnotherProgram checks the entrypoint and labels with --command and --description.
func TestAnotherProgram(t *testing.T) {
	path, err := layout.FromPath(unpack(t, build(t, "--command", "prometheus", "--description", "A database of time series")))
	if err != nil {
		t.Fatal(err)
	}
	outer := must(path.ImageIndex())(t)
	manifest := must(outer.IndexManifest())(t)
	inner := must(outer.ImageIndex(manifest.Manifests[0].Digest))(t)
	images := must(inner.IndexManifest())(t)
	img := must(inner.Image(images.Manifests[0].Digest))(t)
	cfg := must(img.ConfigFile())(t)
	if !slices.Equal(cfg.Config.Entrypoint, []string{"/prometheus"}) || cfg.Config.Labels["org.opencontainers.image.title"] != "prometheus" ||
		cfg.Config.Labels["org.opencontainers.image.description"] != "A database of time series" {
		t.Errorf("config %+v", cfg.Config)
	}
}

func TestImageName(t *testing.T) {
	for ref, want := range map[string]string{
		"watchlab:dev":               "docker.io/library/watchlab:dev",
		"lab/watchlab":               "docker.io/lab/watchlab:latest",
		"registry.test/a/b:1":        "registry.test/a/b:1",
		"localhost:5000/watchlab:v1": "localhost:5000/watchlab:v1",
	} {
		tag := must(name.NewTag(ref))(t)
		if got := imageName(tag); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
}

func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	have := filepath.Join(dir, "have")
	if err := os.WriteFile(have, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.tar")
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"no out":           {[]string{"--binary", "linux/amd64=" + have}, "--out"},
		"no binary":        {[]string{"--out", out}, "--binary"},
		"bad ref":          {[]string{"--ref", "NOT A REF", "--out", out, "--binary", "linux/amd64=" + have}, "--ref"},
		"no platform":      {[]string{"--out", out, "--binary", have}, "OS/ARCH=PATH"},
		"no architecture":  {[]string{"--out", out, "--binary", "linux=" + have}, "OS/ARCH=PATH"},
		"not there":        {[]string{"--out", out, "--binary", "linux/amd64=" + have + "-not"}, "no such file"},
		"twice":            {[]string{"--out", out, "--binary", "linux/amd64=" + have, "--binary", "linux/amd64=" + have}, "named twice"},
		"a path":           {[]string{"--command", "bin/x", "--out", out, "--binary", "linux/amd64=" + have}, "--command"},
		"the base's":       {[]string{"--command", "etc", "--out", out, "--binary", "linux/amd64=" + have}, "--command"},
		"a stray argument": {[]string{"--out", out, "--binary", "linux/amd64=" + have, "more"}, `"more"`},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(tc.args, &stdout, &stderr); code != 2 || !strings.Contains(stderr.String(), tc.want) {
				t.Errorf("exit code %d, stderr %q; want 2 and %q", code, &stderr, tc.want)
			}
			if _, err := os.Lstat(out); err == nil {
				t.Error("an archive was written")
			}
		})
	}
}

// must returns the value of a call, or ends the test with its error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
