// Image packs static binaries, one per platform, into an OCI archive. It needs no Docker daemon,
// base image or network. The program is watchlab unless --command names another one.
//
//	go run ./image --ref watchlab:dev --out watchlab.tar --binary linux/amd64=PATH --binary linux/arm64=PATH
//
// `kind load image-archive`, `ctr image import`, `docker load` (Docker 25 or newer) and
// `skopeo copy oci-archive:` read the archive. The same binaries give the same file. The image has
// the SBOM PATH.cdx.json if one is beside a binary.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/google/go-containerregistry/pkg/name"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

var commandName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// run returns the exit code: 2 for bad input, 1 for a failed write.
func run(args []string, stdout, stderr io.Writer) int {
	fl := flag.NewFlagSet("image", flag.ContinueOnError)
	fl.SetOutput(stderr)
	refFlag := fl.String("ref", "watchlab:dev", "name and tag of the image")
	out := fl.String("out", "", "archive file")
	command := fl.String("command", "watchlab", "name of the program, installed as /NAME")
	description := fl.String("description", "The performance lab for the Kubernetes event pipeline", "label: description")
	revision := fl.String("revision", "", "label: commit")
	var binaries []binary
	fl.Func("binary", "binary of a platform, OS/ARCH=PATH; repeatable", func(s string) error {
		b, err := parseBinary(s)
		binaries = append(binaries, b)
		return err
	})
	if err := fl.Parse(args); err != nil {
		return 2
	}
	bad := func(format string, args ...any) int {
		fmt.Fprintf(stderr, "image: "+format+"\n", args...)
		return 2
	}
	ref, err := name.NewTag(*refFlag)
	switch {
	case err != nil:
		return bad("--ref: %v", err)
	case *out == "":
		return bad("--out: name the archive to write")
	case !commandName.MatchString(*command), *command == "etc", *command == "tmp":
		return bad("--command: %q is not allowed (allowed: a lower-case letter, then lower-case letters, digits, - and _; not etc, not tmp)", *command)
	case len(binaries) == 0:
		return bad("--binary: name at least one")
	case fl.NArg() > 0:
		return bad("unexpected argument %q", fl.Arg(0))
	}
	what := program{command: *command, description: *description, revision: *revision}
	idx, err := index(what, binaries)
	if err != nil {
		return bad("--binary: %v", err)
	}
	digest, err := idx.Digest()
	if err == nil {
		err = writeArchive(*out, ref, idx)
	}
	if err != nil {
		fmt.Fprintf(stderr, "image: %s: %v\n", *out, err)
		return 1
	}
	fmt.Fprintf(stdout, "%s %s@%s\n", *out, imageName(ref), digest)
	return 0
}
