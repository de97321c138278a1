package manifest

import "testing"

// TestDecodeText: like kubectl, a file is UTF-8 or has a byte order mark.
func TestDecodeText(t *testing.T) {
	for in, want := range map[string]string{
		"":                                      "",
		"kind: é":                               "kind: é",
		"\ufeffa":                               "a",
		"\xfe\xff\x00a\x20\xac\xd8\x3d\xde\x00": "a€😀",
		"\xff\xfea\x00\xac\x20\x3d\xd8\x00\xde": "a€😀",
		"\xff\xfea\x00b":                        "a",
		"\xff\xfe\x3d\xd8a\x00":                 "\ufffda",
		"a\x80\x80b":                            "a\ufffdb",
		"\xef\xbb\xbf\x80":                      "\ufffd",
	} {
		if got := string(decodeText([]byte(in))); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}
