// Package controller plays storms to a program that watches an API server, and judges it.
//
//  1. A [Spec] says what is played: the storm, the user's workload, the faults, and the programs.
//  2. Each play has a new server and new processes. The programs find the server by a kubeconfig, or as in
//     a cluster. When their watches are open, the storm begins; storm and workload are open loops.
//  3. Package record holds what is observed from outside, packages rules and verdict judge it.
//  4. Fault plans are played one after the other: none, each by itself, all together. The first plan that
//     fails is shrunk to the smallest one that still fails.
//  5. A results folder has the [Result], the figures in benchmark format, the report, and the requests.
package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/experiment"
)

// Spec describes a run. A zero field takes its default. It is controller.yaml of the results folder.
type Spec struct {
	Storm     experiment.Storm `json:"storm,omitzero"`      // cluster's events; empty for none
	Workload  string           `json:"workload,omitempty"`  // file of package workload, or the name of a built-in one
	Manifests []string         `json:"manifests,omitempty"` // objects before the storm
	Recursive bool             `json:"recursive,omitempty"`
	Stages    []string         `json:"stages,omitempty"` // files of KWOK stages in place of the built-in ones
	Rules     string           `json:"rules,omitempty"`  // file of package rules
	// Plans are fault plans, each played by itself: none, all, each (one plan a fault), or faults as
	// package fault parses them (default: none and all).
	Plans  []string `json:"plans,omitempty"`
	Speed  float64  `json:"speed,omitempty"`  // of storm and workload (default 1)
	Seed   int64    `json:"seed,omitempty"`   // (default 1)
	Rounds int      `json:"rounds,omitempty"` // each with the next seed (default 1; 5 with two programs)
	// Unshrunk: a plan that fails is not shrunk.
	Unshrunk bool `json:"unshrunk,omitempty"`

	Programs []Program `json:"programs"` // one, or the baseline and the new one
	Replicas int       `json:"replicas,omitempty"`
	// Restarts are the times at which the first replica is killed and started again.
	Restarts  []metav1.Duration `json:"restarts,omitempty"`
	InCluster bool              `json:"inCluster,omitempty"` // config as in a pod, in place of KUBECONFIG
	Attach    bool              `json:"attach,omitempty"`    // programs run elsewhere
	Metrics   string            `json:"metrics,omitempty"`   // URL of the program's metrics
	// Settle is the longest time that the programs may take to become quiet after the storm (default 30s).
	Settle metav1.Duration `json:"settle,omitzero"`
	// Warmup is the longest time from the start of the programs to their first watch (default 1m).
	Warmup metav1.Duration `json:"warmup,omitzero"`
}

// Program is a program with its arguments.
type Program struct {
	Label   string   `json:"label"` // new, or old for the baseline
	Command []string `json:"command,omitempty"`
}
