// Package lifecycle stands in for the scheduler, the kubelets and the garbage collector of a cluster, so
// that what a controller creates on a simulated API server runs, ends and is collected as in a cluster.
package lifecycle
