package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"watchlab/bench/e2e/controlplane"
	"watchlab/bench/e2e/programs"
	"watchlab/loadgen/apiserver"
)

// standIn replaces the kubelet for the pods of our Jobs. It binds each pod to a fake node, runs the container's
// command as a process of this machine, and reports the pod's status. The process has the environment, files and
// service account token of the pod. The Job controller, admission and RBAC are real.
//
// A process has no root file system of its own, so standIn rewrites the paths of mounts in arguments and files.
// standIn enforces no limits and runs no probes.
type standIn struct {
	t       testing.TB
	client  kubernetes.Interface
	cp      *controlplane.ControlPlane
	program string
	dir     string
	// spoil, if not nil, is called with each started process.
	spoil func(pod *corev1.Pod, process *os.Process)

	mu   sync.Mutex                   // guards pods
	pods map[string]*programs.Process // by UID
	wg   sync.WaitGroup
}

const standInNode = "stand-in"

// standInForKubelet starts a standIn that runs until the test ends.
func standInForKubelet(t testing.TB, cp *controlplane.ControlPlane, program string) *standIn {
	t.Helper()
	config := cp.Config()
	config.QPS = -1
	s := &standIn{
		t: t, cp: cp, client: kubernetes.NewForConfigOrDie(config), program: program, dir: t.TempDir(),
		pods: map[string]*programs.Process{},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: standInNode}}
	if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("the stand-in for the kubelet: %v", err)
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		s.mu.Lock()
		for _, p := range s.pods {
			_ = p.Process.Kill() // The process may have ended.
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

// look starts new pods and stops deleted ones.
func (s *standIn) look(ctx context.Context) error {
	list, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=watchlab"})
	if err != nil {
		return err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		s.mu.Lock()
		p := s.pods[string(pod.UID)]
		s.mu.Unlock()
		over := true
		if p != nil {
			select {
			case <-p.Done:
			default:
				over = false
			}
		}
		switch {
		case pod.DeletionTimestamp != nil && over:
			err = s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		case pod.DeletionTimestamp != nil:
			_ = p.Process.Signal(syscall.SIGTERM) // The process may have ended.
		case p == nil && pod.Status.Phase == corev1.PodPending && len(pod.Spec.SchedulingGates) == 0:
			err = s.take(ctx, pod)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("%s: %w", pod.Name, err)
		}
	}
	return nil
}

// take binds and starts a pod.
func (s *standIn) take(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName == "" {
		err := s.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: standInNode},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		pod.Spec.NodeName = standInNode
	}
	cmd, err := s.command(ctx, pod, filepath.Join(s.dir, pod.Name))
	if err != nil {
		return err
	}
	p, err := programs.Run(cmd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.pods[string(pod.UID)] = p
	s.mu.Unlock()
	if s.spoil != nil {
		s.spoil(pod, p.Process)
	}
	started := metav1.Now()
	if err := s.report(ctx, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}); err != nil {
		return err
	}
	s.wg.Go(func() {
		<-p.Done
		code, phase := p.ProcessState.ExitCode(), corev1.PodSucceeded
		if status, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			code = 128 + int(status.Signal())
		}
		if code != 0 {
			phase = corev1.PodFailed
		}
		err := s.report(ctx, pod, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), StartedAt: started, FinishedAt: metav1.Now(),
		}})
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			s.t.Errorf("%s: %v", pod.Name, err)
		}
	})
	return nil
}

// report writes the status of a pod.
func (s *standIn) report(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) error {
	pods := s.client.CoreV1().Pods(pod.Namespace)
	for {
		now, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := pod.Spec.Containers[0]
		now.Status.Phase = phase
		now.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: c.Name, Image: c.Image, ImageID: c.Image, State: state, Ready: state.Running != nil}}
		if phase == corev1.PodRunning {
			now.Status.Conditions = append(now.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
		}
		if _, err = pods.UpdateStatus(ctx, now, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// command returns the command of the pod's only container. Its mounts are below root.
func (s *standIn) command(ctx context.Context, pod *corev1.Pod, root string) (*exec.Cmd, error) {
	c := pod.Spec.Containers[0]
	var paths []string
	for _, m := range c.VolumeMounts {
		paths = append(paths, m.MountPath+"/", filepath.Join(root, m.MountPath)+"/")
	}
	local := strings.NewReplacer(paths...) // One pass: a new path may start with an old one.
	for _, m := range c.VolumeMounts {
		dir := filepath.Join(root, m.MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		for _, v := range pod.Spec.Volumes {
			if v.Name != m.Name || v.ConfigMap == nil {
				continue
			}
			cm, err := s.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
			if err != nil {
				return nil, err
			}
			for name, text := range cm.Data {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(local.Replace(text)), 0o600); err != nil {
					return nil, err
				}
			}
		}
	}
	kubeconfig, err := s.kubeconfig(ctx, pod, root)
	if err != nil {
		return nil, err
	}
	env := []string{"KUBECONFIG=" + kubeconfig}
	for _, e := range c.Env {
		env = append(env, e.Name+"="+value(pod, c, e))
	}
	var args []string
	for _, a := range c.Args {
		args = append(args, local.Replace(a))
	}
	cmd := exec.Command(s.program, append(args, "--metrics-addr=127.0.0.1:0")...) // The default does not work outside of a pod.
	cmd.Env, cmd.Dir = env, filepath.Join(root, "tmp")
	return cmd, nil
}

// value returns the value of an environment variable.
func value(pod *corev1.Pod, c corev1.Container, e corev1.EnvVar) string {
	switch from := e.ValueFrom; {
	case from == nil:
		for _, other := range c.Env {
			if reference := "$(" + other.Name + ")"; strings.Contains(e.Value, reference) {
				return strings.ReplaceAll(e.Value, reference, value(pod, c, other))
			}
		}
		return e.Value
	case from.ResourceFieldRef != nil:
		q := c.Resources.Limits[corev1.ResourceName(strings.TrimPrefix(from.ResourceFieldRef.Resource, "limits."))]
		divisor := from.ResourceFieldRef.Divisor.MilliValue()
		return strconv.FormatInt((q.MilliValue()+divisor-1)/divisor, 10) // Round up, as the kubelet does.
	}
	key := e.ValueFrom.FieldRef.FieldPath
	for prefix, values := range map[string]map[string]string{"metadata.annotations['": pod.Annotations, "metadata.labels['": pod.Labels} {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			return values[strings.TrimSuffix(name, "']")]
		}
	}
	return map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName}[key]
}

// kubeconfig writes a kubeconfig with a token of the service account, bound to the pod. It replaces the mounted token.
func (s *standIn) kubeconfig(ctx context.Context, pod *corev1.Pod, root string) (string, error) {
	made, err := s.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	path, config := filepath.Join(root, "kubeconfig"), s.cp.Config()
	return path, apiserver.WriteKubeconfig(path, apiserver.Kubeconfig{Server: config.Host, CA: config.CAData, Token: made.Status.Token}, false)
}

// said returns the output of all pods.
func (s *standIn) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for uid, p := range s.pods {
		fmt.Fprintf(&text, "pod %s:\n%s\n", uid, p.Output)
	}
	return text.String()
}
