package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"watchlab/bench/lab"
)

// overHTTP are the flags of a short run whose informers decode.
var overHTTP = with(small, "--impl", "ring", "--pipeline", "informer", "--source", "apiserver")

// TestWireFlags: a wire that cannot be played is refused in one line, which names the flag.
func TestWireFlags(t *testing.T) {
	informer := with(small, "--pipeline", "informer")
	for want, args := range map[string][]string{
		"--encoding: needs --source apiserver":                                     with(informer, "--encoding", "protobuf"),
		"--decode: needs --source apiserver":                                       with(informer, "--source", "memory", "--decode", "shared"),
		"--initial-list: needs --source apiserver":                                 {"run", "--family", "deltafifo", "--source", "cluster", "--initial-list", "list"},
		"--encoding: needs --pipeline informer":                                    {"run", "--pipeline", "kubelet", "--source", "apiserver", "--encoding", "json"},
		`--encoding: "xml" is not one of json, protobuf, cbor`:                     with(overHTTP, "--encoding", "xml"),
		`--initial-list: "page" is not one of list, watchlist`:                     with(overHTTP, "--initial-list", "page"),
		`--decode: decode: unknown variant "nobody" (have clientgo-json, `:         with(overHTTP, "--decode", "nobody"),
		"--decode: decode clientgo-json: invalid options: encoding cbor: json onl": with(overHTTP, "--encoding", "cbor", "--decode", "clientgo-json"),
		"--decode: decode shared: invalid options: encoding cbor":                  with(overHTTP, "--encoding", "cbor", "--decode", "shared"),
	} {
		code, out, errs := call(t, args...)
		if code != exitUsage || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q; want 2, nothing, one line with %q", args, code, out, errs, want)
		}
	}
}

// TestWireNames: the encoding and the decoder, given or not, are parts of a cell's name once one of
// them is given.
func TestWireNames(t *testing.T) {
	for want, flags := range map[string][]string{
		"/storm=tiny/rate=max": nil,
		"/storm=tiny/encoding=json/decode=clientgo-json/rate=max":                   {"--encoding", "json"},
		"/storm=tiny/encoding=cbor/decode=clientgo-cbor/rate=max":                   {"--encoding", "cbor"},
		"/storm=tiny/encoding=protobuf/decode=clientgo-protobuf-transform/rate=max": {"--decode", "clientgo-protobuf-transform"},
		"/storm=tiny/encoding=json/decode=clientgo-json/initial-list=list/rate=max": {"--initial-list", "list"},
		"/storm=tiny/encoding=protobuf/decode=parallel/initial-list=list/rate=max":  {"--decode", "parallel", "--encoding", "protobuf", "--initial-list", "list"},
	} {
		code, out, errs := call(t, with(with(overHTTP, flags...), "-o", "bench")...)
		if code != exitOK || !strings.Contains(out, "BenchmarkInformer/impl=ring/delivery=in-order/pipeline=informer/source=apiserver"+want) {
			t.Errorf("%q: exit code %d, stderr %q, no %s in %q", flags, code, errs, want, out)
		}
	}
}

// TestWireScale compares the decoders.
func TestWireScale(t *testing.T) {
	o, out := sweepRun(t, append([]string{"scale", "--over", "decode=clientgo-protobuf,shared"}, overHTTP[1:]...)...)
	found := slices.ContainsFunc(o.Comparisons[0].Cells, func(c lab.CellResult) bool { return c.Label("decode") == "shared" && len(c.Rounds) > 0 })
	if !found || !strings.Contains(out, "shared") {
		t.Errorf("%+v, %s", o.Comparisons[0].Cells, out)
	}
}

// TestWireResume: a resumed run plays the same wire.
func TestWireResume(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	args := with(overHTTP, "--encoding", "protobuf", "--decode", "shared", "--initial-list", "watchlist", "--rounds", "3", "--out", dir)
	killAfter(t, dir, 1, args)
	t.Setenv(asCommand, "1")
	if code, _, errs := call(t, "run", "--resume", dir); code != exitOK {
		t.Fatalf("exit code %d, stderr %q", code, errs)
	}
	o, err := lab.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range o.Comparisons[0].Cells {
		if len(c.Rounds) != 3 || !strings.Contains(c.BenchName(), "/encoding=protobuf/decode=shared/initial-list=watchlist/") {
			t.Errorf("%s: %d rounds", c.BenchName(), len(c.Rounds))
		}
	}
}
