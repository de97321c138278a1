// Package server has the API servers of plays, behind one interface: the simulated one, an etcd and kube-apiserver of
// its own for each play, and that of a cluster.
//
//  1. [Find] returns what opens one with a [Setup], or says why there is none.
//  2. Controllers reach it with the kubeconfig of their name. Their requests pass through [Setup].Wrap, which records
//     them and injects faults.
//  3. The simulated server knows its changes and who made them. Of a real one, watches of all its resources report
//     the changes, and the answers to all writes say whose they were.
package server

import (
	"context"
	"net/http"
	"slices"

	"k8s.io/client-go/rest"

	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/lifecycle"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/source/cluster"
)

// The names of servers. Any other name is the path of a kubeconfig.
const (
	Simulated = "simulated"
	// Envtest is etcd and kube-apiserver as controller-runtime's envtest finds them.
	Envtest = "envtest"
)

// Server is the API server of one play.
type Server interface {
	// Kubeconfig returns the address and the credentials of a client of [Setup].Clients.
	Kubeconfig(client string) apiserver.Kubeconfig
	// User is the configuration for the requests of the workload. Their changes have the intended time
	// that the request's context has ([apiserver.WithIntended]).
	User() *rest.Config
	Play(ctx context.Context) error // of the storm
	// Watches returns the numbers of the controllers' open and ended watches.
	Watches() (open, ended int, err error)
	// Quiet reports whether the cluster itself has nothing left to do.
	Quiet() bool
	Lags() []apiserver.Lag // of open watches
	Close() error
}

// Setup is what a [Server] is made from.
type Setup struct {
	Clients []string // names of the controllers' replicas
	Beside  []string // names of programs beside them, which are not recorded and meet no faults
	// Wrap records the requests of clients and injects faults. The client's name is in the request's
	// context ([apiserver.WithClient]).
	Wrap    func(http.Handler) http.Handler
	Changed func(apiserver.Change) // receives each change, in order for each resource
	Seed    int64
	Speed   float64
	Storms  []*apiserver.Prepared // see [apiserver.Open]; of the simulated server alone
	Objects []manifest.Object     // that exist before the storm
	// Namespaces are those of the workload. The simulated server makes them as they come.
	Namespaces []string
	Stages     []lifecycle.Stage // of the stand-in for the rest of the cluster
	Without    []string          // parts of it that are left out
	Dir        string            // an existing folder for the logs of a server's programs
	Notify     func(string)      // receives a line of what does not end a play
}

// Find returns a function that opens the server of a name for a play, with all that exists before the storm. The error of bad
// input is a [*manifest.Error]. That of Find says why there is no such server.
func Find(name string) (open func(Setup) (Server, error), err error) {
	switch name {
	case Simulated:
		return newSimulated, nil
	case Envtest:
		etcd, kube, err := assets()
		return func(set Setup) (Server, error) {
			plane, err := Start(context.Background(), PlaneOptions{Etcd: etcd, APIServer: kube, Logs: set.Dir, Flags: envtestFlags})
			if err != nil {
				return nil, err
			}
			return newReal(set, plane.Config(), plane.Stop)
		}, err
	}
	to, err := cluster.Connect(name, "")
	return func(set Setup) (Server, error) { return newReal(set, to.Config(), nil) }, err
}

// endpoint is where clients reach a server.
type endpoint struct {
	url    string
	ca     []byte
	tokens map[string]string // of clients
}

// Kubeconfig implements [Server].
func (e *endpoint) Kubeconfig(client string) apiserver.Kubeconfig {
	return apiserver.Kubeconfig{Server: e.url, CA: e.ca, Token: e.tokens[client]}
}

// tokens returns a token for each client and program beside, and whose each is.
func (s Setup) tokens() (tokens, names map[string]string) {
	tokens, names = map[string]string{}, map[string]string{}
	for _, client := range slices.Concat(s.Clients, s.Beside) {
		token := apiserver.NewToken()
		tokens[client], names[token] = token, client
	}
	return tokens, names
}

// wrap wraps the requests of the controllers alone.
func (s Setup) wrap(h http.Handler) http.Handler {
	wrapped := s.Wrap(h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(s.Beside, apiserver.ClientOf(r.Context())) {
			h.ServeHTTP(w, r)
			return
		}
		wrapped.ServeHTTP(w, r)
	})
}
