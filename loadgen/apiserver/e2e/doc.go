// Package e2e tests the simulated API server with what it is for: a real
// kubectl, and a real controller-runtime manager, against watchlab serve. It is
// a module of its own, for their dependencies are many.
//
// Both programs are built when the tests start, kubectl once into the user's
// cache folder ($WATCHLAB_PROGRAMS names another one); $WATCHLAB is a watchlab
// that is built already.
package e2e
