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

	"watchlab/bench/experiment"
	"watchlab/bench/telemetry/live"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/apiserver/store"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
)

// service is the simulated API server with its storm.
type service struct {
	specFlags
	from experiment.Spec // of file and flags

	bind       string
	port       int
	plain      bool
	insecure   bool // plain HTTP beyond loopback
	tokenFile  string
	kubeconfig string
	overwrite  bool
	start      int // watches that start the storm
	repeat     int // times that it is played; 0 for endless
	speed      float64
	page       string // address of the page; empty for none

	set      *storm.Set
	prepared []*apiserver.Prepared
	injector *fault.Injector
	server   *apiserver.Server
	player   *apiserver.Player
	stage    stage // for the page
	token    string
	url      string
	faults   []fault.Spec      // that each turn begins with
	objects  []manifest.Object // that each turn begins with
	listener *net.TCPListener  // open for all turns
	tls      *tls.Config       // nil for plain HTTP

	lists, watches, bytes int64 // totals of earlier turns
}

// settling is the time between the last of several watches and the storm, for the initial lists.
const settling = time.Second

func newServe() *cobra.Command {
	var v service
	encrypted := true
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a storm as an API server that any controller can be pointed at",
		Long: `serve is a simulated Kubernetes API server for built-in and custom resources, without controllers
and kubelets. With --storm it plays a storm, whose objects clients can change, too.

--page serves a page on loopback, on a free port or as in --page=127.0.0.1:8081. It holds the storm where
your controller breaks: pause, step by events, seek, change the speed. The printed link opens it once.

--start N starts the storm when N watches are open; with several, a second later. --repeat plays
it again from the beginning, without the clients' changes, when the storm is over or unwatched and
N watches have ended. The kubeconfig has the address, the CA and the token. serve listens on
loopback; another address needs TLS, or --insecure-listen and a token.`,
		Example: `  # A node loss, for kubectl and for your controller
  watchlab serve --storm nodeloss --kubeconfig-out kc
  KUBECONFIG=kc kubectl get pods -A -w

  # An empty cluster with your custom resources, over plain HTTP
  watchlab serve --manifest crds/ --tls=false --port 8080`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if v.from, err = v.spec(cmd); err != nil {
				return err
			}
			if err := v.from.Storm.Validate(); err != nil {
				return v.blame(cmd, err)
			}
			v.plain = !encrypted
			return v.serve(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	fl := cmd.Flags()
	v.add(cmd, nil, servedField)
	completeSpec(cmd)
	fl.StringVar(&v.bind, "bind", "127.0.0.1", "address to serve on")
	fl.IntVar(&v.port, "port", 0, "port to serve on; 0 for a free one")
	fl.BoolVar(&encrypted, "tls", true, "HTTPS with a token; else plain HTTP on loopback")
	fl.BoolVar(&v.insecure, "insecure-listen", false, "plain HTTP with a token beyond loopback (default false)")
	fl.StringVar(&v.tokenFile, "token-file", "", "file with the bearer token (default: a new one)")
	fl.StringVar(&v.kubeconfig, "kubeconfig-out", "", "file to write the kubeconfig to")
	fl.BoolVar(&v.overwrite, "overwrite", false, "replace the file of --kubeconfig-out, whoever wrote it")
	fl.IntVar(&v.start, "start", 1, "watches that start storm and faults; 0 for now")
	fl.IntVar(&v.repeat, "repeat", 1, "times that the storm is played; 0 for endless")
	fl.Float64Var(&v.speed, "speed", 1, "how many times as fast the storm is played")
	fl.StringVar(&v.page, "page", "", "serve a page that pauses, steps and seeks (default none)")
	fl.Lookup("page").NoOptDefVal = pageAddress
	return cmd
}

func servedField(f experiment.Field) bool {
	return stormField(f) || slices.Contains([]string{"faults", "manifests", "recursive"}, f.Path)
}

func (v *service) seed() int64 { return cmp.Or(v.from.Seed, 1) }

func (v *service) address() string { return net.JoinHostPort(v.bind, strconv.Itoa(v.port)) }

func (v *service) check() error {
	switch {
	case v.start < 0:
		return badFlag("start", fmt.Errorf("%d is negative", v.start))
	case v.repeat < 0:
		return badFlag("repeat", fmt.Errorf("%d is negative", v.repeat))
	case v.repeat != 1 && v.from.Storm.Name == "":
		return badFlag("repeat", errors.New("needs --storm"))
	case !(v.speed > 0) || v.speed > 1e6:
		return badFlag("speed", fmt.Errorf("%v is not allowed (allowed: more than 0, at most 1e6)", v.speed))
	case v.page != "" && v.from.Storm.Name == "":
		return badFlag("page", errors.New("needs --storm"))
	case v.port < 0 || v.port > 65535:
		return badFlag("port", fmt.Errorf("%d is no port (allowed: 0 to 65535)", v.port))
	case !v.plain && v.kubeconfig == "":
		return badFlag("kubeconfig-out", errors.New("is needed: it holds the CA and the token (or --tls=false, for plain HTTP)"))
	case v.insecure && v.kubeconfig == "" && v.tokenFile == "":
		return badFlag("kubeconfig-out", errors.New("is needed: it holds the token (or --token-file)"))
	}
	return nil
}

func (v *service) readToken() (string, error) {
	if v.tokenFile == "" {
		if v.plain && !v.insecure {
			return "", nil
		}
		return apiserver.NewToken(), nil
	}
	data, err := os.ReadFile(v.tokenFile)
	if err != nil {
		return "", badFlag("token-file", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", badFlag("token-file", fmt.Errorf("%s: it has to hold one token, without spaces", v.tokenFile))
	}
	return token, nil
}

// prepare does every step that can fail on bad input.
func (v *service) prepare(ctx context.Context, stdin io.Reader) (err error) {
	if err := v.check(); err != nil {
		return err
	}
	if v.token, err = v.readToken(); err != nil {
		return err
	}
	if v.kubeconfig != "" {
		if err := apiserver.CheckKubeconfig(v.kubeconfig, v.overwrite); err != nil {
			return badFlag("kubeconfig-out", fmt.Errorf("%w (--overwrite replaces it)", err))
		}
	}
	var given []fault.Spec
	for _, text := range v.from.Faults {
		more, err := fault.ParseAll(text)
		if err != nil {
			return badFlag("faults", err)
		}
		given = append(given, more...)
	}
	if len(v.from.Manifests) > 0 {
		v.objects, err = manifest.Load(ctx, manifest.Options{Filenames: v.from.Manifests, Recursive: v.from.Recursive, Stdin: stdin})
		if err != nil {
			return badFlag("manifest", err)
		}
	}
	v.set = &storm.Set{}
	if v.from.Storm.Name != "" {
		if v.set, err = v.from.Storm.Load(v.seed()); err != nil {
			return badFlag("storm", err)
		}
	}
	// Faults of the stream are marks of the storm: they happen at the storm's time.
	marks := v.set.MarkFaults()
	for i := range marks {
		marks[i].At = fault.Duration(float64(marks[i].At) / v.speed)
	}
	v.faults = slices.Concat(marks, given)
	budget := store.NewBudget(0)
	for _, s := range v.set.Storms {
		p, err := apiserver.PrepareWith(s, budget)
		if err != nil {
			return badFlag("storm", err)
		}
		v.prepared = append(v.prepared, p)
	}
	return v.open()
}

// open creates the server of a turn with the initial objects.
func (v *service) open() (err error) {
	if v.injector, err = fault.New(v.faults, v.seed()); err != nil {
		return badFlag("faults", err)
	}
	injector := v.injector
	opts := apiserver.Options{Wrap: func(h http.Handler) http.Handler {
		return apiserver.RequireToken(v.token, injector.Wrap(h))
	}}
	if v.server, err = apiserver.Open(opts, v.prepared...); err != nil {
		return badFlag("storm", err)
	}
	if err := v.server.CreateAll(v.objects); err != nil {
		return badFlag("manifest", err)
	}
	v.player = apiserver.NewPlayer(v.server, v.prepared, v.speed)
	v.stage.set(v.server, v.player, v.injector)
	return nil
}

// listen starts serving and writes the kubeconfig.
func (v *service) listen() error {
	l, err := apiserver.Access{Token: v.token, TLS: !v.plain, Insecure: v.insecure}.Listen(v.address())
	if err != nil {
		return badFlag("bind", err)
	}
	v.listener = l.(*net.TCPListener)
	at := *l.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		// Clients on this host connect over loopback.
		at.IP = net.IPv4(127, 0, 0, 1)
	}
	kc := apiserver.Kubeconfig{Server: "http://" + at.String(), Token: v.token}
	if !v.plain {
		identity, err := apiserver.NewIdentity(time.Now(), at.IP.String())
		if err != nil {
			return err
		}
		v.tls = identity.ServerConfig()
		kc.Server, kc.CA = "https://"+at.String(), identity.CA
	}
	v.url = kc.Server
	if err := v.serveTurn(); err != nil || v.kubeconfig == "" {
		return err
	}
	if err := apiserver.WriteKubeconfig(v.kubeconfig, kc, v.overwrite); err != nil {
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

func (v *service) serve(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	if err := v.prepare(ctx, stdin); err != nil {
		return err
	}
	if err := v.listen(); err != nil {
		return errors.Join(err, v.server.Close())
	}
	say := func(text string) { fmt.Fprintln(stdout, text) }
	closePage, err := startPage(live.StormOptions{
		Addr: v.page, Token: v.token, Status: func() live.StormStatus { return v.stage.status(v.from.Storm.Name) },
		Transport: v.stage.transport, Warn: say,
	}, "pauses the storm, steps, seeks and changes its speed", say)
	if err != nil {
		return errors.Join(err, v.server.Close(), v.listener.Close())
	}
	v.describe(stdout)
	err = v.play(ctx, stdout)
	if err == nil {
		<-ctx.Done()
	}
	err = errors.Join(err, closePage(), v.close(), v.listener.Close())
	fmt.Fprintf(stdout, "served %d lists and %d watches, %.1f MB\n", v.lists, v.watches, float64(v.bytes)/1e6)
	return err
}

func (v *service) describe(out io.Writer) {
	fmt.Fprintf(out, "simulated Kubernetes %s on %s (%s, %s)\n", resources.Version, v.url, choose(v.plain, "plain HTTP", "TLS"), choose(v.token != "", "token", "no token"))
	resource := "pods"
	for i, s := range v.set.Storms {
		if i == 0 {
			resource = s.Resource.GroupResource().String()
		}
		var length time.Duration
		if n := len(s.Events); n > 0 {
			length = s.Events[n-1].At
		}
		fmt.Fprintf(out, "storm %s: %d %s at first, then %d events in %v\n", v.set.Name, s.Initial, s.Resource.GroupResource(),
			len(s.Events)-s.Initial, time.Duration(float64(length)/v.speed).Round(time.Millisecond))
	}
	if n := len(v.objects); n > 0 {
		fmt.Fprintf(out, "manifests: %d objects\n", n)
	}
	for _, spec := range v.injector.Specs() {
		fmt.Fprintf(out, "fault %s\n", spec)
	}
	client := "kubectl --server " + v.url
	if v.kubeconfig != "" {
		client = "KUBECONFIG=" + v.kubeconfig + " kubectl"
	}
	fmt.Fprintf(out, "  %s get %s -A -w\n", client, resource)
	switch {
	case len(v.prepared) == 0 || v.start == 0:
	case v.start == 1:
		fmt.Fprint(out, "the storm begins with the first watch; ")
	default:
		fmt.Fprintf(out, "the storm begins %v after %d watches are open; ", settling, v.start)
	}
	fmt.Fprintln(out, "Ctrl-C ends it")
}

// play plays all turns. Each has a new server with the initial objects: all watches end and
// clients list again, as after a restore of etcd.
func (v *service) play(ctx context.Context, out io.Writer) error {
	for n := 1; v.playOnce(ctx, out) && n != v.repeat && len(v.prepared) > 0; n++ {
		if err := v.close(); err != nil {
			return err
		}
		if err := v.open(); err != nil {
			return err
		}
		if err := v.serveTurn(); err != nil {
			return err
		}
		fmt.Fprintln(out, "everything is as it was at first")
	}
	return nil
}

// close closes the current server and adds its counts to the totals.
func (v *service) close() error {
	v.injector.Stop()
	err := v.server.Close()
	v.lists += v.server.Lists()
	v.watches += v.server.Watches()
	v.bytes += v.server.WireBytes()
	return err
}

// playOnce plays a turn; false if ctx has ended. Before a repetition it waits until as many
// watches have ended as started the storm: after the storm and its faults, or earlier.
func (v *service) playOnce(ctx context.Context, out io.Writer) bool {
	if v.server.AwaitWatches(ctx, func(open, ended int) bool {
		// The first watch may have ended already.
		return open >= v.start || v.start == 1 && ended > 0
	}) != nil {
		return false
	}
	if v.start > 1 {
		select {
		case <-time.After(settling):
		case <-ctx.Done():
			return false
		}
	}
	if err := v.injector.Start(); err != nil {
		fmt.Fprintf(out, "faults: %v\n", err)
	}
	if len(v.prepared) == 0 {
		return true
	}
	fmt.Fprintln(out, "the storm begins")
	repeats := v.repeat != 1
	gone := func(since int) func(int, int) bool {
		return func(_, ended int) bool { return ended-since >= v.start }
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	faults := len(v.injector.Specs()) > 0
	if repeats && v.start > 0 && !faults {
		go func() {
			if v.server.AwaitWatches(playing, gone(0)) == nil {
				stop()
			}
		}()
	}
	v.stage.begin()
	err := v.player.Run(playing)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		fmt.Fprintf(out, "the storm ends before its time: nobody watches it any more\n")
		return true
	}
	fmt.Fprintln(out, "the storm is over; what it left is still served")
	if !repeats {
		return true
	}
	since := 0
	if faults {
		v.injector.Stop()
		_ = v.server.AwaitWatches(ctx, func(_, ended int) bool { since = ended; return true }) // It doesn't wait.
	}
	return v.server.AwaitWatches(ctx, gone(since)) == nil
}
