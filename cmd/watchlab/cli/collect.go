package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"watchlab/bench/fleet"
	"watchlab/bench/fleet/upload"
	"watchlab/bench/lab"
	"watchlab/bench/report"
	"watchlab/loadgen/source/cluster"
)

type collectFlags struct {
	place         placeFlags
	out           string
	partial, keep bool
	output        outputFlag[*lab.Outcome]
}

const podsDir = "pods" // bundles of --keep-pods in the results folder

func newCollect() *cobra.Command {
	var f collectFlags
	cmd := &cobra.Command{
		Use:   "collect [DIR | LOG… | -]",
		Short: "Merge the results of a run into one results folder",
		Long: `collect merges the results of all pods of a run into one results folder. Counts and histograms
add up exactly. It refuses results of different builds, seeds, cells or rounds. If pods are
missing, it names them, shows no figure without --partial, and exits with 1.

Arguments need no cluster: the directory of dir=PATH or --keep-pods, or log files of the pods,
- for standard input.`,
		Example: `  watchlab cluster collect --context kind-watchlab --name mine

  # Without the cluster
  kubectl logs -n watchlab -l watchlab.dev/run=mine --tail -1 | watchlab cluster collect -`,
		RunE: f.run,
		Args: cobra.ArbitraryArgs,
	}
	f.place.add(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.partial, "partial", false, "show figures even if pods are missing")
	fl.BoolVar(&f.keep, "keep-pods", false, "keep the result of each pod in "+podsDir+"/")
	fl.StringVar(&f.out, "out", "", "results folder to create (default: results/<date>-<commit>-<run>)")
	f.output.add(cmd, "table", tableForm, jsonForm, benchForm)
	return cmd
}

// collection is the source of the results.
type collection struct {
	reader upload.Reader
	run    string       // name of the run; empty for the only run of the source
	state  *fleet.State // of the run in the cluster; nil without a cluster
	from   string       // describes the source in messages
}

func (f *collectFlags) run(cmd *cobra.Command, args []string) error {
	show, err := f.output.writer()
	if err != nil {
		return err
	}
	if err := checkNew(f.out); err != nil {
		return err
	}
	c, err := f.open(cmd, args)
	if err != nil {
		return err
	}
	spool, err := os.MkdirTemp("", "watchlab-collect-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(spool) }()
	stderr := cmd.ErrOrStderr()
	of := 0
	opts := lab.MergeOptions{Name: c.run, Partial: f.partial}
	if c.state != nil {
		plan := c.state.Plan
		of, opts.Experiment = plan.Pods, plan.Experiment
		opts.Args = []string{
			"cluster", "run", "--name", plan.Run, "--mode", string(plan.Mode), "--pods", fmt.Sprint(plan.Pods), "--upload", plan.Upload,
			"--", "--experiment", lab.ExperimentFile,
		}
	}
	got, err := upload.Collect(cmd.Context(), c.reader, c.run, of, spool, opts)
	for _, d := range got.Damaged {
		warn(stderr, "%s", d)
	}
	early := errors.Is(err, upload.ErrNone) || err == nil && !f.partial && (got.Outcome.Interrupted || len(got.Outcome.Merged.Missing) > 0)
	switch {
	case early && c.state != nil && !c.state.Over: // A retry may still upload.
		return fmt.Errorf("run %s has not ended: %s; collect it when %s shows its end, or with --partial",
			c.run, fleetLine(*c.state), f.place.again("status", c.run))
	case errors.Is(err, upload.ErrRuns):
		return badFlag("name", fmt.Errorf("is required: %w in %s", err, c.from))
	case errors.Is(err, upload.ErrNone):
		return c.nothing(stderr)
	case errors.Is(err, lab.ErrShares):
		return usageError{fmt.Errorf("%s: %w", c.from, err)}
	case err != nil:
		return fmt.Errorf("%s: %w", c.from, err)
	}
	return f.write(cmd, c, got, show)
}

func (f *collectFlags) open(cmd *cobra.Command, args []string) (c collection, err error) {
	if len(args) == 0 {
		return f.inCluster(cmd)
	}
	c.run, c.from = f.place.name, strings.Join(args, ", ")
	for _, name := range []string{"context", "kubeconfig", "namespace"} {
		if cmd.Flags().Changed(name) {
			return c, badFlag(name, fmt.Errorf("is not for %s, which needs no cluster", c.from))
		}
	}
	info, err := os.Stat(args[0])
	isDir := err == nil && info.IsDir()
	switch {
	case isDir && len(args) > 1:
		err = fmt.Errorf("%s takes one directory, or several logs, not %q", cmd.CommandPath(), args)
	case isDir:
		c.reader, err = upload.Dir(args[0]), nil
	default:
		c.reader, err = logFiles(cmd, args)
	}
	if err != nil {
		err = usageError{err}
	}
	return c, err
}

// inCluster opens the source that the plan of the run names.
func (f *collectFlags) inCluster(cmd *cobra.Command) (c collection, err error) {
	connected, fl, err := f.place.connect(cmd, false)
	if err != nil {
		return c, err
	}
	state, err := f.place.status(cmd.Context(), fl)
	if err != nil {
		return c, err
	}
	ref := state.Ref
	c.run, c.state = ref.Run, &state
	target, err := upload.ParseTarget(state.Plan.Upload)
	if err != nil {
		return c, fmt.Errorf("the plan of run %s: %w", ref.Run, err)
	}
	switch target.Kind {
	case upload.ConfigMapTarget:
		c.from = "the ConfigMaps of namespace " + ref.Namespace
		c.reader, err = upload.NewConfigMaps(connected.Config(), ref.Namespace)
	case upload.LogTarget:
		c.from = "the logs of the pods of namespace " + ref.Namespace
		c.reader, err = podLogs(cmd.Context(), connected.Config(), ref)
	default:
		err = usageError{fmt.Errorf("run %s uploads to directory %s of a volume; copy or mount it, and name it", ref.Run, target.To)}
	}
	return c, err
}

// podLogs returns the logs of all pods of a run, also of ended ones.
func podLogs(ctx context.Context, config *rest.Config, ref fleet.Ref) (upload.Logs, error) {
	client, err := cluster.REST(config, corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	opts := metav1.ListOptions{LabelSelector: fleet.RunLabel + "=" + ref.Run}
	if err := client.Get().Namespace(ref.Namespace).Resource("pods").VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).Into(&pods); err != nil {
		return nil, err
	}
	var logs upload.Logs
	for _, p := range pods.Items {
		if p.Status.Phase == corev1.PodPending {
			continue
		}
		for _, container := range p.Spec.Containers {
			logs = append(logs, upload.NamedLog{
				Name: "pod " + p.Name,
				Open: func(ctx context.Context) (io.ReadCloser, error) {
					opts := &corev1.PodLogOptions{Container: container.Name}
					return client.Get().Namespace(p.Namespace).Resource("pods").Name(p.Name).SubResource("log").VersionedParams(opts, scheme.ParameterCodec).Stream(ctx)
				},
			})
		}
	}
	return logs, nil
}

func logFiles(cmd *cobra.Command, names []string) (logs upload.Logs, err error) {
	for _, name := range names {
		log := upload.NamedLog{Name: name, Open: func(context.Context) (io.ReadCloser, error) { return os.Open(name) }}
		if name == "-" {
			log = upload.NamedLog{Name: "standard input", Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(cmd.InOrStdin()), nil }}
		} else if info, err := os.Stat(name); err != nil {
			return nil, err
		} else if info.IsDir() {
			return nil, fmt.Errorf("%s is a directory; name its files", name)
		}
		logs = append(logs, log)
	}
	return logs, nil
}

func (c collection) nothing(stderr io.Writer) error {
	of := ""
	if c.run != "" {
		of = " of run " + c.run
	}
	if c.state == nil {
		return fmt.Errorf("no complete result%s in %s", of, c.from)
	}
	warn(stderr, "no complete result%s in %s", of, c.from)
	missing := make([]int, c.state.Plan.Pods)
	for i := range missing {
		missing[i] = i
	}
	c.missing(stderr, missing)
	return errInvalid
}

func (c collection) missing(stderr io.Writer, missing []int) {
	const most = 20
	for n, i := range missing {
		if n == most && len(missing) > most+1 {
			warn(stderr, "and %d more pods are missing", len(missing)-most)
			break
		}
		state := ""
		if c.state != nil {
			state = ": " + podState(c.state.Pods[i])
		}
		warn(stderr, "pod %d is missing%s", i, state)
	}
}

func podState(s fleet.Pod) string {
	parts := []string{phaseOf(s), s.Name, s.Node, s.Progress}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

func (f *collectFlags) write(cmd *cobra.Command, c collection, got upload.Collected, show func(io.Writer, *lab.Outcome) error) error {
	o, stderr := got.Outcome, cmd.ErrOrStderr()
	dir := f.out
	if dir == "" {
		dir = freeFolder("results", o.Env.Build, got.Run)
	}
	if err := o.Create(dir); errors.Is(err, lab.ErrExists) {
		return badFlag("out", err)
	} else if err != nil {
		return err
	}
	err := report.Write(dir, o)
	if f.keep {
		_, kept := upload.Dir(got.Spool).Read(cmd.Context(), got.Run, func(b upload.Bundle) error {
			return upload.Dir(filepath.Join(dir, podsDir)).Upload(cmd.Context(), b)
		})
		err = cmp.Or(err, kept)
	}
	if err = errors.Join(err, show(cmd.OutOrStdout(), o)); err != nil {
		return err
	}
	for _, s := range o.Merged.Superseded {
		warn(stderr, "pod %d: attempt %d (pod %s) is not merged, another attempt is", s.Index, s.Attempt, dash(s.Pod))
	}
	c.missing(stderr, o.Merged.Missing)
	warn(stderr, "%s merged; results are in %s", o.Merged, dir)
	failed := o.Failed()
	for _, cell := range failed {
		warn(stderr, "%s", cell)
	}
	switch {
	case len(failed) > 0, len(o.Merged.Missing) > 0 && !f.partial:
		return errInvalid
	}
	return nil
}
