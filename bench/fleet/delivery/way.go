package delivery

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// The kinds of ways.
const (
	ConfigMapWay = "configmap"
	LogWay       = "log"
	DirWay       = "dir"
	S3Way        = "s3"
)

// Ways says how ways are written, for help texts.
const Ways = "configmap, log, dir=PATH or s3=URL"

// Way is a way to deliver: its kind, and where to for those that need it.
type Way struct {
	Kind string
	To   string
}

// ParseWay reads the text form: "configmap", "log", "dir=PATH", "s3=URL", where the
// URL is of the form that [S3Store] documents. The error wraps [ErrWay].
func ParseWay(text string) (Way, error) {
	kind, to, has := strings.Cut(text, "=")
	w := Way{Kind: kind, To: to}
	switch {
	case kind == S3Way && has:
		_, err := parseS3(to, func(string) string { return "" })
		return w, err
	case kind == DirWay && to != "", !has && (kind == ConfigMapWay || kind == LogWay):
		return w, nil
	}
	return Way{}, fmt.Errorf("%w: %q (allowed: %s)", ErrWay, text, Ways)
}

func (w Way) String() string {
	if w.To == "" {
		return w.Kind
	}
	return w.Kind + "=" + w.To
}

// Surroundings are what ways need of where the program runs.
type Surroundings struct {
	Client    kubernetes.Interface
	Namespace string

	Log io.Writer

	Getenv func(string) string
}

// Sink opens the way. The error wraps [ErrWay], or says what the surroundings lack.
func (w Way) Sink(in Surroundings) (Sink, error) {
	switch w.Kind {
	case ConfigMapWay:
		if in.Client == nil || in.Namespace == "" {
			return nil, errors.New("results go to ConfigMaps, but there is no cluster, or no namespace")
		}
		return ConfigMaps{Client: in.Client, Namespace: in.Namespace}, nil
	case LogWay:
		if in.Log == nil {
			return nil, errors.New("results go to the log, but there is none")
		}
		return NewLog(in.Log), nil
	case DirWay:
		return Folder(w.To), nil
	case S3Way:
		return OpenS3(w.To, in.Getenv)
	}
	return nil, fmt.Errorf("%w: %q", ErrWay, w)
}
