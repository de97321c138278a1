package manifest

import (
	"bytes"
	"context"
	"encoding/binary"
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
	"unicode/utf16"
)

// extensions of the files of a folder, as kubectl has them.
var extensions = []string{".json", ".yaml", ".yml"}

type source struct {
	name string
	read func(ctx context.Context) ([]byte, error)
}

// expand returns the sources for a name. Like kubectl, it returns the found sources together
// with an error for the others.
func (o *Options) expand(name string) ([]source, error) {
	switch {
	case name == "-":
		return []source{{StdinName, func(context.Context) ([]byte, error) {
			if o.Stdin == nil {
				return nil, errors.New("it cannot be read here")
			}
			in := o.Stdin
			o.Stdin = strings.NewReader("") // Stdin is readable once only.
			return readAll(in)
		}}}, nil
	case strings.HasPrefix(name, "http://"), strings.HasPrefix(name, "https://"):
		u, err := url.Parse(name)
		if err != nil || u.Host == "" {
			return nil, &Error{File: name, Err: errors.New("it is not a URL")}
		}
		return []source{{u.Redacted(), func(ctx context.Context) ([]byte, error) { return get(ctx, name) }}}, nil
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
	var sources []source
	var errs []error
	for _, n := range names {
		paths, err := files(n, o.Recursive)
		if err != nil {
			errs = append(errs, &Error{File: n, Err: plain(err)})
		}
		for _, path := range paths {
			sources = append(sources, source{path, func(context.Context) ([]byte, error) { return readFile(path) }})
		}
		if len(paths) == 0 && err == nil {
			errs = append(errs, &Error{File: n, Err: fmt.Errorf("%w: a folder without %s files", ErrEmpty, strings.Join(extensions, ", "))})
		}
	}
	return sources, errors.Join(errs...)
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

func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plain(err)
	}
	if !info.Mode().IsRegular() && info.Mode()&fs.ModeNamedPipe == 0 {
		return nil, fmt.Errorf("%w: it is neither a file nor a folder", ErrManifest)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = f.Close() }() // Opened for reading only.
	data, err := readAll(f)
	return data, plain(err)
}

// readAll reads UTF-8 text, or UTF-16 with a byte order mark, like kubectl.
func readAll(r io.Reader) ([]byte, error) {
	limited := &io.LimitedReader{R: r, N: maxBytes + 1}
	data, err := io.ReadAll(limited)
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("%w: more than %d MiB", ErrManifest, maxBytes>>20)
	}
	return decodeText(data), err
}

// decodeText returns UTF-8 without a byte order mark. Invalid characters become U+FFFD.
func decodeText(data []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(data, []byte("\xfe\xff")):
		order = binary.BigEndian
	case bytes.HasPrefix(data, []byte("\xff\xfe")):
		order = binary.LittleEndian
	default:
		return bytes.ToValidUTF8(bytes.TrimPrefix(data, []byte("\ufeff")), []byte("\ufffd"))
	}
	units := make([]uint16, (len(data)-2)/2)
	_, _ = binary.Decode(data[2:], order, units) // It has as many.
	return []byte(string(utf16.Decode(units)))
}

// kubectl's number of attempts to get a URL, and the pause between them.
const (
	attempts = 3
	pause    = time.Second
)

var client = http.Client{Timeout: 30 * time.Second}

// get requests a URL. Like kubectl, it retries after a server error.
func get(ctx context.Context, address string) ([]byte, error) {
	for n := 1; ; n++ {
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
		data, err := readAll(res.Body)
		_ = res.Body.Close() // Read only.
		if res.StatusCode == http.StatusOK {
			return data, err
		}
		if res.StatusCode < http.StatusInternalServerError || n == attempts {
			return nil, fmt.Errorf("the server answered %s", res.Status)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
