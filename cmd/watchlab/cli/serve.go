package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"watchlab/bench/experiment"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	specFlags
	// from is the Spec after file and flags are combined.
	from experiment.Spec

	bind       string
	port       int
	tls        bool
	tokenFile  string
	kubeconfig string
	overwrite  bool
	start      string
	repeat     string
	speed      float64

	// need is the number of watches that start waits for. times is the number of
	// repetitions; 0 for endless.
	need, times int
}

// The values of --start: when the storm's clock starts.
const (
	startFirstWatch = "first-watch"
	startNow        = "now"
)

func newServe() *cobra.Command {
	f := serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a storm as an API server that any controller can be pointed at",
		Long: `serve is a simulated Kubernetes API server for built-in and custom resources, without controllers
and kubelets. With --storm it plays a storm, whose objects clients can change, too.

--start watches:N starts the storm a second after N watches are open. --repeat plays it again
from the beginning, without the clients' changes, when the storm is over or unwatched and N
watches have ended. The kubeconfig has the address, the CA and the token. serve listens on
loopback; another address needs a token.`,
		Example: `  # A node loss, for kubectl and for your controller
  watchlab serve --storm nodeloss --kubeconfig-out kc
  KUBECONFIG=kc kubectl get pods -A -w

  # An empty cluster with your custom resources, over plain HTTP
  watchlab serve --manifest crds/ --tls=false --port 8080`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if f.from, err = f.spec(cmd); err == nil {
				err = f.from.Storm.Validate()
			}
			if err != nil {
				return f.blame(cmd, err)
			}
			return f.serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	f.add(cmd, nil, servedField)
	completeSpec(cmd)
	fl.StringVar(&f.bind, "bind", "127.0.0.1", "address to serve on")
	fl.IntVar(&f.port, "port", 0, "port to serve on; 0 for a free one")
	fl.BoolVar(&f.tls, "tls", true, "HTTPS with a token; else plain HTTP on loopback")
	fl.StringVar(&f.tokenFile, "token-file", "", "file with the bearer token (default: a new one)")
	fl.StringVar(&f.kubeconfig, "kubeconfig-out", "", "file to write the kubeconfig to")
	fl.BoolVar(&f.overwrite, "overwrite", false, "replace the file of --kubeconfig-out, whoever wrote it")
	fl.StringVar(&f.start, "start", startFirstWatch, "start of storm and faults: "+startFirstWatch+", "+startNow+", "+startWatches+"N")
	fl.StringVar(&f.repeat, "repeat", "1", "times that the storm is played, or "+repeatForever)
	fl.Float64Var(&f.speed, "speed", 1, "how many times as fast the storm is played")
	return cmd
}

// servedField reports whether a field of a Spec selects what is served.
func servedField(f experiment.Field) bool {
	return stormField(f) || slices.Contains([]string{"faults", "manifests", "recursive"}, f.Path)
}

func (f *serveFlags) seed() int64 { return cmp.Or(f.from.Seed, 1) }

func (f *serveFlags) address() string { return net.JoinHostPort(f.bind, strconv.Itoa(f.port)) }

// check rejects invalid flags before any file is read.
func (f *serveFlags) check() error {
	var err error
	if f.need, err = parseStart(f.start); err != nil {
		return badFlag("start", err)
	}
	if f.times, err = parseRepeat(cmp.Or(f.repeat, "1")); err != nil {
		return badFlag("repeat", err)
	}
	switch {
	case f.times != 1 && f.from.Storm.Name == "":
		return badFlag("repeat", errors.New("needs --storm"))
	case !(f.speed > 0) || f.speed > 1e6:
		return badFlag("speed", fmt.Errorf("%v is not allowed (allowed: more than 0, at most 1e6)", f.speed))
	case f.port < 0 || f.port > 65535:
		return badFlag("port", fmt.Errorf("%d is no port (allowed: 0 to 65535)", f.port))
	case f.tls && f.kubeconfig == "":
		return badFlag("kubeconfig-out", errors.New("is needed: it holds the CA and the token (or --tls=false, for plain HTTP)"))
	}
	return nil
}

// token returns the required bearer token; "" for none.
func (f *serveFlags) token() (string, error) {
	if f.tokenFile == "" {
		if f.tls {
			return apiserver.NewToken(), nil
		}
		return "", nil
	}
	data, err := os.ReadFile(f.tokenFile)
	if err != nil {
		return "", badFlag("token-file", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", badFlag("token-file", fmt.Errorf("%s: it has to hold one token, without spaces", f.tokenFile))
	}
	return token, nil
}

// service is the simulated API server with its storm.
type service struct {
	flags    *serveFlags
	set      *storm.Set
	prepared []*apiserver.Prepared
	injector *fault.Injector
	server   *apiserver.Server
	token    string
	url      string
	// specs are the faults; objects are the initial objects.
	specs   []fault.Spec
	objects []manifest.Object
	// listener is open for all turns; tls is nil for plain HTTP.
	listener *net.TCPListener
	tls      *tls.Config

	// lists, watches and bytes are the totals of earlier turns.
	lists, watches, bytes int64
}

// prepare does every step that can fail on bad input.
func (f *serveFlags) prepare(ctx context.Context, stdin io.Reader) (*service, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	v := &service{flags: f}
	var err error
	if v.token, err = f.token(); err != nil {
		return nil, err
	}
	if err := apiserver.CheckBind(f.address(), v.token); err != nil {
		return nil, badFlag("bind", err)
	}
	if f.kubeconfig != "" {
		if err := apiserver.CheckKubeconfig(f.kubeconfig, f.overwrite); err != nil {
			return nil, badFlag("kubeconfig-out", fmt.Errorf("%w (--overwrite replaces it)", err))
		}
	}
	var specs []fault.Spec
	for _, text := range f.from.Faults {
		more, err := fault.ParseAll(text)
		if err != nil {
			return nil, badFlag("faults", err)
		}
		specs = append(specs, more...)
	}
	if v.objects, err = f.manifests(ctx, stdin); err != nil {
		return nil, err
	}
	v.set = &storm.Set{}
	if f.from.Storm.Name != "" {
		if v.set, err = f.from.Storm.Load(f.seed()); err != nil {
			return nil, badFlag("storm", err)
		}
	}
	// Faults of the stream are marks of the storm: they happen at the storm's time.
	marks := v.set.MarkFaults()
	for i := range marks {
		marks[i].At = fault.Duration(float64(marks[i].At) / f.speed)
	}
	v.specs = slices.Concat(v.set.Faults, marks, specs)
	budget := store.NewBudget(0)
	for _, s := range v.set.Storms {
		p, err := apiserver.PrepareWith(s, budget)
		if err != nil {
			return nil, badFlag("storm", err)
		}
		v.prepared = append(v.prepared, p)
	}
	return v, v.open()
}

// open creates the server with the initial objects.
func (v *service) open() (err error) {
	if v.injector, err = fault.New(v.specs, v.flags.seed()); err != nil {
		return badFlag("faults", err)
	}
	injector := v.injector
	opts := apiserver.Options{Wrap: func(h http.Handler) http.Handler {
		return apiserver.RequireToken(v.token, injector.Wrap(h))
	}}
	if v.server, err = apiserver.Open(opts, v.prepared...); err != nil {
		return badFlag("storm", err)
	}
	for _, o := range v.objects {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
		if err == nil {
			u := &unstructured.Unstructured{Object: content}
			u.SetGroupVersionKind(o.Kind)
			err = v.server.Create(u)
		}
		if err != nil {
			return badFlag("manifest", fmt.Errorf("%s:%d: %w", o.Source, o.Line, err))
		}
	}
	return nil
}

// manifests reads the initial objects. Objects that others depend on come first.
func (f *serveFlags) manifests(ctx context.Context, stdin io.Reader) ([]manifest.Object, error) {
	if len(f.from.Manifests) == 0 {
		return nil, nil
	}
	objects, err := manifest.Load(ctx, manifest.Options{Filenames: f.from.Manifests, Recursive: f.from.Recursive, Stdin: stdin})
	if err != nil {
		return nil, badFlag("manifest", err)
	}
	rank := map[string]int{"CustomResourceDefinition": -2, "Namespace": -1}
	slices.SortStableFunc(objects, func(a, b manifest.Object) int { return rank[a.Kind.Kind] - rank[b.Kind.Kind] })
	return objects, nil
}

// listen starts serving and writes the kubeconfig.
func (v *service) listen() error {
	f := v.flags
	l, err := net.Listen("tcp", f.address())
	if err != nil {
		return badFlag("bind", err)
	}
	v.listener = l.(*net.TCPListener)
	at := *l.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		// The kubeconfig is for clients on this host, which connect over loopback.
		at.IP = net.IPv4(127, 0, 0, 1)
	}
	kc := apiserver.Kubeconfig{Server: "http://" + at.String(), Token: v.token}
	if f.tls {
		identity, err := apiserver.NewIdentity(time.Now(), at.IP.String())
		if err != nil {
			return err
		}
		v.tls = identity.ServerConfig()
		kc.Server, kc.CA = "https://"+at.String(), identity.CA
	}
	v.url = kc.Server
	if err := v.serveTurn(); err != nil || f.kubeconfig == "" {
		return err
	}
	if err := apiserver.WriteKubeconfig(f.kubeconfig, kc, f.overwrite); err != nil {
		return badFlag("kubeconfig-out", err)
	}
	return nil
}

// serveTurn serves on a duplicate of the listener, which the server closes. A connection
// between two turns waits for the next server.
func (v *service) serveTurn() error {
	file, err := v.listener.File()
	if err != nil {
		return err
	}
	l, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	_, err = v.server.Serve(l, v.tls)
	return err
}

// serve serves until ctx is done.
func (f *serveFlags) serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	v, err := f.prepare(ctx, stdin)
	if err != nil {
		return err
	}
	if err := v.listen(); err != nil {
		return errors.Join(err, v.server.Close())
	}
	v.describe(stdout)
	if err = v.play(ctx, stdout); err == nil {
		<-ctx.Done()
	}
	err = errors.Join(err, v.close(), v.listener.Close())
	fmt.Fprintf(stdout, "served %d lists and %d watches, %.1f MB\n", v.lists, v.watches, float64(v.bytes)/1e6)
	return err
}

// describe prints the served resources and how to connect.
func (v *service) describe(out io.Writer) {
	fmt.Fprintf(out, "simulated Kubernetes %s on %s (%s, %s)\n", resources.Version, v.url, choose(v.flags.tls, "TLS", "plain HTTP"), choose(v.token != "", "token", "no token"))
	for _, s := range v.set.Storms {
		var length time.Duration
		if n := len(s.Events); n > 0 {
			length = s.Events[n-1].At
		}
		fmt.Fprintf(out, "storm %s: %d %s at first, then %d events in %v\n", v.set.Name, s.Initial, s.Resource.GroupResource(),
			len(s.Events)-s.Initial, time.Duration(float64(length)/v.flags.speed).Round(time.Millisecond))
	}
	if n := len(v.objects); n > 0 {
		fmt.Fprintf(out, "manifests: %d objects\n", n)
	}
	for _, spec := range v.injector.Specs() {
		fmt.Fprintf(out, "fault %s\n", spec)
	}
	resource := "pods"
	if len(v.set.Storms) > 0 {
		resource = v.set.Storms[0].Resource.GroupResource().String()
	}
	client := "kubectl --server " + v.url
	if v.flags.kubeconfig != "" {
		client = "KUBECONFIG=" + v.flags.kubeconfig + " kubectl"
	}
	fmt.Fprintf(out, "  %s get %s -A -w\n", client, resource)
	switch {
	case len(v.prepared) > 0 && v.flags.start == startFirstWatch:
		fmt.Fprintf(out, "the storm begins with the first watch; Ctrl-C ends it all\n")
	case len(v.prepared) > 0 && v.flags.need > 0:
		fmt.Fprintf(out, "the storm begins %v after %d watches are open; Ctrl-C ends it all\n", settling, v.flags.need)
	default:
		fmt.Fprintf(out, "Ctrl-C ends it\n")
	}
}
