// Package anonymise replaces names and values in a recording that identify its cluster.
//
// It keeps:
//
//   - Numbers except those among values (below), booleans, null, and sizes: a replacement has the length of the
//     original in bytes of UTF-8.
//   - Names of fields that client-go's types have; kinds and API versions that
//     client-go knows or that the recorded resource has.
//   - Times; durations and quantities in fields of these types; percentages in
//     fields that may hold a number; resource versions.
//   - Values of enumerations: constants of the field's type (Running, NoSchedule).
//     For type and reason, which are plain strings, listed values; in custom
//     resources, whose types are unknown, the constants of all types.
//   - Label, annotation and taint keys, resource names, field managers, event
//     sources and field paths that Kubernetes defines; 127.0.0.1, ::1, 0.0.0.0 and
//     ::; true, false and Unknown.
//
// All other strings are replaced. A lower-case name, such as web-1 or db.shop.svc, is replaced word by
// word. A word is a run of letters and digits; the dashes and dots between words stay, and so does the
// slash of a label key. The pseudonym of a word derives from its HMAC under a random key. It has letters
// where the word has letters, and digits where it has digits. A name has the same pseudonym everywhere,
// so the name of a pod still starts with that of its ReplicaSet, and selectors still match. Different
// words have different pseudonyms, and no word maps to itself. An IP address becomes an address, and
// addresses of one network stay in one network.
//
// Any other string becomes as many lower-case letters and digits as it has bytes, the same for the same
// string: an image, a text, a URL, JSON or YAML. So do values: data of Secrets and ConfigMaps,
// environment values, commands, arguments and headers of probes. Base64 in data stays base64.
//
// # What it does not hide
//
// The structure stays visible: the numbers of objects and kinds, references, the lengths of
// names and secrets, where a name has dashes, numbers (ports, replicas, resource requests) and
// times. A person who knows the cluster can recognise it. A short word has few pseudonyms: a
// single digit has nine. All single digits move by the same distance, and so do the last bytes
// of addresses in one network. A zero in an address stays.
package anonymise

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"hash"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"watchlab/loadgen/trace"
)

// keySize is the length of a key in bytes.
const keySize = 32

// Anonymiser replaces names and values. It is not safe for concurrent use. Its memory is
// bounded, independent of the recording.
type Anonymiser struct {
	mac     hash.Hash // from which replacements derive
	structs structs
	memo    map[memoKey]string // cached replacements; a full memo is cleared
}

type memoKey struct {
	form form
	text string
}

// memoSize limits the entries of a memo; longer strings than memoLength are not cached.
const (
	memoSize   = 1 << 17
	memoLength = 1 << 10
)

// New returns an anonymiser with a random key, which it does not store elsewhere. Whoever had it could
// recover the originals.
func New() *Anonymiser {
	var key [keySize]byte
	_, _ = rand.Read(key[:]) // Never fails.
	return withKey(key)
}

// withKey returns an anonymiser with a given key. Equal keys give equal pseudonyms.
func withKey(key [keySize]byte) *Anonymiser {
	return &Anonymiser{mac: hmac.New(sha256.New, key[:]), structs: structs{}, memo: map[memoKey]string{}}
}

// Frame returns the frame with a copy of its object in which names and values are replaced. In
// a Break it replaces the message. The error is for an object that is not JSON.
func (a *Anonymiser) Frame(f trace.Frame) (trace.Frame, error) {
	if f.Break != nil {
		b := *f.Break
		if f.Break.Reason != trace.Unreadable { // The reader wrote that message.
			b.Message = a.replacement(name, b.Message)
		}
		f.Break = &b
		return f, nil
	}
	var err error
	f.Object, err = a.object(f.Resource.GVK(), f.Object)
	return f, err
}

// object returns a copy of an object of the given kind, as JSON without white space.
func (a *Anonymiser) object(kind schema.GroupVersionKind, object []byte) ([]byte, error) {
	if !json.Valid(object) {
		return nil, fmt.Errorf("anonymise: an object of kind %s is not JSON", kind.Kind)
	}
	root := rootOf(kind)
	return a.rewrite(kind, root, root, object), nil
}

// replacement returns the replacement of a string of a form.
func (a *Anonymiser) replacement(f form, s string) string {
	key := memoKey{f, s}
	if out, ok := a.memo[key]; ok {
		return out
	}
	out := a.of(f, s)
	if len(s) <= memoLength {
		if len(a.memo) >= memoSize {
			clear(a.memo)
		}
		a.memo[key] = out
	}
	return out
}
