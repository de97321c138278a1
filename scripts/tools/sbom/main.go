// Sbom writes what a Go binary is made of beside it, as FILE.spdx.json (SPDX 2.3): the modules by
// the build information in the binary, their checksums and licences. It reads licences in the module
// cache, so run it where the binary was built.
//
//	go run ./sbom FILE…
//
// Exit code 1: a licence is not in the list of allowed ones, or was not found. The same binary gives
// the same file.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(paths []string, stdout, stderr io.Writer) int {
	if len(paths) == 0 {
		fmt.Fprintln(stderr, "sbom: name the binaries")
		return 2
	}
	cache, err := moduleCache()
	for _, path := range paths {
		if err == nil {
			err = write(path, cache, stdout)
		}
		if err != nil {
			fmt.Fprintln(stderr, "sbom:", err)
			return 1
		}
	}
	return 0
}

// write writes path.spdx.json and prints how many modules have which licence.
func write(path, cache string, stdout io.Writer) error {
	b, err := readBinary(path)
	if err != nil {
		return err
	}
	var refused []error
	count := map[string]int{}
	for i, m := range b.modules {
		l, err := licence(cache, m)
		refused = append(refused, err)
		b.modules[i].licence = l
		count[l]++
	}
	if err := errors.Join(refused...); err != nil {
		return err
	}
	if err := writeSPDX(path+".spdx.json", b); err != nil {
		return err
	}
	var kinds []string
	for l, n := range count {
		kinds = append(kinds, fmt.Sprintf("%s %d", l, n))
	}
	slices.Sort(kinds)
	_, err = fmt.Fprintf(stdout, "%s.spdx.json: %d modules (%s)\n", path, len(b.modules), strings.Join(kinds, ", "))
	return err
}
