// Package workload plays the requests of users: objects of manifests are created, changed and deleted at a
// rate, in an open loop. A storm, in contrast, is the stream of events that a cluster's own writers cause.
package workload
