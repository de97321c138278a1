package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"watchlab/bench/controller"
	"watchlab/bench/controller/program"
	"watchlab/bench/controller/rules"
	"watchlab/bench/experiment"
	"watchlab/bench/fleet"
	"watchlab/bench/fleet/upload"
	"watchlab/loadgen/source/cluster"
	"watchlab/loadgen/workload"
)

// imageFlags say where watchlab controller --image runs.
type imageFlags struct {
	place       placeFlags
	watchlab    string // image of watchlab
	waitForPods time.Duration
}

// podOnly are the flags of --image alone.
var podOnly = []string{"kubeconfig", "context", "namespace", "name", "watchlab-image", "wait-for-pods"}

func (f *imageFlags) add(cmd *cobra.Command) {
	f.place.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.watchlab, "watchlab-image", "", "image of watchlab, for --image (default watchlab:dev)")
	addWaitForPods(fl, &f.waitForPods)
}

// checkImage refuses what a pod cannot do, and flags of a pod without one.
func (f *controllerFlags) checkImage(cmd *cobra.Command, spec controller.Spec) error {
	if spec.Image != "" {
		if f.page != "" {
			return badFlag("page", errors.New("is not for --image: the play runs in a pod"))
		}
		return nil
	}
	for _, name := range podOnly {
		if cmd.Flags().Changed(name) {
			return badFlag(name, errors.New("is for --image"))
		}
	}
	return nil
}

// inPod plays a Spec in a pod of its image and moves the results folder here. It leaves no object in the cluster
// but the namespace.
func (f *controllerFlags) inPod(cmd *cobra.Command, spec controller.Spec) (*controller.Result, error) {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	c, fl, err := f.pod.place.connect(cmd, true)
	if err != nil {
		return nil, err
	}
	run, err := f.pod.run(ctx, spec, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	if err := fl.Start(ctx, run); err != nil {
		return nil, f.pod.blame(ctx, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), experiment.CleanLimit)
		defer cancel()
		if err := fl.Clean(ctx, run.Ref()); err != nil {
			warn(stderr, "%s; %s deletes the rest", oneLine(err), f.pod.place.again("clean", run.Plan.Run))
		}
	}()
	warn(stderr, "run %s: one pod of image %s", run.Ref(), spec.Image)
	var noted chan struct{} // closed after the last note
	show := func(s fleet.State) {
		if p := s.Pods[0]; p.Phase == fleet.Running && noted == nil {
			noted = make(chan struct{})
			go func() {
				defer close(noted)
				copyNotes(ctx, c.Config(), run.Namespace, p.Name, stderr)
			}()
		}
	}
	state, err := fl.Follow(ctx, run.Ref(), f.pod.waitForPods, show, func(err error) { warn(stderr, "%s; retrying", oneLine(err)) })
	var waits *fleet.WaitError
	switch {
	case ctx.Err() != nil:
		warn(stderr, "interrupted; the run is deleted from the cluster")
		return nil, errInterrupted
	case errors.As(err, &waits):
		flag := ""
		if waits.Pod.Image == cmp.Or(run.Image, defaultImage) {
			flag = "watchlab-image"
		}
		return nil, fmt.Errorf("%w; %s", waits, f.pod.place.remedy(waits.Pod, flag, "the pod asks"))
	case err != nil:
		return nil, err
	}
	if noted != nil {
		select {
		case <-noted:
		case <-time.After(lastNotes): // The stream of a log may not end with its container.
		}
	}
	return f.fetch(ctx, c.Config(), spec, state)
}

// run is the run of one pod that plays a Spec.
func (f *imageFlags) run(ctx context.Context, spec controller.Spec, stdin io.Reader) (fleet.Spec, error) {
	run := fleet.Spec{
		Plan: fleet.Plan{
			Run: cmp.Or(f.place.name, "storm-"+time.Now().Format("0102-150405")), Mode: fleet.ModeController, Pods: 1, Upload: upload.LogTarget,
		},
		Namespace: f.place.namespace, Image: f.watchlab, Program: spec.Image,
	}
	pack := packer{files: map[string][]byte{}, from: map[string]string{}}
	if err := pack.controller(ctx, &spec, stdin); err != nil {
		return run, err
	}
	var err error
	run.Files = pack.files
	run.Plan.Experiment, err = json.Marshal(spec)
	return run, err
}

// controller packs the files of a Spec for the pod and replaces their names.
func (p *packer) controller(ctx context.Context, s *controller.Spec, stdin io.Reader) error {
	objects, err := controller.Check(ctx, *s, stdin)
	if err != nil {
		return err
	}
	if err := p.storm(&s.Storm); err != nil {
		return err
	}
	fail := func(field string, err error) error { return &experiment.FieldError{Field: field, Err: err} }
	if s.Workload != "" && !slices.Contains(workload.Names(), s.Workload) {
		if s.Workload, err = p.workload(s.Workload); err != nil {
			return fail("workload", err)
		}
	}
	s.Stages = slices.Clone(s.Stages)
	for i, name := range s.Stages {
		if s.Stages[i], err = p.add(name); err != nil {
			return fail("stages", err)
		}
	}
	if s.Rules != "" {
		names := strings.Split(s.Rules, ",")
		for i, name := range names {
			if name = strings.TrimSpace(name); slices.Contains(rules.Names(), name) {
				continue
			}
			if names[i], err = p.add(name); err != nil {
				return fail("rules", err)
			}
		}
		s.Rules = strings.Join(names, ",")
	}
	if len(s.Manifests) > 0 {
		// Folders, URLs and the standard input are read here: the pod has none of them.
		var items []any
		for _, o := range objects {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.Object)
			if err != nil {
				return fail("manifests", fmt.Errorf("%s: %w", o, err))
			}
			content["apiVersion"], content["kind"] = o.Kind.ToAPIVersionAndKind()
			items = append(items, content)
		}
		data, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
		if err == nil {
			var name string
			name, err = p.put("the manifests", "manifests.json", data)
			s.Manifests, s.Recursive = []string{name}, false
		}
		if err != nil {
			return fail("manifests", err)
		}
	}
	s.Image = ""
	return nil
}

// workload packs a workload with the manifests that it names.
func (p *packer) workload(name string) (string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	var form map[string]any
	if err := yaml.Unmarshal(data, &form); err != nil {
		return "", err
	}
	objects, _ := form["objects"].([]any)
	for _, o := range objects {
		group, _ := o.(map[string]any)
		file, ok := group["manifest"].(string)
		if !ok {
			continue
		}
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(name), file)
		}
		if group["manifest"], err = p.add(file); err != nil {
			return "", err
		}
	}
	if data, err = yaml.Marshal(form); err != nil {
		return "", err
	}
	return p.put(name, filepath.Base(name), data)
}

func (f *imageFlags) blame(ctx context.Context, err error) error {
	var planned *fleet.FieldError
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, fleet.ErrExists):
		return badFlag("name", err)
	case !errors.As(err, &planned):
		return err
	case planned.Field == "files":
		return usageError{fmt.Errorf("the files of the run: %w", planned.Err)}
	}
	flags := map[string]string{"run": "name", "image": "watchlab-image", "program": "image"}
	return badFlag(cmp.Or(flags[planned.Field], planned.Field), planned.Err)
}

const (
	notePrefix = "note: "        // of the lines of a pod's log that this command shows while it follows
	lastNotes  = 3 * time.Second // for the rest of a log after the end of its container
)

// copyNotes shows the notes of a pod. It ends with the container or ctx. A broken stream is no error: the results
// folder has what matters.
func copyNotes(ctx context.Context, config *rest.Config, namespace, pod string, w io.Writer) {
	client, err := cluster.REST(config, corev1.SchemeGroupVersion)
	if err != nil {
		return
	}
	log, err := podLog(ctx, client, namespace, pod, corev1.PodLogOptions{Follow: true})
	if err != nil {
		return
	}
	defer func() { _ = log.Close() }() // It was only read.
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if note, ok := strings.CutPrefix(lines.Text(), notePrefix); ok {
			warn(w, "%s", note)
		}
	}
}

const (
	fetchPeriod = 2 * time.Second
	fetchLimit  = 30 * time.Second
)

// fetch writes the results folder of an ended pod. The error is that of the pod; with a result it came after the
// result.
func (f *controllerFlags) fetch(ctx context.Context, config *rest.Config, spec controller.Spec, state fleet.State) (*controller.Result, error) {
	p := state.Pods[0]
	fetched := false
	var damaged []upload.Damage
	err := wait.PollUntilContextTimeout(ctx, fetchPeriod, fetchLimit, true, func(ctx context.Context) (bool, error) {
		logs, err := podLogs(ctx, config, state.Ref)
		if err != nil {
			return false, nil //nolint:nilerr // It asks again.
		}
		damaged, err = logs.Read(ctx, state.Run, func(b upload.Bundle) error {
			fetched = true
			return b.Extract(f.dir)
		})
		return fetched || p.Phase != fleet.Succeeded, err
	})
	text, ours := strings.CutPrefix(p.Message, "watchlab: ")
	switch {
	case p.Phase == fleet.Succeeded && fetched:
	case p.Phase == fleet.Succeeded && wait.Interrupted(err):
		err = fmt.Errorf("the log of pod %s has no complete results folder: %v", p.Name, damaged)
	case p.Phase == fleet.Succeeded:
	case ours && p.ExitCode == exitUsage:
		err = usageError{errors.New(text)}
	case ours && p.ExitCode == exitInvalid:
		err = errors.New(text)
	default:
		err = fmt.Errorf("pod %s failed: %s", p.Name, cmp.Or(p.Reason, state.Failure))
	}
	if !fetched {
		return nil, err
	}
	o, adoptErr := controller.Adopt(f.dir, spec, os.Args[1:])
	return o, errors.Join(err, adoptErr)
}

// storm plays a storm to the program of this pod's image and uploads the results folder.
func (s *jobPod) storm(ctx context.Context) error {
	note := func(text string) { fmt.Fprintf(s.stderr, "%s%s\n", notePrefix, text) }
	dir := filepath.Join(os.TempDir(), "results")
	o, err := controller.Run(ctx, s.stormed, controller.Options{
		Dir: dir, Build: build(), Args: os.Args[1:], Notify: note, Progress: func(p controller.Progress) { note(progressText(p)) },
	})
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case errors.Is(err, program.ErrCommand):
		return usageError{err}
	case o == nil:
		return err
	}
	encode := func() (upload.Bundle, error) {
		return upload.EncodeFolder(upload.Header{
			Run: s.plan.Run, Of: s.plan.Pods, Pod: s.pod, Commit: o.Env.Revision(), Started: o.Env.Started, Finished: true,
		}, os.DirFS(dir))
	}
	b, encodeErr := encode()
	if len(b.Data) > upload.MaxLog {
		note(fmt.Sprintf("the results have %d bytes (allowed: %d): logs and requests of the plays are left out", len(b.Data), upload.MaxLog))
		if encodeErr = os.RemoveAll(filepath.Join(dir, controller.PlaysDir)); encodeErr == nil {
			b, encodeErr = encode()
		}
	}
	if encodeErr == nil {
		// One stream keeps the order: an error follows the results.
		encodeErr = upload.Log{Writer: s.stderr}.Upload(ctx, b)
	}
	return errors.Join(err, encodeErr)
}

// install copies this program to a path, for a pod whose image does not have it.
func install(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	data, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o755)
}
