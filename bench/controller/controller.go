// Package controller plays storms to a program that watches an API server, and judges it.
//
//  1. A [Spec] says what is played: the storm, the user's workload, the faults, and the programs.
//  2. Each play has a new [server.Server] and new processes. The programs find the server by a kubeconfig, or as in
//     a cluster. When their watches are open, the storm begins; storm and workload are open loops.
//  3. Package record holds what is observed from outside, packages rules and verdict judge it.
//  4. Fault plans are played one after the other: none, and those aimed at what the program does. The first plan that
//     fails is shrunk to the smallest one that still fails.
//  5. A results folder has the [Result], the figures in benchmark format, the report, and the requests.
package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"watchlab/bench/experiment"
)

// Spec describes a run. A zero field takes its default. It is controller.yaml of the results folder. The tags are
// those of [experiment.Spec].
type Spec struct {
	Storm     experiment.Storm `json:"storm,omitzero"` // cluster's events; empty for none
	Workload  string           `json:"workload,omitempty" flag:"workload" help:"requests of users: a file or a built-in workload"`
	Manifests []string         `json:"manifests,omitempty" flag:"manifest,array" help:"objects before the storm: files, folders, URLs, -"`
	Recursive bool             `json:"recursive,omitempty" flag:"recursive,R" help:"read subfolders of --manifest (default false)"`
	Stages    []string         `json:"stages,omitempty" flag:"stages,array" help:"KWOK stages in place of the built-in ones"`
	Without   []string         `json:"without,omitempty" flag:"without,array" help:"parts of the cluster that are left out: scheduler, kubelet, garbage-collector, namespace"`
	Rules     string           `json:"rules,omitempty" flag:"rules" help:"what answers what, and what must hold: a file or built-in rules"`
	// Plans are fault plans, each played by itself: none, all, each (one plan a fault), explore (plans aimed at what the
	// program does without faults, until one fails), or faults as package fault parses them (default: none and explore).
	Plans []string `json:"plans,omitempty" flag:"faults,array" help:"fault plans: none, explore, all, each, or faults (default none and explore)"`
	// Budget is the longest time for explore (default 10m).
	Budget metav1.Duration `json:"budget,omitzero" flag:"budget" help:"longest time for the plans of explore (default 10m)"`
	Speed  float64         `json:"speed,omitempty" flag:"speed" help:"how many times as fast the storm is played (default 1)"`
	Seed   int64           `json:"seed,omitempty" flag:"seed" help:"seed of storm, workload and faults (default 1)"`
	Rounds int             `json:"rounds,omitempty" flag:"rounds" help:"rounds, each with the next seed (default 1, with --against 5)"`
	// Unshrunk: a plan that fails is not shrunk.
	Unshrunk bool `json:"unshrunk,omitempty"`

	// Server is simulated (default), envtest, or the path of a kubeconfig; see package server.
	Server   string    `json:"server,omitempty" flag:"server" help:"API server: simulated, envtest (etcd and kube-apiserver of KUBEBUILDER_ASSETS or PATH), or a kubeconfig (default simulated)"`
	Programs []Program `json:"programs"` // one, or the baseline and the new one
	// With are programs that run beside, each NAME=COMMAND, such as kube-controller-manager. They meet no faults, and no
	// verdict judges their requests.
	With      []string `json:"with,omitempty" flag:"with,array" help:"NAME=COMMAND: a program that runs beside and is not judged, words without quotes"`
	Replicas  int      `json:"replicas,omitempty" flag:"replicas" help:"replicas of the program, as for leader election (default 1)"`
	InCluster bool     `json:"inCluster,omitempty" flag:"in-cluster" help:"give the program the configuration of a pod, not KUBECONFIG"`
	Attach    bool     `json:"attach,omitempty" flag:"attach" help:"the program runs elsewhere; print its kubeconfig"`
	Metrics   string   `json:"metrics,omitempty" flag:"metrics" help:"URL of the program's metrics (default: that of {metrics})"`
	// Settle is the longest time that the programs may take to become quiet after the storm, or after they came to
	// another object (default 30s).
	Settle metav1.Duration `json:"settle,omitzero" flag:"settle" help:"longest time to become quiet after the storm (default 30s)"`
	// Warmup is the longest time from the start of the programs to their first watch (default 1m).
	Warmup metav1.Duration `json:"warmup,omitzero"`
}

// Program is a program with its arguments.
type Program struct {
	Label   string   `json:"label"` // new, or old for the baseline
	Command []string `json:"command,omitempty"`
}
