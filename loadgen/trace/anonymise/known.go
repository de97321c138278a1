package anonymise

import (
	_ "embed"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// vocabularyFile has the constants of k8s.io/api and of apimachinery's meta/v1.
// Each line has a type and a value, or "key" and a key that Kubernetes defines.
// TestVocabulary derives it from their sources.
//
//go:embed vocabulary.txt
var vocabularyFile string

// ownFile has strings that Kubernetes defines but that are not constants of those packages: keys of
// labels, annotations and taints and finalizers (key), reasons (reason), field managers and event
// sources (component), and field paths of the downward API (fieldPath).
//
//go:embed own.txt
var ownFile string

type words map[string]bool

func set(values ...string) words {
	m := make(words, len(values))
	for _, v := range values {
		m[v] = true
	}
	return m
}

// vocabulary returns the strings to keep, by type or by list.
var vocabulary = sync.OnceValue(func() map[string]words {
	all := map[string]words{}
	for line := range strings.Lines(vocabularyFile + ownFile) {
		list, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if all[list] == nil {
			all[list] = words{}
		}
		all[list][value] = true
	}
	return all
})

func enumeration(t reflect.Type) words {
	if t.Kind() != reflect.String || t.PkgPath() == "" {
		return nil
	}
	return vocabulary()[t.PkgPath()+"."+t.Name()]
}

// anyValue returns the constants of all types, and the reasons.
var anyValue = sync.OnceValue(func() words {
	all := words{}
	for list, values := range vocabulary() {
		if list == "reason" || strings.Contains(list, "/") {
			for v := range values {
				all[v] = true
			}
		}
	}
	return all
})

func keptKey(s string) bool { return vocabulary()["key"][s] }

// resourceNames returns the resources that Kubernetes defines, such as cpu.
func resourceNames() words { return enumeration(reflect.TypeFor[v1.ResourceName]()) }

// known returns the kinds, versions and groups of client-go's scheme.
var known = sync.OnceValue(func() (k struct{ kinds, versions, groups words }) {
	k.kinds, k.versions, k.groups = words{}, words{}, words{}
	for kind := range scheme.Scheme.AllKnownTypes() {
		k.kinds[kind.Kind] = true
		k.versions[kind.GroupVersion().String()] = true
		k.groups[kind.Group] = true
	}
	return k
})

// fieldNames returns the names of all fields of all types of the scheme.
var fieldNames = sync.OnceValue(func() words {
	names := words{}
	in := types{}
	var walk func(s model)
	walk = func(s model) {
		switch {
		case s.is(reflect.Map), s.is(reflect.Slice), s.is(reflect.Array):
			walk(s.elem())
		case s.is(reflect.Struct) && in[s.typ] == nil:
			for name, field := range in.fields(s.typ) {
				names[name] = true
				walk(field)
			}
		}
	}
	for _, t := range scheme.Scheme.AllKnownTypes() {
		walk(modelOf(t))
	}
	return names
})

// leaf selects the strings of a field that are kept: values, and others by kind.
type leaf struct {
	kind   leafKind
	values words
}

type leafKind int

const (
	textLeaf  leafKind = iota
	valueLeaf          // opaque unless it is a lower-case name
	durationLeaf
	quantityLeaf
	percentLeaf
	bytesLeaf  // base64, replaced as a whole
	opaqueLeaf // replaced as a whole
	kindLeaf
	versionLeaf
	groupLeaf
	numberLeaf
)

const longestKept = 128

// keeps reports whether a string is harmless in an object of the given kind.
func (l leaf) keeps(s string, kind schema.GroupVersionKind) bool {
	switch {
	case l.values[s]:
		return true
	case l.kind == opaqueLeaf || l.kind == bytesLeaf:
		return false
	case keptWhole(s) || isTime(s):
		return true
	}
	switch l.kind {
	case durationLeaf:
		_, err := time.ParseDuration(s)
		return err == nil
	case quantityLeaf:
		if len(s) > 24 {
			return false
		}
		_, err := resource.ParseQuantity(s)
		return err == nil
	case percentLeaf:
		return percentage.MatchString(s)
	case kindLeaf:
		return s == kind.Kind || known().kinds[s]
	case versionLeaf:
		return s == kind.GroupVersion().String() || known().versions[s]
	case groupLeaf:
		return s == kind.Group || known().groups[s]
	case numberLeaf:
		return digits(s)
	}
	return false
}

var (
	percentage = regexp.MustCompile(`^\d{1,3}%$`)
	timestamp  = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$`)
)

func isTime(s string) bool {
	if !timestamp.MatchString(s) {
		return false
	}
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}

func digits(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == ""
}

var (
	truths      = set("true", "false", "True", "False", "Unknown")
	harmlessIPs = set("127.0.0.1", "0.0.0.0", "::1", "::")
)

// keptWhole reports whether a string is harmless in any position, as a value or as a label key.
func keptWhole(s string) bool { return keptKey(s) || truths[s] || harmlessIPs[s] }

// untypedLeaf returns the leaf of a string from the name of its field. It is for custom
// resources and for fields of type string.
func untypedLeaf(key string) leaf {
	switch key {
	case "kind":
		return leaf{kind: kindLeaf}
	case "apiVersion":
		return leaf{kind: versionLeaf}
	case "apiGroup", "apiGroups":
		return leaf{kind: groupLeaf}
	case "resourceVersion":
		return leaf{kind: numberLeaf}
	case "type", "reason", "phase", "operator", "effect", "protocol", "operation", "status", "policy":
		return leaf{kind: valueLeaf, values: anyValue()}
	case "cpu", "memory", "storage", "ephemeral-storage":
		return leaf{kind: quantityLeaf}
	}
	return leaf{kind: valueLeaf}
}
