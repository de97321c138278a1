// Package manifest reads Kubernetes objects like kubectl: from files, folders, URLs
// and standard input.
//
//		objects, err := manifest.Load(ctx, manifest.Options{
//			Filenames: []string{"pods.yaml", "https://example.com/crd.yaml", "-"},
//			Stdin:     os.Stdin,
//		})
//
//	 1. Names are expanded to files: a folder to its .json, .yaml and .yml files
//	    in the order of their names, with Recursive also to those of the folders
//	    below; a pattern to its matches.
//	 2. Each file is split into documents: YAML at the lines ---, JSON at the end of
//	    each value. Empty documents are skipped.
//	 3. A list, such as List or PodList, is replaced by its items.
//	 4. Each object is converted to its Go type, if client-go has one, and validated.
//
// The rules are those of k8s.io/cli-runtime, which is not used: it brings kustomize and 96 packages.
// Errors of a document contain its file and line. Load still reads all other documents.
//
// [Strict] reads every other YAML file of watchlab: experiments, rules, workloads, plans. Its errors are of the same
// type, [Error].
package manifest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var (
	ErrManifest = errors.New("invalid manifest") // wrapped for a document that is not an object
	ErrEmpty    = errors.New("no objects")       // wrapped for sources without objects
)

// StdinName is the source of objects from standard input.
const StdinName = "standard input"

const maxBytes = 256 << 20 // maximum size of a file, a URL or standard input in bytes

// Options are the sources of [Load].
type Options struct {
	Filenames []string  // as in kubectl's -f, in order: files, folders, patterns, URLs, "-" for Stdin
	Recursive bool      // also reads the folders below a folder
	Stdin     io.Reader // read once, for "-"
}

// Object is one object of a manifest.
type Object struct {
	// Object has its Go type if client-go has one, else *unstructured.Unstructured, and its kind.
	runtime.Object
	Kind      schema.GroupVersionKind // group, version and kind of the object
	Namespace string                  // empty if the manifest has none
	Name      string                  // empty for an object with generateName
	Source    string                  // file, URL or [StdinName]
	Line      int                     // first line of the document, from 1
}

// String returns the object's kind and name with its source and line.
func (o Object) String() string {
	return fmt.Sprintf("%s %s (%s)", o.Kind.Kind, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, position(o.Source, o.Line))
}

// Unstructured returns the object as the API has it. It may share its content.
func (o Object) Unstructured() (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(o.Kind)
	return u, nil
}

// Ordered returns objects in the order of their creation: definitions, namespaces, and all else as it is.
func Ordered(objects []Object) []Object {
	rank := map[string]int{"CustomResourceDefinition": -2, "Namespace": -1}
	return slices.SortedStableFunc(slices.Values(objects), func(a, b Object) int { return rank[a.Kind.Kind] - rank[b.Kind.Kind] })
}

// BuiltIn returns the names, without their endings, of embedded files that match a pattern, but for some.
func BuiltIn(files fs.FS, pattern string, but ...string) (names []string) {
	paths, _ := fs.Glob(files, pattern) // The pattern is a constant.
	for _, p := range paths {
		if name, _, _ := strings.Cut(path.Base(p), "."); !slices.Contains(but, name) {
			names = append(names, name)
		}
	}
	return names
}

func position(source string, line int) string {
	if line == 0 {
		return source
	}
	return source + ":" + strconv.Itoa(line)
}

// Load reads all objects in order. The error joins one [*Error] per invalid document and
// unreadable source; Load also returns all valid objects. If there are no objects and no other
// errors, the error wraps [ErrEmpty]. If ctx ends, the error is that of ctx.
//
// It holds the largest source and all objects in memory.
func Load(ctx context.Context, opts Options) ([]Object, error) {
	var objects []Object
	var errs []error
	for _, name := range opts.Filenames {
		paths, err := opts.expand(name)
		if err != nil {
			errs = append(errs, err)
		}
		for _, path := range paths {
			source, data, err := opts.read(ctx, path)
			if ctx.Err() != nil {
				return objects, ctx.Err()
			}
			if err != nil {
				errs = append(errs, &Error{File: source, Err: err})
				continue
			}
			some, faults := decodeAll(source, data, false)
			objects, errs = append(objects, some...), append(errs, faults...)
		}
	}
	if len(errs) == 0 && len(objects) == 0 {
		var names []string
		for _, n := range opts.Filenames {
			names = append(names, strconv.Quote(n))
		}
		return nil, fmt.Errorf("%w in %s", ErrEmpty, cmp.Or(strings.Join(names, ", "), "no files"))
	}
	return objects, errors.Join(errs...)
}
