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

	Graceful bool // deletions wait for kubelets, a garbage collector and a namespace controller, clients that run beside

	Access     Access
	TokenFile  string // file with the token of Access; empty for a new one
	Address    string // host:port to listen on
	Kubeconfig string // file to write; empty for none
	Overwrite  bool   // of that file

	Say func(text string)
}

// Service serves a storm to foreign clients.
type Service struct {
	ServiceOptions
	injector *fault.Injector
	server   *Server
	url      string
}

// Settling is the time between the last of several watches and the storm, for the initial lists.
const Settling = time.Second

// Complete checks the options that need no storm, and reads or makes the token. The error is a [*manifest.Error], whose
// field is a flag of watchlab serve.
func (o *ServiceOptions) Complete() (err error) {
	switch {
	case o.Start < 0:
		return manifest.Bad("start", "is negative")
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

// NewService creates the server with the initial objects. The error of an option is a [*manifest.Error]; its fields are
// those of an experiment, and kubeconfig-out and bind.
func NewService(opts ServiceOptions) (*Service, error) {
	s := &Service{ServiceOptions: opts}
	if s.Kubeconfig != "" {
		if err := CheckKubeconfig(s.Kubeconfig, s.Overwrite); err != nil {
			return nil, manifest.Bad("kubeconfig-out", "%w (--overwrite replaces it)", err)
		}
	}
	prepared, err := PrepareSet(s.Set)
	if err != nil {
		return nil, manifest.BadField("storm.name", err)
	}
	// Faults of the stream are marks of the storm: they happen at the storm's time.
	if s.injector, err = fault.New(slices.Concat(s.Set.MarkFaults(s.Speed), s.Faults), s.Seed); err != nil {
		return nil, manifest.BadField("faults", err)
	}
	wrap := func(h http.Handler) http.Handler { return RequireToken(s.Access.Token, s.injector.Wrap(h)) }
	if s.server, err = Open(Options{Graceful: s.Graceful, ForeignNamespaces: s.Graceful, Wrap: wrap}, prepared...); err != nil {
		return nil, manifest.BadField("storm.name", err)
	}
	if err := s.server.CreateAll(s.Objects); err != nil {
		return nil, manifest.BadField("manifests", err)
	}
	return s, nil
}

// Run serves until ctx ends, and writes to out how to reach the server. The error of an option is a [*manifest.Error].
func (s *Service) Run(ctx context.Context, out io.Writer) error {
	err := s.listen()
	if err == nil {
		s.describe(out)
		s.play(ctx)
		<-ctx.Done()
	}
	s.injector.Stop()
	return errors.Join(err, s.server.Close())
}

// listen starts serving and writes the kubeconfig.
func (s *Service) listen() error {
	l, err := s.Access.Listen(s.Address)
	if err != nil {
		return manifest.BadField("bind", err)
	}
	at := *l.Addr().(*net.TCPAddr)
	if at.IP.IsUnspecified() {
		// Clients on this host connect over loopback.
		at.IP = net.IPv4(127, 0, 0, 1)
	}
	kc := Kubeconfig{Server: "http://" + at.String(), Token: s.Access.Token}
	var config *tls.Config // nil for plain HTTP
	if s.Access.TLS {
		identity, err := NewIdentity(time.Now(), at.IP.String())
		if err != nil {
			return errors.Join(err, l.Close())
		}
		config = identity.ServerConfig()
		kc.Server, kc.CA = "https://"+at.String(), identity.CA
	}
	s.url = kc.Server
	if _, err := s.server.Serve(l, config); err != nil || s.Kubeconfig == "" {
		return err
	}
	if err := WriteKubeconfig(s.Kubeconfig, kc, s.Overwrite); err != nil {
		return manifest.BadField("kubeconfig-out", err)
	}
	return nil
}

// play waits for the watches that start the storm and plays it, until ctx ends at the latest.
func (s *Service) play(ctx context.Context) {
	if s.server.AwaitWatches(ctx, func(open, ended int) bool {
		// The first watch may have ended already.
		return open >= s.Start || s.Start == 1 && ended > 0
	}) != nil {
		return
	}
	if s.Start > 1 {
		select {
		case <-time.After(Settling):
		case <-ctx.Done():
			return
		}
	}
	if err := s.injector.Start(); err != nil {
		s.Say(fmt.Sprintf("faults: %v", err))
	}
	if len(s.Set.Storms) == 0 {
		return
	}
	s.Say("the storm begins")
	if s.server.Play(ctx, s.Speed) == nil {
		s.Say("the storm is over; what it left is still served")
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
	case len(s.Set.Storms) == 0 || s.Start == 0:
	case s.Start == 1:
		fmt.Fprint(out, "the storm begins with the first watch; ")
	default:
		fmt.Fprintf(out, "the storm begins %v after %d watches are open; ", Settling, s.Start)
	}
	fmt.Fprintln(out, "Ctrl-C ends it")
}
