package chart

import (
	"math"
	"testing"
)

func TestFormats(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{Number(0), "0"}, {Number(-2.5), "-2.50"}, {Number(3), "3"}, {Number(0.0000012), "<0.001"}, {Number(0.04), "0.04"},
		{Number(3.14159), "3.14"}, {Number(31.4159), "31.4"}, {Number(314.159), "314"}, {Number(99.96), "100"}, {Number(1234567), "1.235M"},
		{Bytes(232.25), "232"}, {Bytes(232000), "226.6Ki"},
		{Nanoseconds(0), "0ns"}, {Nanoseconds(999), "999ns"}, {Nanoseconds(999.7), "1.00µs"}, {Nanoseconds(1500), "1.50µs"},
		{Nanoseconds(999700), "1.00ms"}, {Nanoseconds(12e6), "12ms"}, {Nanoseconds(2.5e9), "2.50s"},
		{Times(1), "1.00×"}, {Times(0.02), "50.0× lower"}, {Times(3.412), "3.41×"}, {Times(34.12), "34.1×"}, {Times(341.2), "341×"},
		{Number(math.NaN()), "-"}, {Number(math.Inf(1)), "-"}, {Decimal(math.NaN()), "-"}, {Nanoseconds(math.Inf(1)), "-"}, {Bytes(math.NaN()), "-"},
		{Nanoseconds(9.98e-11), "<0.001ns"},
		{Times(math.NaN()), "-"}, {Ratio(0.5), "0.5×"},
		{Count(0), "0"}, {Count(999_999), "1M"}, {Count(12_500), "12.5k"}, {Count(2e9), "2G"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}
