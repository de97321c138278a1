package cli

import (
	"encoding/csv"
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
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"watchlab/bench/fleet"
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

// blame says which flag an error of Build is about.
func (f *clusterRunFlags) blame(err error) error {
	switch {
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
		return none, badFlag("mode", oneOf(f.mode, string(fleet.ModeSelf), string(fleet.ModeSharedServer), string(fleet.ModeCluster)))
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
	flags, err := f.checkRun(cmd, c, args)
	if err != nil {
		return none, err
	}
	spec.Resource = flags.resource
	spec.Plan.Args, spec.Serve, spec.Files, err = flags.pack(mode)
	return spec, err
}

func atLeastOne(n int) error {
	if n < 1 {
		return fmt.Errorf("%d is less than 1", n)
	}
	return nil
}

// shippedFlags are the flags of run as they are sent with a run.
type shippedFlags struct {
	*pflag.FlagSet

	resource schema.GroupResource
}

// refusedFlags are those that mean this machine, or that a shard is told otherwise;
// [shardRefuses] has more.
var refusedFlags = map[string]string{
	"output":       "cluster collect shows what came of it",
	"metrics-addr": "shards serve metrics on port 9464",
	"kubeconfig":   "which cluster it is stands before --",
	"context":      "which cluster it is stands before --",
}

// refused says why a flag of run is not for a run in a cluster.
func refused(name string) (why string, is bool) {
	if why, is = refusedFlags[name]; !is {
		why, is = shardRefuses[name]
	}
	return why, is
}

// stormFlagsOfServe are the flags that serve has in common with run: they say what
// happens.
var stormFlagsOfServe = []string{"storm", "nodes", "pods", "scale", "skew", "seed", "faults", "filename", "recursive"}

// checkRun checks the flags of run as a shard will.
func (f *clusterRunFlags) checkRun(cmd *cobra.Command, c *cluster.Cluster, args []string) (shippedFlags, error) {
	none := shippedFlags{}
	if slices.Contains(args, "-h") || slices.Contains(args, "--help") {
		return none, usageError{errors.New("watchlab run --help says what can stand after --")}
	}
	run, flags, err := f.parse(cmd, args)
	if err != nil {
		return none, err
	}
	shipped := shippedFlags{FlagSet: flags.Flags()}
	mode := fleet.Mode(f.mode)
	flags.Flags().Visit(func(fl *pflag.Flag) {
		if why, is := refused(fl.Name); is && err == nil {
			err = badFlag(fl.Name, fmt.Errorf("is not for a run in a cluster: %s", why))
		}
		if mode == fleet.ModeSelf || err != nil {
			return
		}
		switch {
		case fl.Name == "source":
			err = badFlag("source", fmt.Errorf("--mode %s has its own", mode))
		case fl.Name == "resource" && mode == fleet.ModeCluster:
			err = badFlag("resource", errors.New("is the storm's"))
		case fl.Name == "pace" && mode == fleet.ModeSharedServer:
			err = badFlag("pace", errors.New("the simulated API server plays the storm in its own time"))
		}
	})
	if err == nil && mode == fleet.ModeSelf && liveSource(run.source) {
		err = badFlag("source", fmt.Errorf("%s needs --mode %s", run.source, fleet.ModeCluster))
	}
	if err == nil && slices.Contains(run.filenames, "-") {
		err = badFlag("filename", errors.New("- is not for a run in a cluster, whose shards read it each"))
	}
	if err != nil {
		return none, err
	}
	switch mode {
	case fleet.ModeSelf:
		if _, err = run.plan(flags); err == nil && run.family == "" {
			err = badFlag("family", errors.New("is needed, or --storm or --pipeline: the quick study has no storm to share"))
		}
	case fleet.ModeSharedServer:
		shipped.resource, err = f.checkShared(cmd, run, flags)
	case fleet.ModeCluster:
		if err = f.replan(cmd, append(slices.Clone(args), "--source="+applySource)); err == nil {
			shipped.resource, err = run.stormResource(flags)
		}
	}
	return shipped, err
}

// parse reads the flags of run.
func (f *clusterRunFlags) parse(cmd *cobra.Command, args []string) (*runFlags, *cobra.Command, error) {
	run := &runFlags{}
	flags := &cobra.Command{Use: "run"}
	run.addAll(flags)
	flags.SetContext(cmd.Context())
	flags.SetIn(strings.NewReader("")) // Shards have none.
	if err := flags.ParseFlags(args); err != nil {
		return nil, nil, usageError{err}
	}
	if rest := flags.Flags().Args(); len(rest) > 0 {
		return nil, nil, usageError{fmt.Errorf("run takes no argument %q, only flags", rest[0])}
	}
	return run, flags, nil
}

// replan plans what a run of this machine's would do with the flags and this cluster,
// and forgets it.
func (f *clusterRunFlags) replan(cmd *cobra.Command, args []string) error {
	args = append(args, "--context="+f.place.context)
	if f.place.kubeconfig != "" {
		args = append(args, "--kubeconfig="+f.place.kubeconfig)
	}
	run, flags, err := f.parse(cmd, args)
	if err != nil {
		return err
	}
	_, err = run.plan(flags)
	return err
}

// checkShared checks what the simulated API server is told, and then what those are
// who watch it: this cluster stands in for it. It returns what they watch, which is
// what the storm is of, where no flag says otherwise.
func (f *clusterRunFlags) checkShared(cmd *cobra.Command, run *runFlags, flags *cobra.Command) (schema.GroupResource, error) {
	none := schema.GroupResource{}
	if err := run.storm.check(flags); err != nil {
		return none, err
	}
	serve := serveFlags{
		storm: run.storm, seed: run.seed, faults: run.faults, filenames: run.filenames, recursive: run.recursive,
		bind: "127.0.0.1", start: startFirstWatch, speed: 1,
	}
	v, err := serve.prepare(cmd.Context(), strings.NewReader(""))
	if err != nil {
		return none, err
	}
	if err := v.server.Close(); err != nil {
		return none, err
	}
	var watching []string
	flags.Flags().Visit(func(fl *pflag.Flag) {
		if !slices.Contains(stormFlagsOfServe, fl.Name) {
			watching = append(watching, spell(fl)...)
		}
	})
	of := v.set.Storms[0].Resource.GroupResource()
	if !flags.Flags().Changed("resource") {
		watching = append(watching, "--resource="+of.String())
	}
	// A family is what --storm stands for, too.
	if !flags.Flags().Changed("family") {
		watching = append(watching, "--family="+defaultFamily)
	}
	return of, f.replan(cmd, append(watching, "--source="+clusterSource))
}

// stormResource is the resource of the storm's objects.
func (f *runFlags) stormResource(cmd *cobra.Command) (schema.GroupResource, error) {
	s, _, err := f.load(cmd)
	if err != nil {
		return schema.GroupResource{}, err
	}
	return s.Resource.GroupResource(), nil
}

// spell writes a flag as it was given.
func spell(fl *pflag.Flag) []string {
	list, ok := fl.Value.(pflag.SliceValue)
	if !ok {
		return []string{"--" + fl.Name + "=" + fl.Value.String()}
	}
	return spellList(fl, list.GetSlice())
}

func spellList(fl *pflag.Flag, values []string) []string {
	if fl.Value.Type() == "stringArray" {
		var all []string
		for _, v := range values {
			all = append(all, "--"+fl.Name+"="+v)
		}
		return all
	}
	// What has commas is one value between quotes.
	var text strings.Builder
	w := csv.NewWriter(&text)
	_ = w.Write(values) // A Builder takes everything.
	w.Flush()
	return []string{"--" + fl.Name + "=" + strings.TrimSuffix(text.String(), "\n")}
}

// pack writes down what the shards and the simulated API server are told, and reads
// the files that go with it.
func (f shippedFlags) pack(mode fleet.Mode) (args, serve []string, files map[string][]byte, err error) {
	p := packer{files: map[string][]byte{}, from: map[string]string{}}
	if mode == fleet.ModeSharedServer {
		if storm := f.Lookup("storm"); !storm.Changed {
			serve = spell(storm) // serve has no default for it.
		}
		if !f.Changed("resource") {
			args = append(args, "--resource="+f.resource.String())
		}
	}
	f.Visit(func(fl *pflag.Flag) {
		if err != nil {
			return
		}
		spelled := spell(fl)
		switch fl.Name {
		case "storm":
			var name string
			if name, err = p.storm(fl.Value.String()); err == nil {
				spelled = []string{"--storm=" + name}
			}
		case "filename":
			var names []string
			if names, err = p.manifests(fl.Value.(pflag.SliceValue).GetSlice()); err == nil {
				spelled = spellList(fl, names)
			}
		}
		if mode == fleet.ModeSharedServer && slices.Contains(stormFlagsOfServe, fl.Name) {
			serve = append(serve, spelled...)
		}
		args = append(args, spelled...)
	})
	return args, serve, p.files, err
}

// packer gathers files that travel with a run.
type packer struct {
	files map[string][]byte

	from map[string]string
}

// storm packs the storm's file, where it is one.
func (p *packer) storm(name string) (string, error) {
	if slices.Contains(storm.Names(), name) || slices.Contains(trace.Names(), name) {
		return name, nil
	}
	to, err := p.add(name)
	if err != nil {
		return "", badFlag("storm", err)
	}
	return to, nil
}

// manifests packs what -f names: files, the files of folders, not what is fetched.
func (p *packer) manifests(names []string) ([]string, error) {
	var packed []string
	for _, name := range names {
		if strings.Contains(name, "://") {
			packed = append(packed, name)
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, badFlag("filename", err)
		}
		if info.IsDir() {
			return nil, badFlag("filename", fmt.Errorf("%s is a folder; name its files, for a run in a cluster", name))
		}
		to, err := p.add(name)
		if err != nil {
			return nil, badFlag("filename", err)
		}
		packed = append(packed, to)
	}
	return packed, nil
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
