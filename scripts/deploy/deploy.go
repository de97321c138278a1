// Package deploy holds the manifests of runs in a cluster, as kustomize has them:
//
//	base         a namespace, the rights of its shards, its network policy, and an
//	             example of a run: a plan and an Indexed Job
//	components   what is put to it: the other modes (shared-server, cluster), the ways
//	             of delivering (results-volume, s3), a PodMonitor
//	overlays     where it is to run: kind, large, …
//
// kubectl takes them as they are (kubectl apply -k scripts/deploy/overlays/kind);
// package fleet makes runs of them. Objects of one run carry its name in the label
// watchlab.dev/run, and as the middle of theirs; all others are shared by the runs of
// a namespace.
package deploy

import "embed"

// Files are the folders base, components and overlays.
//
//go:embed base components overlays
var Files embed.FS

// What the manifests name things, before a run has a name of its own.
const (
	// Namespace is where everything is.
	Namespace = "watchlab"
	// Run is the name of the example's run.
	Run = "example"
)
