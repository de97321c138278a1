// Package deploy embeds the manifests of load Jobs, for kustomize:
//
//	base         namespace, access, network policy, and an example run: a plan and an
//	             Indexed Job
//	components   mode cluster, a PodMonitor
//	overlays     target clusters: kind, large, …
//
// `kubectl apply -k scripts/deploy/overlays/kind` applies the example. Package fleet
// builds runs from the same files. Objects of a run have its name in their names and in
// the label watchlab.dev/run. All runs of a namespace share the other objects.
package deploy

import "embed"

// Files holds the folders base, components and overlays.
//
//go:embed base components overlays
var Files embed.FS

// Names in the manifests. Package fleet replaces them.
const (
	// Namespace is the namespace of all objects.
	Namespace = "watchlab"
	// Run is the name of the example run.
	Run = "example"
)
