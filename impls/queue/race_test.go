//go:build race

package queue_test

const raced = true
