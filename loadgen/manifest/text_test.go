package manifest

import (
	"strings"
	"testing"
)

// TestReadAll: a file is UTF-8, maybe with a byte order mark.
func TestReadAll(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "kind: é": "kind: é", "\ufeffa": "a", "a\x80\x80b": "a\ufffdb", "\xef\xbb\xbf\x80": "\ufffd",
	} {
		if got, err := readAll(strings.NewReader(in)); err != nil || string(got) != want {
			t.Errorf("%q is %q, %v, want %q", in, got, err, want)
		}
	}
}
