//go:build !race

package deltafifo_test

// raced: the race detector is on, with which everything takes ten times as long.
const raced = false
