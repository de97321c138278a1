package workload

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"watchlab/loadgen/manifest"
)

// many matches a number that may ask for more objects or requests than a fuzzer has time for.
var many = regexp.MustCompile(`[0-9_]{4}|[0-9][ehm.+o]|0x`)

// FuzzParse: a file has requests in order of time, or an error of one line that names it. Paths of manifests are
// not read.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		data, err := builtin.ReadFile("builtin/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, s := range []string{
		"objects:\n- " + object + "\n  copies: 2\n  create: {at: 1s, rate: 900}\n  change: [{for: 1ms, rate: 900, set: {a.b[c.d]: [1, '{n}{now}']}}]\n  delete: {rate: .nan, share: 1}\n",
		"objects: [{object: &a {a: *a}}]", "objects: [{object: {kind: a, apiVersion: b, metadata: {name: c}}, change: [null]}]", "objects: [*a]", "objects:\n- copies: 1000001", "a", "objects: &a [{change: *a}]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		if strings.Contains(string(data), "manifest") || many.Match(data) {
			return
		}
		w, err := parse("f.yaml", t.TempDir(), data, 1)
		if err != nil {
			var at *manifest.Error
			if !errors.As(err, &at) || at.Line < 0 {
				t.Fatalf("%q", err)
			}
			return
		}
		last := time.Duration(0)
		for i, a := range w.actions {
			if a.At < last {
				t.Fatalf("request %d at %v, after %v", i, a.At, last)
			}
			if last = a.At; i > 10_000 {
				break
			}
		}
	})
}
