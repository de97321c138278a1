package apiserver

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/sharding"
)

// shardRange is one range of a shard selector, with its bounds in quotes.
var (
	shardRange = regexp.MustCompile(`^\s*\(*\s*shardRange\(\s*([\w.]+)\s*,\s*(?:'([^']*)'|"([^"]*)")\s*,\s*(?:'([^']*)'|"([^"]*)")\s*\)\s*\)*\s*$`)
	shardBound = regexp.MustCompile(`^0x([0-9a-f]{16}|10000000000000000)$`)
)

// badShards is a failure of the server, without a reason, as in a real one.
func badShards(format string, args ...any) error {
	return refused(http.StatusInternalServerError, "", "invalid shard selector: "+fmt.Sprintf(format, args...))
}

// parseShards reads the parameter shardSelector (KEP-5866): ranges of the 64-bit FNV-1a hash of an object's uid or
// namespace, joined by ||. A real server reads it with CEL's parser (k8s.io/apiserver v0.37.2, pkg/sharding), whose
// messages differ for what is no range.
func parseShards(text string) (sharding.Selector, error) {
	var ranges []sharding.ShardRangeRequirement
	for part := range strings.SplitSeq(text, "||") {
		m := shardRange.FindStringSubmatch(part)
		if m == nil {
			return nil, badShards("%q is no shardRange(field, start, end)", strings.TrimSpace(part))
		}
		r := sharding.ShardRangeRequirement{Key: m[1], Start: m[2] + m[3], End: m[4] + m[5]}
		if r.Key != "object.metadata.uid" && r.Key != "object.metadata.namespace" {
			return nil, badShards("unsupported field path %q; supported: object.metadata.uid, object.metadata.namespace", r.Key)
		}
		for _, b := range []struct{ name, value string }{{"hexStart", r.Start}, {"hexEnd", r.End}} {
			if err := checkBound(b.name, b.value); err != nil {
				return nil, badShards("%v", err)
			}
		}
		if !sharding.HexLess(r.Start, r.End) {
			return nil, badShards("shard range start %s must be less than end %s", r.Start, r.End)
		}
		ranges = append(ranges, r)
	}
	for _, r := range ranges {
		if r.Key != ranges[0].Key {
			return nil, badShards("all shard ranges must use the same field, got %q and %q", ranges[0].Key, r.Key)
		}
	}
	return sharding.NewSelector(ranges...), nil
}

func checkBound(name, value string) error {
	hex, ok := strings.CutPrefix(value, "0x")
	bad := strings.IndexFunc(hex, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
	switch {
	case shardBound.MatchString(value):
		return nil
	case !ok:
		return fmt.Errorf("%s must have '0x' prefix, got %q", name, value)
	case hex == "":
		return fmt.Errorf("%s: hex value is required after '0x'", name)
	case len(hex) > 17:
		return fmt.Errorf("%s: hex value too long (%d chars, max 17): %q", name, len(hex), hex)
	case bad >= 0:
		return fmt.Errorf("%s: invalid hex character %q in %q", name, hex[bad:bad+1], value)
	case len(hex) == 17:
		return fmt.Errorf("%s: 17-digit hex value must be '0x10000000000000000' (2^64), got %q", name, value)
	}
	return fmt.Errorf("%s must be a 0x-prefixed 16-digit hex value, got %q (did you mean %q?)", name, value, "0x"+strings.Repeat("0", 16-len(hex))+hex)
}
