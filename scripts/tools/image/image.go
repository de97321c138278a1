package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the UID and GID of the command: nonroot of distroless images, which admission
// policies know.
const user = 65532

type binary struct {
	platform v1.Platform
	path     string
}

func parseBinary(s string) (binary, error) {
	platform, path, ok := strings.Cut(s, "=")
	p, err := v1.ParsePlatform(platform)
	if !ok || path == "" || err != nil || p.OS == "" || p.Architecture == "" {
		return binary{}, fmt.Errorf("%q: want OS/ARCH=PATH", s)
	}
	return binary{platform: *p, path: path}, nil
}

// program describes the program of an image, the same for all platforms.
type program struct {
	command     string // file name in the root folder; also the entrypoint
	description string
	revision    string // source commit; empty omits the label
}

// index builds one image per binary and an index of all images. The same binaries in the same order give
// the same digest: all times are the epoch, and root owns all files.
func index(what program, binaries []binary) (v1.ImageIndex, error) {
	base, err := baseFiles()
	if err != nil {
		return nil, err
	}
	out := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, b := range binaries {
		if slices.ContainsFunc(binaries[:i], func(other binary) bool { return other.platform.Equals(b.platform) }) {
			return nil, fmt.Errorf("%s is named twice", b.platform)
		}
		img, err := image(base, what, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.platform, err)
		}
		out = mutate.AppendManifests(out, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{MediaType: types.OCIManifestSchema1, Platform: &b.platform},
		})
	}
	return out, nil
}

// image builds an image of one layer.
func image(base []file, what program, b binary) (v1.Image, error) {
	data, err := os.ReadFile(b.path)
	if err != nil {
		return nil, err
	}
	sbom, err := sbomOf(b.path, data)
	if err != nil {
		return nil, err
	}
	files := append(base[:len(base):len(base)], file{name: what.command, mode: 0o755, data: data})
	if sbom != nil {
		files = append(files, file{name: "var/lib/db/sbom/" + what.command + ".cdx.json", mode: 0o644, data: sbom})
	}
	archive, err := pack(files)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(archive)), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture, cfg.Variant = b.platform.OS, b.platform.Architecture, b.platform.Variant
	cfg.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	cfg.Config = v1.Config{
		Entrypoint: []string{"/" + what.command},
		Env:        []string{"PATH=/", "SSL_CERT_FILE=/" + caFile},
		User:       fmt.Sprintf("%d:%d", user, user),
		WorkingDir: "/tmp",
		Labels: map[string]string{
			"org.opencontainers.image.title":       what.command,
			"org.opencontainers.image.description": what.description,
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	if what.revision != "" {
		cfg.Config.Labels["org.opencontainers.image.revision"] = what.revision
	}
	return mutate.ConfigFile(img, cfg)
}

// sbomOf returns the SBOM beside a binary, nil if it has none. One of another binary is an error.
func sbomOf(path string, data []byte) ([]byte, error) {
	path += ".cdx.json"
	sbom, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); !bytes.Contains(sbom, []byte(hex.EncodeToString(sum[:]))) {
		return nil, fmt.Errorf("%s is of another binary", path)
	}
	return sbom, nil
}

const caFile = "etc/ssl/certs/ca-certificates.crt"

// baseFiles returns the files that a static program needs.
func baseFiles() ([]file, error) {
	roots, err := caBundle(bundle.Roots())
	if err != nil {
		return nil, err
	}
	id := strconv.Itoa(user)
	return []file{
		{name: "etc/", mode: 0o755},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:" + id + ":\n")},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:" + id + ":" + id + ":nonroot:/tmp:/sbin/nologin\n")},
		{name: "etc/ssl/", mode: 0o755},
		{name: "etc/ssl/certs/", mode: 0o755},
		{name: caFile, mode: 0o644, data: roots},
		// Mount point for a writable volume: the root file system is read-only.
		{name: "tmp/", mode: 0o1777},
	}, nil
}

// caBundle encodes Mozilla's root certificates from golang.org/x/crypto as PEM. It omits
// roots with constraints, which PEM cannot express.
func caBundle(roots func(func(bundle.Root) bool)) ([]byte, error) {
	var b bytes.Buffer
	for root := range roots {
		if root.Constraint != nil {
			continue
		}
		cert, err := x509.ParseCertificate(root.Certificate)
		if err != nil {
			return nil, fmt.Errorf("CA bundle: %w", err)
		}
		fmt.Fprintf(&b, "# %s\n", cert.Subject)
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// file is an entry of an archive. A name that ends with a slash is a directory.
type file struct {
	name string
	mode int64
	data []byte
}

// pack makes an archive, with the epoch as the time of all entries and root as their owner.
func pack(files []file) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0), Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// writeArchive writes the index as an OCI image layout in a tar file. Annotations hold
// the image's name for containerd and Docker. On an error it leaves no file.
func writeArchive(path string, ref name.Tag, idx v1.ImageIndex) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".layout-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(idx, layout.WithAnnotations(map[string]string{
		// containerd reads the full name from the first annotation. The second is the
		// OCI layout's own and holds the tag only.
		"io.containerd.image.name":          imageName(ref),
		"org.opencontainers.image.ref.name": ref.TagStr(),
	})); err != nil {
		return err
	}
	var files []file
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
		case d.IsDir():
			files = append(files, file{name: name + "/", mode: 0o755})
		default:
			var data []byte
			data, err = os.ReadFile(filepath.Join(dir, name))
			files = append(files, file{name: name, mode: 0o644, data: data})
		}
		return err
	})
	if err != nil {
		return err
	}
	archive, err := pack(files)
	if err != nil {
		return err
	}
	out := filepath.Join(dir, "archive.tar")
	if err := os.WriteFile(out, archive, 0o644); err != nil {
		return err
	}
	return os.Rename(out, path)
}

// imageName returns the full name in containerd's form: docker.io is the registry of short names.
func imageName(ref name.Tag) string {
	registry := ref.RegistryStr()
	if registry == name.DefaultRegistry {
		registry = "docker.io"
	}
	return registry + "/" + ref.RepositoryStr() + ":" + ref.TagStr()
}
