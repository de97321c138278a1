// Package profile takes profiles of what is measured, labels them by stage, and
// compares them.
//
// The way of a profile:
//
//  1. The workload's goroutines are labelled: [With] says what is played, [Do]
//     and [Switch] at which stage.
package profile
