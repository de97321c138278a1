// Package fleet runs an experiment as a load Job in a cluster. Each pod of an Indexed
// Job plays one share of it.
//
//		f, err := fleet.New(config)
//		err = f.Start(ctx, fleet.Spec{Plan: plan, Namespace: "watchlab", Overlay: "kind"})
//		state, err := f.Follow(ctx, ref, 2*time.Minute, show, warn) // until the Job has ended
//		err = f.Clean(ctx, ref)
//
//	 1. [Build] builds the objects from the embedded manifests of scripts/deploy: the base and
//	    the overlay.
//	 2. [Fleet.Start] creates the ConfigMap of the run, which claims its name. It applies
//	    the rest by server-side apply, Jobs last.
//	 3. Each pod meets the others before each play ([JoinBarrier]) and stores its result in
//	    ConfigMaps ([ConfigMaps.Upload]).
//	 4. [Fleet.Follow] looks at Jobs, pods, Leases and the metadata of ConfigMaps. It shows
//	    each [State] that differs from the last.
//	 5. [ConfigMaps.Collect] merges the results of all pods.
//
// All objects of a run carry the label watchlab.dev/run. The client keeps no state: any
// client of the cluster can follow, collect and clean up a run.
package fleet

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"watchlab/loadgen/source/cluster"
)

const (
	RunLabel       = "watchlab.dev/run"       // name of the run; each of its objects has it
	NamespaceLabel = "watchlab.dev/namespace" // namespace of the run; cluster-scoped objects have it
	nameLabel      = "app.kubernetes.io/name" // set to appName on all applied objects
	appName        = "watchlab"
	Manager        = appName // field manager of server-side apply
)

var (
	ErrExists = errors.New("run exists")  // wrapped by the error for the name of an existing run
	ErrNoRun  = errors.New("no such run") // wrapped by the error for a run that does not exist

	ErrContinues = errors.New("the run continues in the cluster") // wrapped by the error of an interrupted [Fleet.Play]
)

// Ref identifies a run in a cluster.
type Ref struct {
	Namespace, Run string // Run is the name of the run
}

// String returns "RUN in namespace NAMESPACE".
func (r Ref) String() string { return r.Run + " in namespace " + r.Namespace }

// Command returns the command line of another verb for the run, without the flags of the cluster.
func (r Ref) Command(verb string) string { return "watchlab cluster " + verb + " --name " + r.Run }

// object returns the name of the Job and of the ConfigMap.
func (r Ref) object() string { return objectPrefix + r.Run }

const objectPrefix = "watchlab-"

func (r Ref) selector() string { return RunLabel + "=" + r.Run }

// Fleet is a client of one cluster. Its methods are safe for concurrent use.
type Fleet struct {
	dynamic  dynamic.Interface
	metadata metadata.Interface
	mapper   meta.RESTMapper
}

// New returns the Fleet of a cluster. It sends no request.
func New(config *rest.Config) (*Fleet, error) {
	c, err := cluster.For(config) // no client-side throttling: the API server limits requests itself (429)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	client, err := cluster.NewClient(c.Config())
	md, mdErr := metadata.NewForConfig(c.Config())
	if err := cmp.Or(err, mdErr); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	return &Fleet{dynamic: client, metadata: md, mapper: client.Mapper}, nil
}
