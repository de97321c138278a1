// Package program runs a controller under test and observes its process.
//
//  1. [Start] starts a command in its own process group. It finds the API server by a kubeconfig or, with
//     [InCluster], as in a pod.
//  2. [Program.Sample] samples the process group, a [Scraper] reads the program's metrics.
//  3. [Program.Kill] and [Program.Stop] end it, with its children. The end of watchlab ends it, too (Linux).
package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"watchlab/loadgen/apiserver"
)

// Options say how a program is started. In the command's arguments these are replaced:
//
//	{kubeconfig}  Kubeconfig
//	{metrics}     a free host:port on loopback, see [Program.MetricsURL]
//	{client}      Client
//	{dir}         Dir
type Options struct {
	Client  string   // name of the replica
	Command []string // program with its arguments
	Log     string   // file that standard output and error are appended to
	Dir     string   // existing folder for files of the program, absolute
	// Kubeconfig is the file that KUBECONFIG names, absolute. With InCluster, KUBECONFIG is unset.
	Kubeconfig string
	InCluster  *InCluster
	// Stdin and Stdout are the program's; nil for none, and for Log.
	Stdin, Stdout *os.File
}

// ErrCommand means that the command cannot be started.
var ErrCommand = errors.New("cannot start the program")

// Exit is the end of a program.
type Exit struct {
	At      time.Time
	Planned bool   // by Kill, Stop or the end of the context
	Status  string // as in "exit status 1" or "signal: killed"
}

// Program is a started program. Its methods are safe for concurrent use.
type Program struct {
	client  string
	metrics string // host:port in place of {metrics}, or empty
	cmd     *exec.Cmd
	exited  chan struct{}

	mu      sync.Mutex
	ended   bool // the group must not be signaled: its id may be another group's
	planned bool
	exit    Exit // set before exited is closed
}

// Start starts the program. Its end is planned when ctx ends. The error for a command that cannot be
// started names it and wraps [ErrCommand]; that of InCluster wraps [ErrInCluster].
func Start(ctx context.Context, o Options) (*Program, error) {
	p := &Program{client: o.Client, exited: make(chan struct{})}
	command, err := p.expand(o)
	if err != nil {
		return nil, err
	}
	if p.cmd, err = newCommand(command); err != nil {
		return nil, err
	}
	p.cmd.Env = environment(o)
	p.cmd.SysProcAttr = OwnGroup()
	started := func() error { return nil }
	if o.InCluster != nil {
		if started, err = o.InCluster.enter(p.cmd, o.Dir); err != nil {
			return nil, err
		}
	}
	log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of the program: %w", err)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if o.Stdin != nil {
		p.cmd.Stdin = o.Stdin
	}
	if o.Stdout != nil {
		p.cmd.Stdout = o.Stdout
	}
	result := make(chan error)
	go p.run(log, result)
	if err := <-result; err != nil {
		if o.InCluster != nil {
			return nil, errors.Join(inClusterError(err), started())
		}
		return nil, fmt.Errorf("%w %s: %w", ErrCommand, command[0], err)
	}
	if err := started(); err != nil {
		p.Kill()
		<-p.exited
		return nil, err
	}
	stop := context.AfterFunc(ctx, p.Kill)
	go func() {
		<-p.exited
		stop()
	}()
	return p, nil
}

// expand replaces the placeholders of the command.
func (p *Program) expand(o Options) (command []string, err error) {
	if len(o.Command) == 0 {
		return nil, fmt.Errorf("%w: the command is empty", ErrCommand)
	}
	values := map[string]string{"{kubeconfig}": o.Kubeconfig, "{client}": o.Client, "{dir}": o.Dir}
	command = slices.Clone(o.Command)
	if slices.ContainsFunc(command, func(s string) bool { return strings.Contains(s, "{metrics}") }) {
		ports, err := FreePorts(1)
		if err != nil {
			return nil, fmt.Errorf("%w %s: {metrics}: %w", ErrCommand, o.Command[0], err)
		}
		p.metrics = Address(ports[0])
		values["{metrics}"] = p.metrics
	}
	for i, s := range o.Command {
		for name, value := range values {
			if value == "" && strings.Contains(s, name) {
				return nil, fmt.Errorf("%w %s: argument %q: no %s in this run", ErrCommand, o.Command[0], s, name)
			}
			command[i] = strings.ReplaceAll(command[i], name, value)
		}
	}
	return command, nil
}

// FreePorts returns n free ports of loopback. Another program may take one before use, which then ends with an error.
func FreePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := apiserver.Access{}.Listen(Address(0))
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // All stay open until the end: the ports must differ.
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// Address is that of a port of loopback.
func Address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// LastLines are the last lines of a log, in one line; empty if it has none.
func LastLines(log []byte) string {
	lines := strings.Split(string(bytes.TrimSpace(log)), "\n")
	return strings.TrimSpace(strings.Join(lines[max(0, len(lines)-3):], "; "))
}

// Check reports whether a command can be found.
func Check(command []string) error {
	_, err := newCommand(command)
	return err
}

func newCommand(command []string) (*exec.Cmd, error) {
	path, err := exec.LookPath(command[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		var lookup *exec.Error
		if errors.As(err, &lookup) {
			err = lookup.Err // The name is in the message.
		}
		return nil, fmt.Errorf("%w %s: %w", ErrCommand, command[0], err)
	}
	return &exec.Cmd{Path: path, Args: command}, nil
}

// environment returns that of this process without what would lead a client to another API server.
func environment(o Options) []string {
	leading := []string{"KUBECONFIG", "KUBERNETES_MASTER", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
	env := slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return slices.Contains(leading, name)
	})
	if o.InCluster == nil && o.Kubeconfig != "" {
		env = append(env, "KUBECONFIG="+o.Kubeconfig)
	}
	return env
}

// run starts the program, sends the result, and waits for the end. The thread that starts the program
// has to live as long: the kernel kills the program at the end of that thread.
func (p *Program) run(log *os.File, result chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	_ = log.Close() // The program has it.
	if result <- err; err != nil {
		return
	}
	awaitExit(p.cmd.Process.Pid)
	// Children end with the program: they would disturb the next play. The lock is held until the group's
	// id is free.
	p.mu.Lock()
	at := time.Now()
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Wait() // The state tells.
	p.ended = true
	p.exit = Exit{At: at, Planned: p.planned, Status: p.cmd.ProcessState.String()}
	p.mu.Unlock()
	close(p.exited)
}

// Pid returns the id of the process, which is that of its group.
func (p *Program) Pid() int { return p.cmd.Process.Pid }

// MetricsURL returns the URL of the metrics at {metrics}, without a scheme, for [NewScraper]; empty if the command has no such argument.
func (p *Program) MetricsURL() string {
	if p.metrics == "" {
		return ""
	}
	return "//" + p.metrics + "/metrics"
}

// Exited is closed after the end of the program.
func (p *Program) Exited() <-chan struct{} { return p.exited }

// Exit returns the end of the program. It waits for it.
func (p *Program) Exit() Exit {
	<-p.exited
	return p.exit
}

// Kill kills the program and its children. That end is planned.
func (p *Program) Kill() { p.signal(syscall.SIGKILL) }

// Stop asks the program and its children to end, and kills those that remain when the program has ended,
// or after the grace period. It returns when the program has ended.
func (p *Program) Stop(grace time.Duration) {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(grace):
		p.Kill()
	}
	<-p.exited
}

func (p *Program) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.planned = true
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}
