package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// Component is a program of a control plane.
type Component string

// The components, in the order in which they are started.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
)

// ErrComponent is wrapped by the error for a component that there is not, or that
// is not in the state for what is to be done with it.
var ErrComponent = errors.New("controlplane: not that component")

// process is a program that runs.
type process struct {
	name    Component
	program string
	args    []string
	cmd     *exec.Cmd
	log     *tail

	ended chan struct{}

	killed bool
}

// start starts a program in a folder; it ends with this one.
func start(dir string, name Component, program string, args []string) (*process, error) {
	p := &process{
		name: name, program: program, args: args,
		cmd: exec.Command(program, args...), log: new(tail), ended: make(chan struct{}),
	}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.SysProcAttr = endsWithParent()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) failed() error {
	how := p.cmd.ProcessState.String()
	return fmt.Errorf("%s ended: %s; its last words:\n%s", p.name, how, p.log)
}

func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // It may have ended.
	select {
	case <-p.ended:
	case <-time.After(stopTime):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// run starts a component for the first time.
func (c *ControlPlane) run(name Component, program string, args ...string) error {
	p, err := start(c.dir, name, program, args)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = append(c.processes, p)
	return nil
}

// find returns the place of a component, or -1. The caller holds mu.
func (c *ControlPlane) find(name Component) int {
	return slices.IndexFunc(c.processes, func(p *process) bool { return p.name == name })
}

// Kill ends components as kill -9 does, and returns when they have ended: none has a
// chance to say goodbye to anybody. What one had told the system to write is written.
// The error wraps [ErrComponent].
func (c *ControlPlane) Kill(names ...Component) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		at := c.find(name)
		if at < 0 || c.processes[at].killed {
			return fmt.Errorf("%w: %s does not run", ErrComponent, name)
		}
		p := c.processes[at]
		if err := p.cmd.Process.Kill(); err != nil {
			return fmt.Errorf("controlplane: %w", p.failed())
		}
		<-p.ended
		p.killed = true
	}
	return nil
}

// Restart starts components that were killed, as they were started the first time, on
// the same ports and the same data, and returns when the API server is ready again, or
// with ctx's error. It is not ready without etcd. The error wraps [ErrComponent] where
// one was not killed.
func (c *ControlPlane) Restart(ctx context.Context, names ...Component) error {
	for _, name := range names {
		if err := c.revive(name); err != nil {
			return err
		}
	}
	if err := c.ready(ctx); err != nil {
		return fmt.Errorf("controlplane: %v started again: %w", names, err)
	}
	return nil
}

func (c *ControlPlane) revive(name Component) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.find(name)
	if at < 0 || !c.processes[at].killed {
		return fmt.Errorf("%w: %s was not killed", ErrComponent, name)
	}
	old := c.processes[at]
	p, err := start(c.dir, name, old.program, old.args)
	if err != nil {
		return fmt.Errorf("controlplane: %w", err)
	}
	c.processes[at] = p
	return nil
}
