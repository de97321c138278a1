package storm_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"watchlab/loadgen/storm"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestGolden: a seed gives the same storm in every release, so results stay comparable.
// testdata/storms.txt has a digest of each profile's storms.
func TestGolden(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine")
	}
	const golden = "testdata/storms.txt"
	var now strings.Builder
	for _, name := range storm.Names() {
		set := setOf(t, small(t, name), 1)
		h := sha256.New()
		events := 0
		for _, s := range set.Storms {
			fmt.Fprintln(h, s.Name, s.Resource, s.Kind, s.Initial, s.Keys, s.Marks)
			for _, e := range s.Events {
				o := must(json.Marshal(e.Object))(t)
				fmt.Fprintf(h, "%s %d %d %s %d %s\n", e.Type, e.Seq, e.At, e.Key, e.KeyIndex, o)
			}
			events += len(s.Events)
		}
		fmt.Fprintln(h, set.Phases)
		fmt.Fprintf(&now, "%s %d %s\n", name, events, hex.EncodeToString(h.Sum(nil)[:8]))
	}
	if *update {
		noError(t, os.WriteFile(golden, []byte(now.String()), 0o600))
	}
	old := must(os.ReadFile(golden))(t)
	if diff := cmp.Diff(string(old), now.String()); diff != "" {
		t.Error(diff)
	}
}
