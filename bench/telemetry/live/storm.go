package live

import (
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"watchlab/loadgen/apiserver"
)

// StormStatus is what the page of a storm shows: the answer of GET /status. Times are in seconds of the storm.
type StormStatus struct {
	Name     string        `json:"name"`  // what is played
	State    string        `json:"state"` // waiting, playing, paused, over, or another word
	At       float64       `json:"at"`
	Length   float64       `json:"length"` // time of the last event
	Released int           `json:"released"`
	Events   int           `json:"events"`
	Speed    float64       `json:"speed"`
	Control  bool          `json:"control"` // the page has a transport
	Faults   []StormFault  `json:"faults"`
	Watches  []StormWatch  `json:"watches"`
	Figures  []StormFigure `json:"figures"`
	Plays    []StormPlay   `json:"plays"` // finished ones
}

// StormFault is an injected fault.
type StormFault struct {
	At   float64 `json:"at"` // since the start of the storm by the wall clock
	Name string  `json:"name"`
}

// StormWatch is an open watch.
type StormWatch struct {
	Client   string `json:"client"`
	Resource string `json:"resource"`
	Events   int    `json:"events"` // visible and not written
	Bytes    int    `json:"bytes"`  // written and not taken by the client
}

// StormFigure is a figure now; nil if it is unknown.
type StormFigure struct {
	Name  string   `json:"name"`
	Unit  string   `json:"unit"` // s, B, or a count
	Value *float64 `json:"value"`
}

// StormPlay is a finished play with its verdict.
type StormPlay struct {
	Name    string `json:"name"`
	Verdict string `json:"verdict"`
	Failed  bool   `json:"failed"`
}

// Transport controls the clock of a storm.
type Transport interface {
	Pause()
	Resume()
	Step(events int) (released int)
	Seek(time.Duration) error
	SetSpeed(float64) error
}

// StormOptions are the options of [StartStorm].
type StormOptions struct {
	Addr      string // host:port on loopback; port 0 selects a free one
	Token     string // bearer token that all requests need; a new one by default
	Status    func() StormStatus
	Transport func() Transport // of the storm that is played; nil for a page without controls
	Warn      func(string)     // receives errors while serving, one line each
}

// StartStorm serves the page of a storm until it is closed. The error wraps [ErrAddress], also for an address
// that is not on loopback. All requests need the token, or the cookie of [Server.Link].
//
//	GET  /        the page
//	GET  /status  a [StormStatus]
//	POST /pause   {}
//	POST /resume  {}
//	POST /step    {"events": 1}
//	POST /seek    {"at": 30}, in seconds of the storm, forward only
//	POST /speed   {"speed": 2}
//
// An answer to POST is the status after the change. A request that another web site may have sent is refused.
func StartStorm(opts StormOptions) (*Server, error) {
	s, err := listen(opts.Addr, apiserver.Access{}, cmp.Or(opts.Token, apiserver.NewToken()), opts.Warn)
	if err != nil {
		return nil, err
	}
	return s.serve(s.admit(stormHandler(opts))), nil
}

//go:embed storm
var stormPage embed.FS

func stormHandler(opts StormOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", pageOf(stormPage, "storm"))
	for _, shared := range []string{"/page.css", "/icon.svg"} {
		mux.Handle("GET "+shared, pageOf(page, "page"))
	}
	mux.HandleFunc("GET /chart.css", styles)
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, opts.Status()) })
	if opts.Transport != nil {
		for path, change := range changes {
			mux.HandleFunc("POST "+path, func(w http.ResponseWriter, req *http.Request) {
				if code, err := control(req, opts.Transport(), change); err != nil {
					answer(w, code, map[string]string{"error": err.Error()})
					return
				}
				answer(w, http.StatusOK, opts.Status())
			})
		}
	}
	return mux
}

// command is the body of a change.
type command struct {
	Events int     `json:"events,omitempty"`
	At     float64 `json:"at,omitempty"`
	Speed  float64 `json:"speed,omitempty"`
}

const (
	maxBody = 1 << 10
	maxStep = 1e6
	maxTime = 1e6 // of a storm, in seconds
	maxFast = 1e6 // speed
)

// changes are the requests that control a storm, by path.
var changes = map[string]func(Transport, command) error{
	"/pause":  func(t Transport, _ command) error { t.Pause(); return nil },
	"/resume": func(t Transport, _ command) error { t.Resume(); return nil },
	"/step": func(t Transport, c command) error {
		if c.Events < 1 || c.Events > maxStep {
			return fmt.Errorf("%w: events %d (allowed: 1 to %d)", errCommand, c.Events, int(maxStep))
		}
		t.Step(c.Events)
		return nil
	},
	"/seek": func(t Transport, c command) error {
		if c.At < 0 || c.At > maxTime {
			return fmt.Errorf("%w: at %v (allowed: 0 to %v)", errCommand, c.At, maxTime)
		}
		return t.Seek(time.Duration(c.At * float64(time.Second)))
	},
	"/speed": func(t Transport, c command) error {
		if c.Speed <= 0 || c.Speed > maxFast {
			return fmt.Errorf("%w: speed %v (allowed: more than 0, at most %v)", errCommand, c.Speed, maxFast)
		}
		return t.SetSpeed(c.Speed)
	},
}

var errCommand = errors.New("invalid value")

// control makes a change. The server refuses requests that the page of another site makes.
func control(req *http.Request, t Transport, change func(Transport, command) error) (code int, err error) {
	if kind, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";"); kind != "application/json" {
		return http.StatusUnsupportedMediaType, errors.New("the body has to be application/json")
	}
	var c command
	body := json.NewDecoder(http.MaxBytesReader(nil, req.Body, maxBody))
	body.DisallowUnknownFields()
	if err := body.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return http.StatusBadRequest, err
	}
	err = change(t, c)
	if errors.Is(err, errCommand) {
		return http.StatusBadRequest, err
	}
	return http.StatusConflict, err
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // The client may have gone.
}

// pageOf serves the files of a folder with the content policy of all pages.
func pageOf(files embed.FS, folder string) http.Handler {
	sub, err := fs.Sub(files, folder)
	if err != nil {
		panic(err) // the folder is embedded
	}
	static := http.FileServerFS(sub)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		secure(w)
		static.ServeHTTP(w, req)
	})
}

func secure(w http.ResponseWriter) {
	w.Header().Set("Content-Security-Policy", contentPolicy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-cache")
}
