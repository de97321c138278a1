package cli

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"watchlab/bench/client"
	"watchlab/bench/controller/program"
	"watchlab/bench/lab"
)

func newClient() *cobra.Command {
	var names []string
	var within time.Duration
	var s study[*client.Result]
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Try a watch client, in any language, against what API servers do",
		Long: `client starts PROGRAM with KUBECONFIG and an API server that behaves as servers do: it compresses,
throttles, forgets its history, cuts events in two, vanishes. PROGRAM keeps a view of the configmaps of namespace
default; for each line "view" of its standard input it writes a line "NAME VERSION" for each object, and then "end".
A behaviour fails a program whose view does not become the server's, that ends, or that hammers the server.

The results folder has client.json and, for each behaviour, the log of PROGRAM and its requests. Exit code: 1 if a
behaviour failed. docs/client.md has adapters for Go, JavaScript and Python.`,
		Example: `  watchlab client -- ./my-view
  watchlab client --behaviours gzip,vanish -- node examples/client/view.mjs`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.required(cmd, args, "./my-view"); err != nil {
				return err
			}
			if err := program.Check(args); err != nil {
				return usageError{err}
			}
			behaviours, err := client.Named(names)
			if err != nil {
				return badFlag("behaviours", err)
			}
			if within < time.Second {
				return badFlag("within", fmt.Errorf("%v is less than 1s", within))
			}
			if _, err := s.options(cmd); err != nil {
				return err
			}
			if err := lab.MakeDir(s.dir); err != nil {
				return badFlag("out", err)
			}
			absolute, err := filepath.Abs(s.dir)
			if err != nil {
				return err
			}
			stderr := cmd.ErrOrStderr()
			warn(stderr, "%d behaviours, two minutes if most pass", len(behaviours))
			result, err := client.Run(cmd.Context(), client.Options{
				Command: args, Behaviours: behaviours, Within: within, Dir: absolute, Build: build(),
				Done: func(o client.Outcome) { warn(stderr, "%s: %s", o.Behaviour, o.Verdict) },
			})
			if err != nil {
				return err
			}
			return s.conclude(cmd, result, result.Interrupted, result.Failed(), nil)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&names, "behaviours", nil, "those to play, and plain (default: "+strings.Join(client.Names(), ", ")+")")
	fl.DurationVar(&within, "within", 90*time.Second, "bound for the view to be the server's state, from the last change")
	s.add(cmd, method((*client.Result).Text))
	return cmd
}
