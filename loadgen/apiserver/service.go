package apiserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"watchlab/loadgen/apiserver/resources"
	"watchlab/loadgen/fault"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/storm"
)

// ServiceOptions configure a [Service].
type ServiceOptions struct {
	Set     *storm.Set        // storms; empty for none
	Faults  []fault.Spec      // beside those of the storms
	Objects []manifest.Object // that exist at first
	Seed    int64             // of the faults
	Speed   float64           // how many times as fast the storm is played
	Start   int               // watches that start the storm; 0 for now
	Repeat  int               // times that it is played; 0 for endless

	Graceful bool // deletions wait for kubelets, a garbage collector and a namespace controller, clients that run beside

	Access     Access
	TokenFile  string // file with the token of Access; empty for a new one
	Address    string // host:port to listen on
	Kubeconfig string // file to write; empty for none
	Overwrite  bool   // of that file

	Say      func(text string)
	Progress func(text string) // receives the state of the storm every [ProgressEvery]
}

// Service serves a storm to foreign clients, in turns. Each turn has a new server with the initial objects: all watches
// end and clients list again, as after a restore of etcd.
type Service struct {
	ServiceOptions
	prepared []*Prepared
	injector *fault.Injector
	server   *Server
	player   *Player
	url      string
	listener *net.TCPListener // open for all turns
	tls      *tls.Config      // nil for plain HTTP

	lists, watches, bytes int64 // totals of earlier turns
}

// Settling is the time between the last of several watches and the storm, for the initial lists.
const Settling = time.Second

// ProgressEvery is the interval of lines about a storm in progress.
const ProgressEvery = 10 * time.Second

// Complete checks the options that need no storm, and reads or makes the token. The error is a [*manifest.Error], whose
// field is a flag of watchlab serve.
func (o *ServiceOptions) Complete() (err error) {
	switch {
	case o.Start < 0:
		return manifest.Bad("start", "is negative")
	case o.Repeat < 0:
		return manifest.Bad("repeat", "is negative")
	case !(o.Speed > 0) || o.Speed > 1e6:
		return manifest.Bad("speed", "%v is not allowed (allowed: more than 0, at most 1e6)", o.Speed)
	case o.Access.TLS && o.Kubeconfig == "":
		return manifest.Bad("kubeconfig-out", "is needed: it holds the CA and the token (or --tls=false, for plain HTTP)")
	case o.Access.Insecure && o.Kubeconfig == "" && o.TokenFile == "":
		return manifest.Bad("kubeconfig-out", "is needed: it holds the token (or --token-file)")
	case o.TokenFile != "":
		o.Access.Token, err = readToken(o.TokenFile)
		return manifest.BadField("token-file", err)
	case o.Access.TLS || o.Access.Insecure:
		o.Access.Token = NewToken()
	}
	return nil
}

func readToken(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if token == "" || strings.ContainsAny(token, " \t\r\n") {
		return "", fmt.Errorf("%s: it has to hold one token, without spaces", file)
	}
	return token, nil
}

// NewService creates the server of the first turn. The error of an option is a [*manifest.Error]; its fields are those of
// an experiment, and kubeconfig-out and bind.
func NewService(opts ServiceOptions) (*Service, error) {
	s := &Service{ServiceOptions: opts}
	if s.Kubeconfig != "" {
		if err := CheckKubeconfig(s.Kubeconfig, s.Overwrite); err != nil {
			return nil, manifest.Bad("kubeconfig-out", "%w (--overwrite replaces it)", err)
		}
	}
	// Faults of the stream are marks of the storm: they happen at the storm's time.
	s.Faults = slices.Concat(s.Set.MarkFaults(s.Speed), s.Faults)
	var err error
	if s.prepared, err = PrepareSet(s.Set); err != nil {
		return nil, manifest.BadField("storm.name", err)
	}
	return s, s.open()
}

// open creates the server of a turn with the initial objects.
func (s *Service) open() (err error) {
	if s.injector, err = fault.New(s.Faults, s.Seed); err != nil {
		return manifest.BadField("faults", err)
	}
	injector := s.injector
	opts := Options{Graceful: s.Graceful, ForeignNamespaces: s.Graceful, Wrap: func(h http.Handler) http.Handler {
		return RequireToken(s.Access.Token, injector.Wrap(h))
	}}
	if s.server, err = Open(opts, s.prepared...); err != nil {
		return manifest.BadField("storm.name", err)
	}
	if err := s.server.CreateAll(s.Objects); err != nil {
		return manifest.BadField("manifests", err)
	}
	s.player = NewPlayer(s.server, s.prepared, s.Speed)
	return nil
}

// Run serves until ctx ends, and writes to out how to reach the server and what it served. The error of an option is a
// [*manifest.Error].
func (s *Service) Run(ctx context.Context, out io.Writer) error {
	err := s.listen()
	if err == nil {
		s.describe(out)
		if err = s.play(ctx); err == nil {
			<-ctx.Done()
		}
	}
	err = errors.Join(err, s.close())
	if s.listener == nil {
		return err
	}
	fmt.Fprintf(out, "served %d lists and %d watches, %.1f MB\n", s.lists, s.watches, float64(s.bytes)/1e6)
	return errors.Join(err, s.listener.Close())
}

// listen starts serving and writes the kubeconfig.
func (s *Service) listen() error {
	l, err := s.Access.Listen(s.Address)
	if err != nil {
		return manifest.BadField("bind", err)
	}
	s.listener = l.(*net.TCPListener)
	at := *l.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		// Clients on this host connect over loopback.
		at.IP = net.IPv4(127, 0, 0, 1)
	}
	kc := Kubeconfig{Server: "http://" + at.String(), Token: s.Access.Token}
	if s.Access.TLS {
		identity, err := NewIdentity(time.Now(), at.IP.String())
		if err != nil {
			return err
		}
		s.tls = identity.ServerConfig()
		kc.Server, kc.CA = "https://"+at.String(), identity.CA
	}
	s.url = kc.Server
	if err := s.serveTurn(); err != nil || s.Kubeconfig == "" {
		return err
	}
	if err := WriteKubeconfig(s.Kubeconfig, kc, s.Overwrite); err != nil {
		return manifest.BadField("kubeconfig-out", err)
	}
	return nil
}

// serveTurn serves on a duplicate of the listener, which the server closes. A connection
// between two turns waits for the next server.
func (s *Service) serveTurn() error {
	file, err := s.listener.File()
	if err != nil {
		return err
	}
	l, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	_, err = s.server.Serve(l, s.tls)
	return err
}

// play plays all turns.
func (s *Service) play(ctx context.Context) error {
	for n := 1; s.playOnce(ctx) && n != s.Repeat && len(s.prepared) > 0; n++ {
		if err := s.close(); err != nil {
			return err
		}
		if err := s.open(); err != nil {
			return err
		}
		if err := s.serveTurn(); err != nil {
			return err
		}
		s.Say("everything is as it was at first")
	}
	return nil
}

// close closes the current server and adds its counts to the totals.
func (s *Service) close() error {
	s.injector.Stop()
	err := s.server.Close()
	s.lists += s.server.Lists()
	s.watches += s.server.Watches()
	s.bytes += s.server.WireBytes()
	return err
}

// playOnce plays a turn; false if ctx has ended. Before a repetition it waits until as many
// watches have ended as started the storm: after the storm and its faults, or earlier.
func (s *Service) playOnce(ctx context.Context) bool {
	if s.server.AwaitWatches(ctx, func(open, ended int) bool {
		// The first watch may have ended already.
		return open >= s.Start || s.Start == 1 && ended > 0
	}) != nil {
		return false
	}
	if s.Start > 1 {
		select {
		case <-time.After(Settling):
		case <-ctx.Done():
			return false
		}
	}
	if err := s.injector.Start(); err != nil {
		s.Say(fmt.Sprintf("faults: %v", err))
	}
	if len(s.prepared) == 0 {
		return true
	}
	s.Say("the storm begins")
	repeats := s.Repeat != 1
	gone := func(since int) func(int, int) bool {
		return func(_, ended int) bool { return ended-since >= s.Start }
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	faults := len(s.injector.Specs()) > 0
	if repeats && s.Start > 0 && !faults {
		go func() {
			if s.server.AwaitWatches(playing, gone(0)) == nil {
				stop()
			}
		}()
	}
	go s.progress(playing)
	err := s.player.Run(playing)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		s.Say("the storm ends before its time: nobody watches it any more")
		return true
	}
	s.Say("the storm is over; what it left is still served")
	if !repeats {
		return true
	}
	since := 0
	if faults {
		s.injector.Stop()
		_ = s.server.AwaitWatches(ctx, func(_, ended int) bool { since = ended; return true }) // It doesn't wait.
	}
	return s.server.AwaitWatches(ctx, gone(since)) == nil
}

// progress tells the state of the storm until ctx ends.
func (s *Service) progress(ctx context.Context) {
	server, player := s.server, s.player
	for tick := time.Tick(ProgressEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		at, lags, behind := player.Status(), server.Lags(), 0
		for _, l := range lags {
			behind = max(behind, l.Events)
		}
		s.Progress(fmt.Sprintf("%.0f s of %.0f s, %d of %d events, %d watches, at most %d events behind",
			at.At.Seconds(), at.Length.Seconds(), at.Released, at.Events, len(lags), behind))
	}
}

// describe says what is served, and how to reach it.
func (s *Service) describe(out io.Writer) {
	protocol, token := "TLS", "token"
	if !s.Access.TLS {
		protocol = "plain HTTP"
	}
	if s.Access.Token == "" {
		token = "no token"
	}
	fmt.Fprintf(out, "simulated Kubernetes %s on %s (%s, %s)\n", resources.Version, s.url, protocol, token)
	resource := "pods"
	for i, st := range s.Set.Storms {
		if i == 0 {
			resource = st.Resource.GroupResource().String()
		}
		var length time.Duration
		if n := len(st.Events); n > 0 {
			length = st.Events[n-1].At
		}
		fmt.Fprintf(out, "storm %s: %d %s at first, then %d events in %v\n", s.Set.Name, st.Initial, st.Resource.GroupResource(),
			len(st.Events)-st.Initial, time.Duration(float64(length)/s.Speed).Round(time.Millisecond))
	}
	if n := len(s.Objects); n > 0 {
		fmt.Fprintf(out, "manifests: %d objects\n", n)
	}
	for _, spec := range s.injector.Specs() {
		fmt.Fprintf(out, "fault %s\n", spec)
	}
	client := "kubectl --server " + s.url
	if s.Kubeconfig != "" {
		client = "KUBECONFIG=" + s.Kubeconfig + " kubectl"
	}
	fmt.Fprintf(out, "  %s get %s -A -w\n", client, resource)
	switch {
	case len(s.prepared) == 0 || s.Start == 0:
	case s.Start == 1:
		fmt.Fprint(out, "the storm begins with the first watch; ")
	default:
		fmt.Fprintf(out, "the storm begins %v after %d watches are open; ", Settling, s.Start)
	}
	fmt.Fprintln(out, "Ctrl-C ends it")
}
