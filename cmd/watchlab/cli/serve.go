package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"watchlab/bench/experiment"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
)

// service are the flags of serve.
type service struct {
	specFlags[experiment.Spec]
	from experiment.Spec // of file and flags

	bind      string
	port      uint16
	manifests manifest.Options
	opts      apiserver.ServiceOptions
}

func newServe() *cobra.Command {
	var v service
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a storm as an API server that any controller can be pointed at",
		Long: `serve is a simulated Kubernetes API server for built-in and custom resources, without controllers
and kubelets. With --storm it plays a storm, whose objects clients can change, too.

--start N starts the storm when N watches are open; with several, a second later. The kubeconfig has
the address, the CA and the token. serve listens on loopback; another address needs TLS, or
--insecure-listen and a token.`,
		Example: `  # A node loss, for kubectl and for your controller
  watchlab serve --storm nodeloss --kubeconfig-out kc
  KUBECONFIG=kc kubectl get pods -A -w

  # An empty cluster with your custom resources, over plain HTTP
  watchlab serve --manifest crds/ --tls=false --port 8080`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if v.from, err = v.read(cmd); err != nil {
				return err
			}
			if err := v.from.Storm.Validate(); err != nil {
				return v.blame(cmd, err)
			}
			return v.serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	v.addFile(cmd, "experiment", experimentUsage)
	v.add(cmd, func(f experiment.Field) bool { return stormField(f) || f.Path == "faults" })
	fl.StringArrayVar(&v.manifests.Filenames, "manifest", nil, "manifests of objects to begin with: files, folders, URLs, -")
	fl.BoolVarP(&v.manifests.Recursive, "recursive", "R", false, "read subfolders of --manifest (default false)")
	fl.StringVar(&v.bind, "bind", "127.0.0.1", "address to serve on")
	fl.Uint16Var(&v.port, "port", 0, "port to serve on; 0 for a free one")
	fl.BoolVar(&v.opts.Access.TLS, "tls", true, "HTTPS with a token; else plain HTTP on loopback")
	fl.BoolVar(&v.opts.Access.Insecure, "insecure-listen", false, "plain HTTP with a token beyond loopback (default false)")
	fl.StringVar(&v.opts.TokenFile, "token-file", "", "file with the bearer token (default: a new one)")
	fl.StringVar(&v.opts.Kubeconfig, "kubeconfig-out", "", "file to write the kubeconfig to")
	fl.BoolVar(&v.opts.Overwrite, "overwrite", false, "replace the file of --kubeconfig-out, whoever wrote it")
	fl.BoolVar(&v.opts.Graceful, "graceful", false, "leave deletions to a kubelet, a garbage collector and a namespace controller beside (default false)")
	fl.IntVar(&v.opts.Start, "start", 1, "watches that start storm and faults; 0 for now")
	fl.Float64Var(&v.opts.Speed, "speed", 1, "how many times as fast the storm is played")
	return cmd
}

func (v *service) serve(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	o := &v.opts
	if err := o.Complete(); err != nil {
		return badField(err)
	}
	o.Address, o.Seed = net.JoinHostPort(v.bind, strconv.Itoa(int(v.port))), cmp.Or(v.from.Seed, 1)
	if o.Faults, err = fault.ParseAll(v.from.Faults...); err != nil {
		return badFlag("faults", err)
	}
	if v.manifests.Stdin = stdin; len(v.manifests.Filenames) > 0 {
		o.Objects, err = manifest.Load(ctx, v.manifests)
		if err != nil {
			return badFlag("manifest", err)
		}
		warnEach(stderr, manifest.Settle(o.Objects), func(line string) string { return line })
	}
	o.Set = &storm.Set{}
	if v.from.Storm.Name != "" {
		if o.Set, err = v.from.Storm.Load(o.Seed); err != nil {
			return badFlag("storm", err)
		}
	}
	o.Say = func(text string) { fmt.Fprintln(stdout, text) }
	s, err := apiserver.NewService(*o)
	if err == nil {
		err = s.Run(ctx, stdout)
	}
	return badField(err)
}
