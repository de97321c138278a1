package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/pipeline"
	"watchlab/bench/report"
	"watchlab/dashboards"
	"watchlab/loadgen/apiserver"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

// clusterRunFlags are the flags of cluster run.
type clusterRunFlags struct {
	place   placeFlags
	pods    int
	writers int
	image   string
	mode    string
	upload  string
	overlay string
	barrier time.Duration
	wait    bool
	dryRun  bool

	telemetry telemetryFlags
	playing   specFlags
	// given holds the flags after --.
	given *cobra.Command
}

// defaultBarrier is how long shards wait for each other: as long as it takes to start
// a few more nodes' pods, and no more.
const defaultBarrier = 2 * time.Minute

func newClusterRun() *cobra.Command {
	var f clusterRunFlags
	var modes []string
	for _, m := range fleet.Modes() {
		modes = append(modes, string(m))
	}
	cmd := &cobra.Command{
		Use:   "run [flags] -- [flags of run]",
		Short: "Start a run in a cluster, and watch it",
		Long: `run takes a run to a cluster. What stands after -- are the flags of watchlab run; they
are checked here before anything is applied, and files that they name travel with
the run.

--mode self: each shard plays its share of the storm into its own pipelines. All shares
together are the storm, exactly.
--mode shared-server: one simulated API server plays the whole storm, in its own time,
and each shard watches it.
--mode cluster: --writers pods make the storm in this very cluster, and each shard
watches what comes of it. The storm's objects are real; pods are gated, so that nothing
runs them.

Objects are applied by server-side apply, with field manager watchlab. A run whose name
is taken is refused. Ctrl-C, or --wait=false, leaves the run going: status, collect and
clean need nothing but its name.

Exit code: 0 when all shards came to their end; 1 if one was given up, or the cluster
refused something; 2 for bad input, before anything is applied; 130 after Ctrl-C.`,
		Example: `  # Four shards of a node loss, in kind
  watchlab cluster run --context kind-watchlab --overlay kind --name mine -- \
    --storm nodeloss --nodes 100 --pipeline informer --pace max,2000

  # What does the real API server's stream cost each delta queue?
  watchlab cluster run --context dev --mode cluster --writers 2 -- --family deltafifo --storm rollout --nodes 5 --pace 50

  # What would be applied?
  watchlab cluster run --context dev --overlay large --pods 100 --dry-run -- --storm mine.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
				return usageError{fmt.Errorf("%s takes no argument %q; flags of run stand after --", cmd.CommandPath(), args[0])}
			}
			return f.run(cmd, args)
		},
	}
	f.place.add(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.pods, "pods", 4, "pods that play")
	fl.IntVar(&f.writers, "writers", 1, "pods that write, for --mode "+string(fleet.ModeCluster))
	fl.StringVar(&f.image, "image", "", "image of the pods (default: the manifests', watchlab:dev)")
	fl.StringVar(&f.mode, "mode", string(fleet.ModeSelf), strings.Join(modes, ", "))
	fl.StringVar(&f.upload, "upload", "configmap", "where results go: configmap, log, dir=PATH (of the volume watchlab-results), s3=URL (with the Secret watchlab-s3)")
	fl.StringVar(&f.overlay, "overlay", "", "manifests: "+strings.Join(fleet.Overlays(), ", ")+", or a folder with a kustomization that stands on ../../base (default: the base, Guaranteed with 2 CPUs each)")
	fl.DurationVar(&f.barrier, "barrier", defaultBarrier, "how long shards wait for each other before each play; 0 for not at all")
	fl.BoolVar(&f.wait, "wait", true, "watch the run until it is over")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print what would be applied, in YAML, and apply nothing")
	fl.StringVarP(&f.playing.file, "experiment", "f", "", "experiment in YAML; flags after -- win over it")
	f.telemetry.addPush(cmd)
	return cmd
}

func (f *clusterRunFlags) run(cmd *cobra.Command, args []string) error {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	c, fl, err := f.place.connect(cmd, true)
	if err != nil {
		return err
	}
	spec, err := f.spec(cmd, c, args)
	if err != nil {
		return err
	}
	if _, err := fleet.Build(spec); err != nil {
		return f.blame(err)
	}
	if spec.PodMonitor, err = fl.PodMonitors(); err != nil {
		return err
	}
	if f.dryRun {
		return printObjects(cmd.OutOrStdout(), spec)
	}
	if err := fl.Start(ctx, spec); err != nil {
		if errors.Is(err, fleet.ErrExists) {
			return badFlag("name", fmt.Errorf("%w (%s takes it away)", err, f.place.again("clean", spec.Plan.Run)))
		}
		return err
	}
	fmt.Fprintf(stderr, "watchlab: run %s: mode %s, %s\n", spec.Ref(), spec.Plan.Mode, report.Plural(spec.Plan.Pods, "shard"))
	if !f.wait {
		f.goOn(stderr, spec.Plan.Run)
		return nil
	}
	tell := follower{w: stderr}
	warn := func(err error) { fmt.Fprintf(stderr, "watchlab: %s; trying again\n", oneLine(err)) }
	state, err := fl.Follow(ctx, spec.Ref(), tell.show, warn)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "watchlab: interrupted; the run goes on")
		f.goOn(stderr, spec.Plan.Run)
		return errInterrupted
	case err != nil:
		return err
	}
	fmt.Fprintf(stderr, "  %s\n", f.place.again("collect", spec.Plan.Run))
	if n := state.Count(fleet.Succeeded); n < spec.Plan.Pods {
		return fmt.Errorf("%d of %d shards came to their end: %s", n, spec.Plan.Pods, strings.Join(unfinished(state), "; "))
	}
	return nil
}

// unfinished names the shards that didn't come to their end, and why.
func unfinished(s fleet.State) []string {
	var all []string
	for _, sh := range s.Pods {
		if sh.Phase == fleet.Succeeded || sh.Writer {
			continue
		}
		why := string(sh.Phase)
		if sh.Reason != "" {
			why += ", " + sh.Reason
		}
		all = append(all, fmt.Sprintf("shard %s %s", shardName(sh), why))
	}
	if s.Failure != "" {
		all = append(all, s.Failure)
	}
	return all
}

// goOn says how to get at a run that goes on.
func (f *clusterRunFlags) goOn(w io.Writer, name string) {
	for _, verb := range []string{"status", "collect", "clean"} {
		fmt.Fprintf(w, "  %s\n", f.place.again(verb, name))
	}
}

// blame says which flag an error is about.
func (f *clusterRunFlags) blame(err error) error {
	var field *experiment.FieldError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &field), errors.Is(err, experiment.ErrSpec), errors.Is(err, pipeline.ErrConfig):
		return f.playing.blame(f.given, err)
	case errors.Is(err, fleet.ErrOverlay):
		return badFlag("overlay", err)
	case errors.Is(err, fleet.ErrPlan), errors.Is(err, fleet.ErrSpec):
		return usageError{err}
	}
	return err
}

func printObjects(w io.Writer, spec fleet.Spec) error {
	objects, err := fleet.Build(spec)
	if err != nil {
		return err
	}
	for _, o := range objects {
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "---\n%s", data)
	}
	return nil
}

// spec checks all flags, those of run included, and says which run they make.
func (f *clusterRunFlags) spec(cmd *cobra.Command, c *cluster.Cluster, args []string) (fleet.Spec, error) {
	none := fleet.Spec{}
	mode := fleet.Mode(f.mode)
	given := cmd.Flags().Changed
	if !slices.Contains(fleet.Modes(), mode) {
		return none, badFlag("mode", experiment.OneOf(f.mode, string(fleet.ModeSelf), string(fleet.ModeSharedServer), string(fleet.ModeCluster)))
	}
	if f.place.name == "" && !given("name") {
		f.place.name = runNow(time.Now())
	}
	spec := fleet.Spec{
		Plan: fleet.Plan{
			Run: f.place.name, Mode: mode, Pods: f.pods, Upload: f.upload, Barrier: metav1.Duration{Duration: f.barrier},
		},
		Namespace: f.place.namespace, Image: f.image, Overlay: f.overlay, Dashboards: dashboards.Manifests,
	}
	for _, check := range []struct {
		flag string
		err  error
	}{
		{"name", fleet.CheckRun(f.place.name)},
		{"upload", fleet.CheckUpload(f.upload)},
		{"pods", atLeastOne(f.pods)},
		{"writers", atLeastOne(f.writers)},
	} {
		if check.err != nil {
			return none, badFlag(check.flag, check.err)
		}
	}
	switch mode {
	case fleet.ModeCluster:
		spec.Plan.Writers = f.writers
	case fleet.ModeSharedServer:
		spec.Plan.Server, spec.Token = fleet.ServerName(f.place.name), apiserver.NewToken()
	}
	if mode != fleet.ModeCluster && given("writers") {
		return none, badFlag("writers", fmt.Errorf("needs --mode %s", fleet.ModeCluster))
	}
	spec.Plan.PushMetrics, spec.Plan.Pyroscope = f.telemetry.push, f.telemetry.pyroscope
	if err := f.parse(cmd, args); err != nil {
		return none, err
	}
	return spec, f.blame(f.plan(cmd, c, &spec))
}

func atLeastOne(n int) error {
	if n < 1 {
		return fmt.Errorf("%d is less than 1", n)
	}
	return nil
}

// parse reads the flags after --, by the flag set of run.
func (f *clusterRunFlags) parse(cmd *cobra.Command, args []string) error {
	if slices.Contains(args, "-h") || slices.Contains(args, "--help") {
		return usageError{errors.New("watchlab run --help-all lists the flags after --")}
	}
	file := f.playing.file
	f.given = &cobra.Command{Use: "run"}
	f.playing.add(f.given, nil, anyField)
	f.playing.file = file
	f.given.SetContext(cmd.Context())
	if err := f.given.ParseFlags(args); err != nil {
		return usageError{err}
	}
	if rest := f.given.Flags().Args(); len(rest) > 0 {
		return usageError{fmt.Errorf("run takes no argument %q, only flags", rest[0])}
	}
	return nil
}

// clusterRefuses are the fields of a Spec that are not for a run in a cluster, beside
// those of [podRefuses].
var clusterRefuses = map[string]string{
	"cluster.kubeconfig": "--kubeconfig stands before --",
	"cluster.context":    "--context stands before --",
}

// modeRefuses are those that a mode has no use for.
var modeRefuses = map[fleet.Mode]map[string]string{
	fleet.ModeSelf:         {},
	fleet.ModeSharedServer: {"source": "mode shared-server has its own", "paces": "the simulated API server plays the storm in its own time"},
	fleet.ModeCluster:      {"source": "mode cluster has its own", "cluster.resource": "is the storm's"},
}

// plan puts into the run what its pods, and its simulated API server, play. It checks
// both as they will: this cluster stands in for the simulated API server.
func (f *clusterRunFlags) plan(cmd *cobra.Command, c *cluster.Cluster, run *fleet.Spec) error {
	spec, err := f.playing.spec(f.given)
	if err != nil {
		return err
	}
	mode := run.Plan.Mode
	for _, refuses := range []map[string]string{podRefuses, clusterRefuses, modeRefuses[mode]} {
		if path, why := refusedField(&spec, refuses); path != "" {
			return &experiment.FieldError{Field: path, Err: fmt.Errorf("is not for a run in a cluster: %s", why)}
		}
	}
	if slices.Contains(spec.Manifests, "-") {
		return &experiment.FieldError{Field: "manifests", Err: errors.New("- is not for a run in a cluster, whose pods read it each")}
	}
	pods, connected := spec, experiment.Cluster{Kubeconfig: f.place.kubeconfig, Context: f.place.context, For: spec.Cluster.For}
	switch mode {
	case fleet.ModeSelf:
		if spec.Source == experiment.ClusterSource || spec.Source == experiment.ApplySource {
			return &experiment.FieldError{Field: "source", Err: fmt.Errorf("%s needs --mode %s", spec.Source, fleet.ModeCluster)}
		}
		p, err := experiment.New(cmd.Context(), spec, nil)
		if err == nil && len(p.Spec.Parts) > 0 {
			err = &experiment.FieldError{Field: "family", Err: errors.New("is needed, or --storm or --pipeline: the quick experiment has no storm to share")}
		}
		if err != nil {
			return err
		}
	case fleet.ModeSharedServer:
		spec.Storm.Name = cmp.Or(spec.Storm.Name, experiment.DefaultStorm)
		if pods, err = f.planServer(cmd, spec, run); err != nil {
			return err
		}
		checked := pods
		checked.Cluster.Kubeconfig, checked.Cluster.Context = connected.Kubeconfig, connected.Context
		if _, err := experiment.New(cmd.Context(), checked, nil); err != nil {
			return err
		}
	case fleet.ModeCluster:
		pods.Source = experiment.ApplySource
		checked := pods
		checked.Cluster = connected
		p, err := experiment.New(cmd.Context(), checked, nil)
		if err != nil {
			return err
		}
		w, err := p.Spec.Written(cmd.Context(), c)
		if err != nil {
			return err
		}
		run.Resource = w.Storm.Resource.GroupResource()
	}
	pack := packer{files: map[string][]byte{}, from: map[string]string{}}
	if err := pack.spec(&pods); err != nil {
		return err
	}
	run.Plan.Experiment = pods.JSON()
	if mode == fleet.ModeSharedServer {
		if err := pack.spec(&spec); err != nil {
			return err
		}
		run.Serve = []string{"--experiment=" + path.Join(fleet.PlanDir, serverFile)}
		pack.files[serverFile] = spec.JSON()
	}
	run.Files = pack.files
	return nil
}

// serverFile is the Spec of the simulated API server, beside the plan.
const serverFile = "server.json"

// planServer checks what the simulated API server is to play, and returns what the pods
// play: what they watch of it.
func (f *clusterRunFlags) planServer(cmd *cobra.Command, spec experiment.Spec, run *fleet.Spec) (experiment.Spec, error) {
	pods := spec
	pods.Source, pods.Storm, pods.Faults, pods.Manifests, pods.Recursive = experiment.ClusterSource, experiment.Storm{}, nil, nil, false
	serve := serveFlags{from: spec, bind: "127.0.0.1", start: startFirstWatch, speed: 1}
	if err := serve.from.Storm.Validate(); err != nil {
		return pods, err
	}
	v, err := serve.prepare(cmd.Context(), strings.NewReader(""))
	if err != nil {
		return pods, err
	}
	if err := v.server.Close(); err != nil {
		return pods, err
	}
	run.Resource = v.set.Storms[0].Resource.GroupResource()
	pods.Cluster.Resource = cmp.Or(pods.Cluster.Resource, run.Resource.String())
	return pods, nil
}

// packer gathers files that travel with a run.
type packer struct {
	files map[string][]byte

	from map[string]string
}

// spec packs the files that a Spec names, and names them as pods find them: its storm
// and its manifests, but for what is fetched.
func (p *packer) spec(s *experiment.Spec) (err error) {
	if name := s.Storm.Name; name != "" && !slices.Contains(storm.Names(), name) && !slices.Contains(trace.Names(), name) {
		if s.Storm.Name, err = p.add(name); err != nil {
			return &experiment.FieldError{Field: "storm.name", Err: err}
		}
	}
	s.Manifests = slices.Clone(s.Manifests)
	for i, name := range s.Manifests {
		if strings.Contains(name, "://") {
			continue
		}
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a folder; name its files, for a run in a cluster", name)
		}
		if err == nil {
			s.Manifests[i], err = p.add(name)
		}
		if err != nil {
			return &experiment.FieldError{Field: "manifests", Err: err}
		}
	}
	return nil
}

// add packs a file, and returns where shards find it.
func (p *packer) add(name string) (string, error) {
	base := filepath.Base(name)
	if other, taken := p.from[base]; taken && other != name {
		return "", fmt.Errorf("%s and %s have one name, and travel in one folder", other, name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	p.files[base], p.from[base] = data, name
	return path.Join(fleet.PlanDir, base), nil
}
