package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// recordings is the variable that names a folder of recorded watches, in folders of their own.
const recordings = "WATCHLAB_RECORDINGS"

// TestRecordings compares the watches of each variant, in each encoding, with client-go's, for recordings
// that the repository does not have: of events, jobs, endpoint slices, leases, nodes, deployments and
// replica sets.
func TestRecordings(t *testing.T) {
	folder := os.Getenv(recordings)
	if folder == "" {
		t.Skip(recordings + " names no folder with */*.jsonl.gz")
	}
	files, err := filepath.Glob(filepath.Join(folder, "*", "*.jsonl.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings in %s: %v", folder, err)
	}
	most, chunk := 1<<20, 250
	if !*long {
		most = chunk
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			objs, types := recordedObjects(t, Protobuf, file, most)
			for _, e := range encodings {
				compared := variantsOf(t, e)
				for i := 0; i < len(objs); i += chunk {
					end := min(i+chunk, len(objs))
					body := watchBody(t, e, objs[i:end], types[i:end])
					for _, c := range compared {
						if err := c.compare(t, body); err != nil {
							t.Fatalf("%s, %s: event %d and more: %v", c.name, e, i, err)
						}
					}
				}
			}
		})
	}
}

// comparison is a variant and what it is compared with.
type comparison struct {
	name     string
	d, exact Decoder
}

func variantsOf(t *testing.T, e Encoding) []comparison {
	var all []comparison
	for _, v := range Variants() {
		d, err := v.New(Options{Encoding: e})
		if err != nil || v.Baseline() && v.Guarantees[0].Strips == "" {
			continue
		}
		exact := "clientgo-" + string(e)
		if v.Guarantees[0].Strips != "" {
			exact += "-transform"
		}
		all = append(all, comparison{v.Name, d, decoder(t, exact, Options{})})
	}
	return all
}

func (c comparison) compare(t *testing.T, body []byte) error {
	want, got := c.exact.Watch(io.NopCloser(bytes.NewReader(body))), c.d.Watch(io.NopCloser(bytes.NewReader(body)))
	defer want.Close()
	defer got.Close()
	for i := 0; ; i++ {
		wantType, wantObj, wantErr := want.Decode()
		if c.name == "metadata" && wantErr == nil {
			wantObj = partialOf(t, wantObj)
		}
		gotType, gotObj, gotErr := got.Decode()
		if gotType != wantType || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || !reflect.DeepEqual(gotObj, wantObj) {
			return fmt.Errorf("+%d: %v %+v, %w, client-go has %v %+v, %w", i, gotType, gotObj, gotErr, wantType, wantObj, wantErr)
		}
		if errors.Is(wantErr, io.EOF) {
			return nil
		}
		if wantErr != nil {
			return wantErr
		}
	}
}
