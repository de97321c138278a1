// The command player plays one round with the client-go that it is built with. It reads a
// [round.Request] as JSON from standard input and writes the result of [lab.WriteResult] to
// standard output. scripts/program.sh clientgo@0.33 builds it with client-go v0.33.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"watchlab/bench/cell"
	"watchlab/bench/clientgo/round"
	"watchlab/bench/lab"
)

func main() {
	var request round.Request
	var result cell.Result
	err := json.NewDecoder(os.Stdin).Decode(&request)
	if err != nil {
		err = fmt.Errorf("standard input: %w", err)
	} else {
		result, err = request.Play(context.Background())
	}
	if err := lab.WriteResult(os.Stdout, result, err); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
