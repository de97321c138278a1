package manifest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// extensions of the files of a folder, as kubectl has them.
var extensions = []string{".json", ".yaml", ".yml"}

// expand returns the files, or the URL, for a name. Like kubectl, it returns what it finds together with an error for the
// rest.
func (o *Options) expand(name string) (paths []string, err error) {
	if name == "-" || isURL(name) {
		return []string{name}, nil
	}
	names := []string{name}
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(name, "*?[") {
		matches, err := filepath.Glob(name)
		switch {
		case err != nil:
			return nil, &Error{File: name, Err: err}
		case len(matches) == 0:
			return nil, &Error{File: name, Err: errors.New("the pattern matches no files")}
		}
		names = matches
	}
	var errs []error
	for _, n := range names {
		found, err := files(n, o.Recursive)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: a folder without %s files", ErrEmpty, strings.Join(extensions, ", "))
		}
		if err != nil {
			errs = append(errs, &Error{File: n, Err: Plain(err)})
		}
		paths = append(paths, found...)
	}
	return paths, errors.Join(errs...)
}

func isURL(name string) bool {
	return strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://")
}

// read returns the text of a file, a URL or standard input, and its name in errors.
func (o *Options) read(ctx context.Context, path string) (name string, data []byte, err error) {
	switch {
	case path == "-" && o.Stdin == nil:
		return StdinName, nil, errors.New("it cannot be read here")
	case path == "-":
		data, err = readAll(o.Stdin)
		o.Stdin = strings.NewReader("") // It is readable once only.
		return StdinName, data, err
	case !isURL(path):
		data, err = readFile(path)
		return path, data, err
	}
	u, err := url.Parse(path)
	if err != nil || u.Host == "" {
		return path, nil, errors.New("it is not a URL")
	}
	data, err = get(ctx, path)
	return u.Redacted(), data, err
}

// files returns a file, or the files of a folder with one of the extensions. Like kubectl, it follows
// no link to a folder, and returns no file if one folder is unreadable.
func files(root string, recursive bool) (paths []string, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && path != root && !recursive:
			return fs.SkipDir
		case !e.IsDir() && (path == root || slices.Contains(extensions, filepath.Ext(path))):
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return paths, nil
}

// Plain returns an error of a file without the operation and the path.
func Plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, Plain(err)
	}
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("%w: it is neither a file nor a folder", ErrManifest)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, Plain(err)
	}
	defer func() { _ = f.Close() }() // Opened for reading only.
	data, err := readAll(f)
	return data, Plain(err)
}

// readAll reads UTF-8 text. Invalid characters become U+FFFD.
func readAll(r io.Reader) ([]byte, error) {
	limited := &io.LimitedReader{R: r, N: maxBytes + 1}
	data, err := io.ReadAll(limited)
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("%w: more than %d MiB", ErrManifest, maxBytes>>20)
	}
	return bytes.ToValidUTF8(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\ufffd")), err
}

var client = http.Client{Timeout: 30 * time.Second}

// get requests a URL.
func get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // Read only.
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", res.Status)
	}
	return readAll(res.Body)
}
