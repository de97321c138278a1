package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

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
	out := filepath.Join(dir, "archive.tar")
	if err := pack(out, dir); err != nil {
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

func pack(out, dir string) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		entry := file{name: filepath.ToSlash(rel), mode: 0o644}
		if d.IsDir() {
			entry.name, entry.mode = entry.name+"/", 0o755
		} else if entry.data, err = os.ReadFile(path); err != nil {
			return err
		}
		return writeEntry(w, entry)
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(out, archive.Bytes(), 0o644)
}
