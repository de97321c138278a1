package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	"k8s.io/cli-runtime/pkg/resource"
)

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
			return nil, &Error{Source: name, Err: errors.New("it is not a URL")}
		}
		return []source{{u.Redacted(), func(ctx context.Context) ([]byte, error) { return get(ctx, name) }}}, nil
	}
	names := []string{name}
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(name, "*?[") {
		matches, err := filepath.Glob(name)
		switch {
		case err != nil:
			return nil, &Error{Source: name, Err: err}
		case len(matches) == 0:
			return nil, &Error{Source: name, Err: errors.New("the pattern matches no files")}
		}
		names = matches
	}
	var sources []source
	var errs []error
	for _, n := range names {
		// Only the paths are usable: the visitors need a Builder.
		visitors, err := resource.ExpandPathsToFileVisitors(nil, n, o.Recursive, resource.FileExtensions, nil)
		if err != nil {
			errs = append(errs, &Error{Source: n, Err: plain(err)})
		}
		for _, v := range visitors {
			if f, ok := v.(*resource.FileVisitor); ok {
				sources = append(sources, source{f.Path, func(context.Context) ([]byte, error) { return readFile(f.Path) }})
			}
		}
		if len(visitors) == 0 && err == nil {
			errs = append(errs, &Error{Source: n, Err: fmt.Errorf("%w: a folder without %s files", ErrEmpty, strings.Join(resource.FileExtensions, ", "))})
		}
	}
	return sources, errors.Join(errs...)
}

func plain(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
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
	data, err := io.ReadAll(transform.NewReader(limited, unicode.BOMOverride(unicode.UTF8.NewDecoder())))
	if err == nil && limited.N == 0 {
		err = fmt.Errorf("%w: more than %d MiB", ErrManifest, maxBytes>>20)
	}
	return data, err
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
			var u *url.Error
			if errors.As(err, &u) {
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
