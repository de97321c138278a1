// Package controllerruntime shows how a queue of package deltafifo gets into a
// controller-runtime manager, and tests that it does. It holds nothing to
// import, and is a module of its own so that only it requires controller-runtime.
package controllerruntime
