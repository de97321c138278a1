// Package e2e proves in a real kind cluster what the README and docs/kind.md say of it:
// `make e2e-kind CLUSTER=name`. The cluster has to be there (`make kind-up`, or any
// other that kind knows or that has the context kind-NAME); our image is built and
// loaded, others are pulled, or built from their pinned Go modules where the cluster
// can't pull them, or what needs them is skipped with a loud line.
//
// What the commands and the tests print is left in bin/e2e-kind.txt.
package e2e
