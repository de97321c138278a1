package controller

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"watchlab/bench/controller/program"
	"watchlab/bench/controller/record"
	"watchlab/loadgen/apiserver"
)

// replica is one replica of a program, through its restarts.
type replica struct {
	session *session
	options program.Options
	ctx     context.Context // of its processes

	mu      sync.Mutex // guards the fields below
	current *program.Program
	fatal   bool // a process has ended that was not stopped
	stopped bool
	watched sync.WaitGroup
}

// optionsOf are those of a program with a name, which has a folder, a log and a kubeconfig. The last is written.
func (p *session) optionsOf(client string, command []string) (o program.Options, err error) {
	o = program.Options{Client: client, Command: command, Log: filepath.Join(p.dir, client+".log")}
	o.Dir, err = filepath.Abs(filepath.Join(p.dir, client))
	o.Kubeconfig = o.Dir + ".kubeconfig"
	return o, errors.Join(err, os.MkdirAll(o.Dir, 0o755), apiserver.WriteKubeconfig(o.Kubeconfig, p.server.Kubeconfig(client), true))
}

func (p *session) newReplica(ctx context.Context, options program.Options) (*replica, error) {
	r := &replica{session: p, ctx: ctx, options: options}
	if p.spec.InCluster {
		kc := p.server.Kubeconfig(options.Client)
		at, err := url.Parse(kc.Server)
		if err != nil {
			return nil, err
		}
		r.options.InCluster = &program.InCluster{Host: at.Hostname(), Port: at.Port(), CA: kc.CA, Token: kc.Token, Namespace: "default"}
	}
	return r, r.start()
}

// start starts a process of the replica, unless one runs: writes that were on their way may crash it twice at once.
func (r *replica) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	if r.current != nil {
		select {
		case <-r.current.Exited():
		default:
			return nil
		}
	}
	started, err := program.Start(r.ctx, r.options)
	if err != nil {
		return err
	}
	r.current = started
	r.watched.Go(func() {
		exit := started.Exit()
		// Ends before the storm have negative times.
		r.session.note(func() {
			e := record.Exit{Client: r.options.Client, Planned: exit.Planned, Status: exit.Status}
			r.session.exits = append(r.session.exits, exitAt{exit.At, e})
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fatal = r.fatal || !exit.Planned
	})
	return nil
}

// kill kills the process and waits for its end.
func (r *replica) kill() {
	old := r.running()
	old.Kill()
	old.Exit()
}

// running is the newest process, which may have ended.
func (r *replica) running() *program.Program {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current
}

// observe samples a process and scrapes its metrics, now and in each second, until it ends.
func (r *replica) observe(ctx context.Context, process *program.Program, began time.Time) {
	scraper := r.session.scraper(r.options.Client, process.MetricsURL())
	var failed error // the last of the scrapes, none of which succeeded
	if scraper != nil {
		defer func() {
			scraper.Close()
			if failed != nil && ctx.Err() != nil { // A process that was killed may have had no time to serve them.
				r.session.notify(fmt.Sprintf("%s: not read: %v", r.options.Client, failed))
			}
		}()
	}
	read := false
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		at := time.Since(began)
		sample, ok := process.Sample()
		if scraper != nil {
			// A program serves its metrics some time after its start, or never.
			values, err := scraper.Scrape(ctx)
			if ctx.Err() == nil && !read {
				failed, read = err, err == nil
			}
			if err == nil {
				sample.Goroutines = int(values["go_goroutines"])
				scrape := record.Scrape{At: at, Client: r.options.Client, Values: values}
				r.session.note(func() { r.session.scrapes = append(r.session.scrapes, scrape) })
			}
		}
		if sample.At = at; ok {
			r.session.note(func() { r.session.samples = append(r.session.samples, sample) })
		}
		select {
		case <-ctx.Done():
			return
		case <-process.Exited():
			return
		case <-ticker.C:
		}
	}
}

// scraper returns a scraper of the program's metrics, or nil.
func (p *session) scraper(client, own string) *program.Scraper {
	address := own
	if p.spec.Metrics != "" && client == p.clients[0] {
		address = p.spec.Metrics
	}
	if address == "" {
		return nil
	}
	s, err := program.NewScraper(address, p.server.Kubeconfig(client).Token)
	if err != nil {
		p.notify(err.Error())
		return nil
	}
	return s
}

// close stops the process for good and waits for its end.
func (r *replica) close(grace time.Duration) {
	r.mu.Lock()
	r.stopped = true
	current := r.current
	r.mu.Unlock()
	current.Stop(grace)
	r.watched.Wait()
}

// ended reports whether a process has ended by itself.
func (r *replica) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fatal
}

func (r *replica) status() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current.Exit().Status
}

// podFiles matches what programs say that miss the files or the environment of a pod.
var podFiles = regexp.MustCompile(`(?i)in[- ]cluster|serviceaccount/|KUBERNETES_SERVICE_|\bPOD_NAMESPACE\b`)

// loggedError matches an error in the logs of klog, zap, slog and logrus.
var loggedError = regexp.MustCompile(`(?m)^(E\d{4} |.*("level":"(error|ERROR)"|\tERROR\t|\blevel=(error|ERROR)\b))`)

// loggedErrors is the number of errors that the programs have logged.
func (p *session) loggedErrors() (n int) {
	for _, client := range p.clients {
		log, _ := os.ReadFile(filepath.Join(p.dir, client+".log")) // Attached programs have none.
		n += len(loggedError.FindAll(log, -1))
	}
	return n
}

// lastLines are the last lines of a program's log, for an error message.
func lastLines(of program.Options) string {
	data, err := os.ReadFile(of.Log)
	if err != nil {
		return ""
	}
	last := program.LastLines(data)
	if last == "" {
		return " (it wrote nothing)"
	}
	hint := ""
	if of.InCluster == nil && podFiles.MatchString(string(data)) {
		hint = "; --in-cluster gives it a pod's files and environment"
	}
	return fmt.Sprintf(" (its log ends with: %s)%s", last, hint)
}

// exitAt is the end of a process with its time of day.
type exitAt struct {
	at time.Time
	record.Exit
}
