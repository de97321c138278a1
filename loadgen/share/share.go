// Package share says how several processes share one storm: which part each has
// ([Of]), and what all of them are told ([Plan]).
package share
