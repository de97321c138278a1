//go:build !race

package queuetest

const raced = false
