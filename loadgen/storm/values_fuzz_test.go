package storm_test

import (
	"errors"
	"testing"
	"time"

	"watchlab/loadgen/storm"
)

// FuzzValues: a skew and a share are those that they print, or an error.
func FuzzValues(f *testing.F) {
	for _, s := range []string{"uniform", "zipf:1.1", "zipf:", "zipf:0.0000000000000000000000001", "zipf:00010", "0/4", "3/4", "-1/4", "0/10001", "9223372036854775808/1", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		if s, err := storm.ParseSkew(text); err == nil {
			if again, err := storm.ParseSkew(s.String()); err != nil || again != s {
				t.Fatalf("%q is %q, then %q, %v", text, s, again, err)
			}
		} else if !errors.Is(err, storm.ErrSkew) {
			t.Fatal(err)
		}
		if s, err := storm.ParseShare(text); err == nil {
			if s.String() != text || s.Validate() != nil {
				t.Fatalf("%q is %q", text, s)
			}
			s.Has(text)
		} else if !errors.Is(err, storm.ErrShare) {
			t.Fatal(err)
		}
	})
}
