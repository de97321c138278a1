package pace

import (
	"errors"
	"testing"
	"time"
)

// FuzzBudget: a budget is the one that it prints, or an error.
func FuzzBudget(f *testing.F) {
	for _, s := range []string{"1%,1ms", "1ms", "100%", "0.0000001%", "1%,1%", "-1ms", "1h,", "0x1p-1074%", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		defer time.AfterFunc(time.Minute, func() { panic("more than a minute for one input") }).Stop()
		b, err := ParseBudget(text)
		if err != nil {
			if !errors.Is(err, ErrBudget) {
				t.Fatal(err)
			}
			return
		}
		again, err := ParseBudget(b.String())
		if err != nil || again.String() != b.String() || again.Fixed != b.Fixed {
			t.Fatalf("%q is %q, then %q, %v", text, b, again, err)
		}
		if l := b.Limit(Pace{}.Schedule(Score{Events: 2, At: func(i int) time.Duration { return time.Duration(i) }}), 2); l < 1 {
			t.Fatalf("%q: limit %v", text, l)
		}
	})
}
