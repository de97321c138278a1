// Package anonymise replaces what a recording says of the cluster that it was
// recorded in.
//
// What is kept is on a list; every other string is replaced:
//
//   - Numbers, booleans, null, and everything's size: a replacement has the
//     length of what it replaces, in characters, in bytes of UTF-8 and in bytes
//     of the JSON.
//   - Names of fields that client-go's types have, kinds and API versions that
//     it knows or that the recorded resource has.
//   - Times; durations and quantities in fields of these types, percentages
//     where a number could stand, resource versions.
//   - Values of enumerations: constants of the type that the field has (Running,
//     NoSchedule), and for type and reason, which are plain strings, those of a
//     list. Of a custom resource, whose types are not known, those of all types.
//   - Label, annotation and taint keys, resource names, field managers, event
//     sources and field paths that Kubernetes itself defines; 127.0.0.1, ::1,
//     0.0.0.0 and ::; true, false and Unknown.
//
// The rest is replaced word by word: a word is a run of letters and digits, and
// what stands between words stays. A word's replacement depends on the word and
// on a random key alone, so the same name becomes the same pseudonym wherever it
// stands, a pod's name goes on to begin with that of its ReplicaSet, and a
// selector goes on to select. Lower case stays lower case, upper case stays upper
// case, digits stay digits: what was a valid name, identifier or image is one.
// Different words have different replacements, and no word is its own. UUIDs
// become UUIDs and long hexadecimal numbers such. IP addresses become IP
// addresses, and those of one network (by whole bytes) such of one network.
//
// Values that are nobody's name are replaced as a whole, so that their words
// can't be found elsewhere: the data of Secrets and ConfigMaps, environment
// values, commands and arguments.
//
// # What it does not hide
//
// The shape: how many objects of which kinds there are, what refers to what,
// how long names are and where their dashes are, numbers (ports, replicas,
// resource requests), times. Somebody who knows the cluster can recognise it,
// and a short word has few others to be replaced by: of a single digit, ten.
// Lengths of secrets stay what they are.
package anonymise

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"watchlab/loadgen/trace"
)

// ErrObject is wrapped by the error for an object that is no JSON.
var ErrObject = errors.New("not JSON")

// KeySize is the length of a key in bytes.
const KeySize = 32

// Anonymiser replaces names and values by its key. It is for one goroutine.
// Its memory does not grow with what it has seen.
type Anonymiser struct {
	words *words
	types types

	roots map[schema.GroupVersionKind]*node

	text, opaque, bytes memo
	scratch             []unit
}

// memo is a cache that is emptied when it is full: what it holds follows from
// the key.
type memo map[string]string

// memoSize bounds a memo's entries, memoLength their length.
const (
	memoSize   = 1 << 16
	memoLength = 1 << 10
)

func (m memo) put(k, v string) {
	if len(k) > memoLength {
		return
	}
	if len(m) >= memoSize {
		clear(m)
	}
	m[k] = v
}

// New returns an anonymiser with a random key, which nobody ever learns.
func New() (*Anonymiser, error) {
	var key [KeySize]byte
	if _, err := rand.Read(key[:]); err != nil {
		return nil, fmt.Errorf("anonymise: %w", err)
	}
	return WithKey(key), nil
}

// WithKey returns an anonymiser with a given key: two with the same key replace
// alike. Whoever has the key can undo what was done.
func WithKey(key [KeySize]byte) *Anonymiser {
	return &Anonymiser{
		words: newWords(key), types: types{}, roots: map[schema.GroupVersionKind]*node{},
		text: memo{}, opaque: memo{}, bytes: memo{},
	}
}

// Frame returns the frame with its object replaced; the object that it was
// given is not changed. Of a break, the message is replaced.
func (a *Anonymiser) Frame(f trace.Frame) (trace.Frame, error) {
	if f.Break != nil {
		b := *f.Break
		if f.Break.Reason != trace.Unreadable { // That one is this program's own.
			b.Message = a.String(b.Message)
		}
		f.Break = &b
		return f, nil
	}
	kind := f.Resource.GVK()
	if f.Type == watch.Error {
		kind = schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	}
	var err error
	f.Object, err = a.Object(kind, f.Object)
	return f, err
}

// Object returns the object, which is of the given kind, with everything
// replaced that is not known to be harmless. The result has the length of the
// object. The error wraps [ErrObject].
func (a *Anonymiser) Object(kind schema.GroupVersionKind, object []byte) ([]byte, error) {
	if !json.Valid(object) {
		return nil, fmt.Errorf("anonymise: an object of kind %s: %w", kind.Kind, ErrObject)
	}
	root := a.roots[kind]
	if root == nil {
		root = a.types.rootOf(kind)
		a.roots[kind] = root
	}
	r := rewriter{a: a, kind: kind, root: root, in: object, out: make([]byte, 0, len(object))}
	r.value(root, "")
	r.space()
	return r.out, nil
}

// String returns what the anonymiser makes of a name or a text.
func (a *Anonymiser) String(s string) string {
	units := make([]unit, 0, len(s))
	for _, c := range s {
		units = append(units, unit{r: c})
	}
	a.words.text(units)
	out := make([]rune, len(units))
	for i, u := range units {
		out[i] = u.r
	}
	return string(out)
}
