//go:build deps

package watchlab

import (
	_ "github.com/HdrHistogram/hdrhistogram-go"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "golang.org/x/perf/benchfmt"
	_ "golang.org/x/perf/benchmath"
	_ "golang.org/x/perf/benchproc"
	_ "golang.org/x/perf/benchunit"
	_ "golang.org/x/perf/cmd/benchstat"
	_ "golang.org/x/term"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/cache"
	_ "k8s.io/client-go/util/workqueue"
	_ "k8s.io/klog/v2"
	_ "pgregory.net/rapid"
	_ "sigs.k8s.io/randfill"
)
