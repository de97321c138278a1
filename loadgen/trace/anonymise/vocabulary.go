package anonymise

import (
	_ "embed"
	"strings"
	"sync"
)

// constants are those of k8s.io/api and of apimachinery's meta/v1: a line has a
// type and a value, or "key" and a key of Kubernetes' own. TestVocabulary makes
// it of their sources.
//
//go:embed vocabulary.txt
var constants string

// words that are harmless: the constants of each type, by import path and name,
// and the keys.
type vocab struct {
	byType map[string]map[string]bool
	keys   []string
}

var vocabulary = sync.OnceValue(func() vocab {
	v := vocab{byType: map[string]map[string]bool{}}
	for line := range strings.Lines(constants) {
		kind, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if kind == "key" {
			v.keys = append(v.keys, value)
			continue
		}
		if v.byType[kind] == nil {
			v.byType[kind] = map[string]bool{}
		}
		v.byType[kind][value] = true
	}
	return v
})
