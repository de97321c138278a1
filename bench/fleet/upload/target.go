package upload

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// The kinds of targets.
const (
	ConfigMapTarget = "configmap"
	LogTarget       = "log"
	DirTarget       = "dir"
	S3Target        = "s3"
)

// Targets lists the forms of a target, for help texts.
const Targets = "configmap, log, dir=PATH or s3=URL"

// Target is the destination of results.
type Target struct {
	Kind string // one of the kinds of targets
	To   string // path or URL; empty for configmap and log
}

// ParseTarget parses the text form: "configmap", "log", "dir=PATH" or "s3=URL".
// [S3Store] documents the URL. The error wraps [ErrTarget].
func ParseTarget(text string) (Target, error) {
	kind, to, has := strings.Cut(text, "=")
	t := Target{Kind: kind, To: to}
	switch {
	case kind == S3Target && has:
		_, err := parseS3(to, func(string) string { return "" })
		return t, err
	case kind == DirTarget && to != "", !has && (kind == ConfigMapTarget || kind == LogTarget):
		return t, nil
	}
	return Target{}, fmt.Errorf("%w: %q (allowed: %s)", ErrTarget, text, Targets)
}

func (t Target) String() string {
	if t.To == "" {
		return t.Kind
	}
	return t.Kind + "=" + t.To
}

// Environment holds the process's resources for sinks. A sink uses only those of its
// kind.
type Environment struct {
	// Client and Namespace are for ConfigMaps.
	Client    kubernetes.Interface
	Namespace string
	// Log is the destination of log lines.
	Log io.Writer
	// Getenv reads the settings and credentials of S3: os.Getenv.
	Getenv func(string) string
}

// Sink opens the target. The error wraps [ErrTarget], or names the missing part of the
// environment.
func (t Target) Sink(e Environment) (Sink, error) {
	switch t.Kind {
	case ConfigMapTarget:
		if e.Client == nil || e.Namespace == "" {
			return nil, errors.New("upload to ConfigMaps needs a cluster and a namespace")
		}
		return ConfigMaps{Client: e.Client, Namespace: e.Namespace}, nil
	case LogTarget:
		if e.Log == nil {
			return nil, errors.New("upload to the log needs a log")
		}
		return NewLog(e.Log), nil
	case DirTarget:
		return Dir(t.To), nil
	case S3Target:
		return OpenS3(t.To, e.Getenv)
	}
	return nil, fmt.Errorf("%w: %q", ErrTarget, t)
}
