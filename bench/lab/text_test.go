package lab_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"watchlab/bench/lab"
)

func TestRedact(t *testing.T) {
	for text, want := range map[string]string{
		"--pyroscope=https://me:pa:ss@w@host/api?tenant=a&access_token=x%2Fy&b=c":                          "--pyroscope=https://***@host/api?tenant=a&access_token=***&b=c",
		`Get "https://token@host/?X-Amz-Signature=abc#part": EOF`:                                          `Get "https://***@host/?X-Amz-Signature=***#part": EOF`,
		`{"manifests":["http://h/x?a=1\u0026apiKey=k","http://u:p@h"]}`:                                    `{"manifests":["http://h/x?a=1\u0026apiKey=***","http://***@h"]}`,
		"s3://b?endpoint=http%3A%2F%2Fu%3Ap%40h%2F%3Ftoken%3Dx":                                            "s3://b?endpoint=http%3A%2F%2F***%40h%2F%3Ftoken%3D***",
		"authorization=Bearer%200123456789abcdef, Basic dXNlcjpwYXNzd29yZA==, Credential=AKIA1234567890/x": "authorization=Bearer%20***, Basic ***, Credential=***",
		"another address needs a bearer token; basic figures: a?b=c, e@mail":                               "another address needs a bearer token; basic figures: a?b=c, e@mail",
		"https://host/path?limit=500&continue=x":                                                           "https://host/path?limit=500&continue=x",
	} {
		if got := lab.Redact(text); got != want {
			t.Errorf("%s\nbecame %s\nwant   %s", text, got, want)
		}
	}
}

func TestFreeFolder(t *testing.T) {
	root := t.TempDir()
	b := lab.Build{Commit: "abc", Dirty: true}
	date := regexp.MustCompile(`^\d{4}-\d\d-\d\d-`)
	for _, w := range []string{"abc-dirty-quick", "abc-dirty-quick-2", "abc-dirty-quick-3"} {
		got := lab.FreeFolder(root, b, "quick")
		if date.ReplaceAllString(filepath.Base(got), "") != w || filepath.Dir(got) != root {
			t.Errorf("got %s, want %s", got, w)
		}
		noError(t, os.Mkdir(got, 0o700))
	}
}
