// Package monitoring pins the release of the Prometheus operator whose custom resource
// definitions the manifests are held against. Nothing of it is built.
package monitoring
