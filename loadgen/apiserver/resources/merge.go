package resources

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"io"
	"sync"

	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// mergeSchemaFile is client-go's schema for server-side apply. Its package applyconfigurations keeps
// the schema in an internal package and imports 54 others. A test compares both.
//
//go:embed merge.yaml.gz
var mergeSchemaFile []byte

// MergeTypes returns client-go's merge schema of the built-in types, a large table.
var MergeTypes = sync.OnceValue(func() *typed.Parser {
	var text []byte
	r, err := gzip.NewReader(bytes.NewReader(mergeSchemaFile))
	if err == nil {
		text, err = io.ReadAll(r)
	}
	p, parseErr := typed.NewParser(typed.YAMLObject(text))
	if err != nil || parseErr != nil { // The test finds a damaged file.
		return &typed.Parser{}
	}
	return p
})
