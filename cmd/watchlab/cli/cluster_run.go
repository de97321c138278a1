package cli

import (
	"cmp"
	"context"
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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/lab"
	"watchlab/bench/pipeline"
	"watchlab/loadgen/manifest"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/storm"
	"watchlab/loadgen/trace"
)

type clusterRunFlags struct {
	place                placeFlags
	pods, writers        int
	image, mode, overlay string
	barrier, waitForPods time.Duration
	wait, dryRun         bool

	telemetry telemetryFlags
	playing   specFlags
	given     *cobra.Command // flags after --
	packed    packer
}

const defaultBarrier = 2 * time.Minute // covers the start of pods on new nodes

func newClusterRun() *cobra.Command {
	var f clusterRunFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- [flags of run]",
		Short: "Start a load Job in a cluster and follow it",
		Long: `run plays an experiment from many pods of a cluster, in one of two modes:

  self     each pod plays its share of the storm in its own pipelines
  cluster  --writers pods write the storm to this cluster; each pod watches it

The run continues after Ctrl-C and with --wait=false. run exits with 1 if a pod failed for good.`,
		Example: `  # A node loss from four pods, in kind
  watchlab cluster run --context kind-watchlab --overlay kind --name mine -- --storm nodeloss --nodes 100 --pace max,2000

  # The watch of the real API server, through each delta queue
  watchlab cluster run --context dev --mode cluster --writers 2 -- --family deltafifo --storm rollout --nodes 5 --pace 50`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
				return usageError{fmt.Errorf("%s takes no argument %q; put flags of run after --", cmd.CommandPath(), args[0])}
			}
			return f.run(cmd, args)
		},
	}
	f.place.add(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.pods, "pods", 4, "playing pods")
	fl.IntVar(&f.writers, "writers", 1, "writing pods, for --mode "+string(fleet.ModeCluster))
	fl.StringVar(&f.image, "image", "", "image of the pods (default watchlab:dev)")
	fl.StringVar(&f.mode, "mode", string(fleet.ModeSelf), "mode: "+fleet.ModeNames())
	fl.StringVar(&f.overlay, "overlay", "", "overlay: "+strings.Join(fleet.Overlays(), ", ")+", or a directory (default: base)")
	fl.DurationVar(&f.barrier, "barrier", defaultBarrier, "barrier timeout before each cell; 0 for no barrier")
	fl.DurationVar(&f.waitForPods, "wait-for-pods", 2*time.Minute, "limit for a pod's wait for a node or its image")
	fl.BoolVar(&f.wait, "wait", true, "follow the run until it ends")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the manifests and apply nothing")
	fl.StringVarP(&f.playing.file, "experiment", "f", "", "experiment in YAML; flags after -- win over it")
	f.telemetry.addPyroscope(cmd)
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
		return f.badPlan(err)
	}
	if spec.PodMonitor, err = fl.PodMonitors(); err != nil {
		return err
	}
	if f.dryRun {
		return printObjects(cmd.OutOrStdout(), spec)
	}
	if err := fl.Start(ctx, spec); err != nil {
		if errors.Is(err, fleet.ErrExists) {
			return badFlag("name", fmt.Errorf("%w (%s deletes it)", err, f.place.again("clean", spec.Plan.Run)))
		}
		return err
	}
	warn(stderr, "run %s: mode %s, %s", spec.Ref(), spec.Plan.Mode, lab.Plural(spec.Plan.Pods, "pod"))
	if !f.wait {
		f.nextSteps(stderr, spec.Plan.Run, "status", "collect", "clean")
		return nil
	}
	changes := follower{w: stderr, now: time.Now, remedy: f.remedy}
	var waits *fleet.WaitError
	state, err := fl.Follow(ctx, spec.Ref(), f.waitForPods, changes.show, func(err error) { warn(stderr, "%s; retrying", oneLine(err)) })
	switch {
	case ctx.Err() != nil:
		warn(stderr, "interrupted; the run continues in the cluster")
		f.nextSteps(stderr, spec.Plan.Run, "status", "collect", "clean")
		return errInterrupted
	case errors.As(err, &waits):
		f.nextSteps(stderr, spec.Plan.Run, "status", "clean")
		return fmt.Errorf("%w; %s", waits, f.remedy(waits.Pod))
	case err != nil:
		return err
	}
	warn(stderr, "run %s has ended; collect merges its results, clean deletes it", spec.Plan.Run)
	f.nextSteps(stderr, spec.Plan.Run, "collect", "clean")
	if n := state.Count(fleet.Succeeded); n < spec.Plan.Pods {
		return fmt.Errorf("%d of %d pods succeeded: %s", n, spec.Plan.Pods, strings.Join(unfinished(state), "; "))
	}
	return nil
}

// remedy says what helps a pod that does not start.
func (f *clusterRunFlags) remedy(p fleet.Pod) string {
	cluster, kind := strings.CutPrefix(f.place.context, "kind-")
	switch {
	case p.Reason == corev1.PodReasonUnschedulable:
		return fmt.Sprintf("overlay %s asks for more than the nodes have", cmp.Or(f.overlay, "base"))
	case !noImage(p):
		return fmt.Sprintf("kubectl -n %s get events says more", f.place.namespace)
	case kind && p.Deployment == "":
		return fmt.Sprintf("make image-load IMAGE=%s CLUSTER=%s loads it, --image names another", p.Image, cluster)
	case kind:
		return fmt.Sprintf("docker pull %[1]s && kind load docker-image %[1]s --name %[2]s loads it", p.Image, cluster)
	}
	return "load it into the nodes, or a registry that they reach"
}

// noImage reports whether a pod waits for its image in vain: ErrImagePull, ImagePullBackOff and others.
func noImage(p fleet.Pod) bool {
	return p.Phase == fleet.Waiting && strings.Contains(p.Reason, "Image")
}

func unfinished(s fleet.State) []string {
	var all []string
	for _, p := range s.Pods {
		if p.Phase == fleet.Succeeded || !p.Plays() {
			continue
		}
		all = append(all, podName(p)+" "+phaseOf(p))
	}
	if s.Failure != "" {
		all = append(all, s.Failure)
	}
	return all
}

func (f *clusterRunFlags) nextSteps(w io.Writer, name string, verbs ...string) {
	for _, verb := range verbs {
		fmt.Fprintf(w, "  %s\n", f.place.again(verb, name))
	}
}

// badPlan names the flag of a mistake in the plan of the run.
func (f *clusterRunFlags) badPlan(err error) error {
	at, ok := errors.AsType[*manifest.Error](err)
	if !ok {
		return err
	}
	if name, ok := strings.CutPrefix(at.Field, "files."); ok {
		file := f.packed.from[name]
		return f.playing.blame(f.given, manifest.BadField(file.field, fmt.Errorf("%s: %w", file.path, at.Err)))
	}
	return badFlag(cmp.Or(map[string]string{"run": "name"}[at.Field], at.Field), at.Err)
}

// blame names the flag, or the line of the file, of a mistake in the experiment.
func (f *clusterRunFlags) blame(err error) error {
	if _, ok := errors.AsType[*manifest.Error](err); ok || errors.Is(err, pipeline.ErrConfig) {
		return f.playing.blame(f.given, err)
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

func (f *clusterRunFlags) spec(cmd *cobra.Command, c *cluster.Cluster, args []string) (fleet.Spec, error) {
	if f.place.name == "" && !cmd.Flags().Changed("name") {
		f.place.name = "run-" + time.Now().Format("0102-150405")
	}
	spec := fleet.Spec{
		Plan: fleet.Plan{
			Run: f.place.name, Mode: fleet.Mode(f.mode), Pods: f.pods, Barrier: metav1.Duration{Duration: f.barrier},
			Pyroscope: f.telemetry.pyroscope,
		},
		Namespace: f.place.namespace, Image: f.image, Overlay: f.overlay,
	}
	if spec.Plan.Mode == fleet.ModeCluster || cmd.Flags().Changed("writers") {
		spec.Plan.Writers = f.writers
	}
	if err := f.badPlan(spec.Plan.Validate()); err != nil {
		return spec, err
	}
	if err := f.parse(cmd, args); err != nil {
		return spec, err
	}
	return spec, f.blame(f.plan(cmd, c, &spec))
}

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

// clusterRefuses are fields of a Spec that a load Job cannot use, beside [podRefuses].
var clusterRefuses = map[string]string{
	"cluster.kubeconfig": "put --kubeconfig before --",
	"cluster.context":    "put --context before --",
}

// modeRefuses are fields that mode cluster cannot use.
var modeRefuses = map[string]string{"source": "mode cluster sets it", "cluster.resource": "the storm sets it"}

// plan adds the experiment of the pods to the run. To find errors early, it plans it as the pods will.
func (f *clusterRunFlags) plan(cmd *cobra.Command, c *cluster.Cluster, run *fleet.Spec) error {
	spec, err := f.playing.spec(f.given)
	if err != nil {
		return err
	}
	refused := []map[string]string{podRefuses, clusterRefuses}
	if run.Plan.Mode == fleet.ModeCluster {
		refused = append(refused, modeRefuses)
	}
	for _, refuses := range refused {
		if path, why := refusedField(&spec, refuses); path != "" {
			return manifest.BadField(path, fmt.Errorf("cannot be used in a load Job: %s", why))
		}
	}
	if slices.Contains(spec.Manifests, "-") {
		return manifest.BadField("manifests", errors.New("- cannot be used in a load Job: pods have no standard input"))
	}
	if run.Plan.Mode == fleet.ModeCluster {
		spec.Source = experiment.ApplySource
		checked := spec
		checked.Cluster = experiment.Cluster{Kubeconfig: f.place.kubeconfig, Context: f.place.context, For: spec.Cluster.For}
		p, err := experiment.New(cmd.Context(), checked, nil)
		if err != nil {
			return err
		}
		w, err := p.Spec.Written(cmd.Context(), c)
		if err != nil {
			return err
		}
		run.Resource = w.Storm.Resource.GroupResource()
	} else if err := checkSelf(cmd.Context(), spec); err != nil {
		return err
	}
	f.packed = packer{files: map[string][]byte{}, from: map[string]packedFile{}}
	if err := f.packed.spec(&spec); err != nil {
		return err
	}
	run.Plan.Experiment, run.Files = spec.JSON(), f.packed.files
	return nil
}

func checkSelf(ctx context.Context, spec experiment.Spec) error {
	switch {
	case spec.Source == experiment.ClusterSource || spec.Source == experiment.ApplySource:
		return manifest.BadField("source", fmt.Errorf("%s needs --mode %s", spec.Source, fleet.ModeCluster))
	case spec.HasParts():
		return manifest.BadField("family", errors.New("is needed, or --storm or --pipeline: the default experiment has several storms"))
	}
	_, err := experiment.New(ctx, spec, nil)
	return err
}

type packer struct {
	files map[string][]byte
	from  map[string]packedFile // by packed name
}

// packedFile is a file of the user, and the field of the Spec that names it.
type packedFile struct{ path, field string }

// spec packs the files of a Spec and replaces their names by the paths in a pod.
func (p *packer) spec(s *experiment.Spec) (err error) {
	if name := s.Storm.Name; name != "" && !slices.Contains(storm.Names(), name) && !slices.Contains(trace.Names(), name) {
		if s.Storm.Name, err = p.add(name, "storm.name"); err != nil {
			return manifest.BadField("storm.name", err)
		}
	}
	s.Manifests = slices.Clone(s.Manifests)
	for i, name := range s.Manifests {
		if strings.Contains(name, "://") {
			continue
		}
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			err = fmt.Errorf("%s is a directory; name its files", name)
		}
		if err == nil {
			s.Manifests[i], err = p.add(name, "manifests")
		}
		if err != nil {
			return manifest.BadField("manifests", err)
		}
	}
	return nil
}

func (p *packer) add(name, field string) (string, error) {
	base := filepath.Base(name)
	if other, taken := p.from[base]; taken && other.path != name {
		return "", fmt.Errorf("%s and %s have the same name", other.path, name)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	p.files[base], p.from[base] = data, packedFile{name, field}
	return path.Join(fleet.PlanDir, base), nil
}
