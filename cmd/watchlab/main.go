// Watchlab plays watch storms through interchangeable implementations of the
// Kubernetes event pipeline and compares them. See watchlab help.
package main

import (
	"os"

	"watchlab/cmd/watchlab/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
