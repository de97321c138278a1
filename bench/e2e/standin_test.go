package main_test

import (
	"bytes"
	"context"
	"errors"
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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"watchlab/bench/e2e/controlplane"
)

// standIn replaces the kubelet for the pods of our Jobs and Deployments. It binds each
// pod to a fake node, runs the container's command as a process of this machine, and
// reports the pod's status. The process has the environment, files and service account
// token of the pod. The Job controller, admission and RBAC are real.
//
// A process has no root file system of its own, so standIn rewrites the paths of mounts
// in arguments and files. standIn enforces no limits and runs no probes.
type standIn struct {
	t       testing.TB
	client  kubernetes.Interface
	cp      *controlplane.ControlPlane
	program string
	dir     string
	// spoil, if not nil, is called with each started process.
	spoil func(pod *corev1.Pod, process *os.Process)

	mu   sync.Mutex             // guards pods
	pods map[string]*podProcess // by UID
	wg   sync.WaitGroup
}

// podProcess is the process of a pod.
type podProcess struct {
	cmd    *exec.Cmd
	output *output
	ended  chan struct{}
}

// output collects the output of a running process. It is safe for concurrent use.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // Guarded by mu.
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

const standInNode = "stand-in"

// standInForKubelet starts a standIn that runs until the test ends.
func standInForKubelet(t testing.TB, cp *controlplane.ControlPlane, program string) *standIn {
	t.Helper()
	config := cp.Config()
	config.QPS = -1
	s := &standIn{
		t: t, cp: cp, client: kubernetes.NewForConfigOrDie(config), program: program, dir: t.TempDir(),
		pods: map[string]*podProcess{},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: standInNode}}
	if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := s.look(ctx); err != nil && ctx.Err() == nil {
					t.Errorf("the stand-in for the kubelet: %v", err)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		s.mu.Lock()
		for _, p := range s.pods {
			if p.cmd != nil {
				_ = p.cmd.Process.Kill() // The process may have ended.
			}
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
		switch {
		case pod.DeletionTimestamp != nil && (p == nil || p.over()):
			err = s.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0))
		case pod.DeletionTimestamp != nil:
			_ = p.cmd.Process.Signal(syscall.SIGTERM) // The process may have ended.
		case p == nil && pod.Status.Phase == corev1.PodPending && len(pod.Spec.SchedulingGates) == 0:
			err = s.take(ctx, pod)
		}
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("%s: %w", pod.Name, err)
		}
	}
	return nil
}

func (p *podProcess) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// take binds and starts a pod.
func (s *standIn) take(ctx context.Context, pod *corev1.Pod) error {
	pods := s.client.CoreV1().Pods(pod.Namespace)
	if pod.Spec.NodeName == "" {
		err := pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, Target: corev1.ObjectReference{Kind: "Node", Name: standInNode},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		pod.Spec.NodeName = standInNode
	}
	root := filepath.Join(s.dir, pod.Name)
	cmd, err := s.command(ctx, pod, root)
	if err != nil {
		return err
	}
	p := &podProcess{cmd: cmd, output: new(output), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	if err := cmd.Start(); err != nil {
		return err
	}
	s.mu.Lock()
	s.pods[string(pod.UID)] = p
	s.mu.Unlock()
	if s.spoil != nil {
		s.spoil(pod, cmd.Process)
	}
	started := metav1.Now()
	if err := s.report(ctx, pod, corev1.PodRunning, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}); err != nil {
		return err
	}
	s.wg.Go(func() {
		err := cmd.Wait()
		close(p.ended)
		code, reason := 0, "Completed"
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			code, reason = exit.ExitCode(), "Error"
			if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
				code = 128 + int(status.Signal())
			}
		}
		phase := corev1.PodSucceeded
		if code != 0 {
			phase = corev1.PodFailed
		}
		err = s.report(ctx, pod, phase, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: reason, StartedAt: started, FinishedAt: metav1.Now(),
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

// command returns the command of the pod's only container, with local paths.
func (s *standIn) command(ctx context.Context, pod *corev1.Pod, root string) (*exec.Cmd, error) {
	c := pod.Spec.Containers[0]
	if err := s.mount(ctx, pod, root); err != nil {
		return nil, err
	}
	env, err := s.environment(ctx, pod, root)
	if err != nil {
		return nil, err
	}
	var args []string
	for _, a := range c.Args {
		args = append(args, s.here(a, pod, root))
	}
	args = append(args, "--metrics-addr=127.0.0.1:0") // The default does not work outside of a pod.
	cmd := exec.Command(s.program, args...)
	cmd.Env, cmd.Dir = env, filepath.Join(root, "tmp")
	return cmd, nil
}

// here replaces the paths of mounts with local paths.
func (s *standIn) here(text string, pod *corev1.Pod, root string) string {
	var pairs []string
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		pairs = append(pairs, m.MountPath+"/", filepath.Join(root, m.MountPath)+"/")
	}
	// Replace in one pass: a new path may start with an old one.
	return strings.NewReplacer(pairs...).Replace(text)
}

// mount writes the volumes of the container.
func (s *standIn) mount(ctx context.Context, pod *corev1.Pod, root string) error {
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		dir := filepath.Join(root, m.MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		files := map[string]string{}
		for _, v := range pod.Spec.Volumes {
			switch {
			case v.Name != m.Name:
			case v.ConfigMap != nil:
				cm, err := s.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, v.ConfigMap.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				for name, text := range cm.Data {
					files[name] = s.here(text, pod, root)
				}
			case v.EmptyDir == nil && v.Projected == nil:
				return fmt.Errorf("the stand-in has no volume like %s", v.Name)
			}
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// environment returns the environment of the container.
func (s *standIn) environment(ctx context.Context, pod *corev1.Pod, root string) ([]string, error) {
	c := pod.Spec.Containers[0]
	values := map[string]string{}
	var env []string
	set := func(name, value string) {
		values[name] = value
		env = append(env, name+"="+value)
	}
	for _, e := range c.Env {
		value := e.Value
		switch from := e.ValueFrom; {
		case from == nil:
			for name, v := range values {
				value = strings.ReplaceAll(value, "$("+name+")", v)
			}
		case from.FieldRef != nil:
			var err error
			if value, err = field(pod, from.FieldRef.FieldPath); err != nil {
				return nil, err
			}
		case from.ResourceFieldRef != nil:
			q := c.Resources.Limits[corev1.ResourceName(strings.TrimPrefix(from.ResourceFieldRef.Resource, "limits."))]
			divisor := from.ResourceFieldRef.Divisor
			// Round up, as the kubelet does.
			value = strconv.FormatInt((q.MilliValue()+divisor.MilliValue()-1)/divisor.MilliValue(), 10)
		default:
			return nil, fmt.Errorf("the stand-in has no value for %s", e.Name)
		}
		set(e.Name, value)
	}
	if mount := pod.Spec.AutomountServiceAccountToken; mount == nil || *mount {
		kubeconfig, err := s.token(ctx, pod, root)
		if err != nil {
			return nil, err
		}
		set("KUBECONFIG", kubeconfig)
	}
	return env, nil
}

func field(pod *corev1.Pod, path string) (string, error) {
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	}
	for _, m := range []struct {
		of     string
		values map[string]string
	}{{"metadata.annotations", pod.Annotations}, {"metadata.labels", pod.Labels}} {
		if key, ok := strings.CutPrefix(path, m.of+"['"); ok {
			return m.values[strings.TrimSuffix(key, "']")], nil
		}
	}
	return "", fmt.Errorf("the stand-in has no field %s", path)
}

// token writes a kubeconfig with a token of the service account, bound to the pod. It
// replaces the mounted token.
func (s *standIn) token(ctx context.Context, pod *corev1.Pod, root string) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	made, err := s.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	config := s.cp.Config()
	k := clientcmdapi.NewConfig()
	k.Clusters["c"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	k.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: made.Status.Token}
	k.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: pod.Namespace}
	k.CurrentContext = "x"
	path := filepath.Join(root, "kubeconfig")
	return path, clientcmd.WriteToFile(*k, path)
}

// said returns the output of all pods whose names have a prefix.
func (s *standIn) said(ctx context.Context, namespace, prefix string) string {
	list, err := s.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	var text strings.Builder
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range list.Items {
		if p := s.pods[string(pod.UID)]; p != nil && strings.HasPrefix(pod.Name, prefix) {
			fmt.Fprintf(&text, "%s:\n%s\n", pod.Name, p.output.String())
		}
	}
	return text.String()
}
