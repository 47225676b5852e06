package operator

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
)

// Seconds of a profile of the processor and of a trace. A second of a trace may have some
// MiB.
const (
	profileSeconds    = 30
	maxProfileSeconds = 60
	traceSeconds      = 1
	maxTraceSeconds   = 10
)

// NewDebug returns the handler of the debug socket: GET /debug/pprof/NAME, as go tool pprof
// and go tool trace read it. It authenticates no caller: the socket's mode does.
func NewDebug(publicURL string) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /debug/pprof/{name}", func(w http.ResponseWriter, r *http.Request) {
		if err := serveProfile(w, r, r.PathValue("name")); err != nil {
			problem.Write(w, publicURL, err)
		}
	})

	return problem.Routes(m, publicURL)
}

// Profile answers GET /v1/operator/debug/pprof/{name}.
func Profile(w http.ResponseWriter, call *request.Call) error {
	return serveProfile(w, call.Request, call.Vars["name"])
}

// serveProfile answers with a profile of the process: profile (of the processor), trace, or
// one of runtime/pprof's by its name.
func serveProfile(w http.ResponseWriter, r *http.Request, name string) error {
	response.NoStore(w)

	switch name {
	case "profile":
		return serveSampled(w, r, profileSeconds, maxProfileSeconds, func() error { return pprof.StartCPUProfile(w) },
			pprof.StopCPUProfile)
	case "trace":
		return serveSampled(w, r, traceSeconds, maxTraceSeconds, func() error { return trace.Start(w) }, trace.Stop)
	}

	found := pprof.Lookup(name)
	if found == nil {
		return directory.Refuse(directory.NotFound, "there is no profile %.64q; there are %s", name, profileNames())
	}

	level, err := number(r, "debug", 0, 2)
	if err != nil {
		return err
	}

	collect, err := number(r, "gc", 0, 1)
	if err != nil {
		return err
	}

	if collect > 0 {
		runtime.GC()
	}

	contentType := "application/octet-stream"
	if level > 0 {
		contentType = "text/plain; charset=utf-8"
	}

	w.Header().Set("Content-Type", contentType)

	if r.Method != http.MethodHead {
		_ = found.WriteTo(w, level) // an error means that the client is gone
	}

	return nil
}

// serveSampled answers with a profile that is sampled for some seconds. At most one is sampled at a time in the
// process.
func serveSampled(w http.ResponseWriter, r *http.Request, usual, most int, start func() error, stop func()) error {
	seconds, err := number(r, "seconds", 1, most)
	if err != nil {
		return err
	}

	seconds = cmp.Or(seconds, usual)
	took := time.Duration(seconds) * time.Second

	w.Header().Set("Content-Type", "application/octet-stream")

	if r.Method == http.MethodHead {
		return nil
	}

	// The server's write deadline would end a long sample.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(took + response.WriteTime))

	if err := start(); err != nil {
		return directory.Refuse(directory.Unavailable, "another one is being taken; try again in %d s: %w", most, err)
	}

	defer stop()

	ctx, cancel := context.WithTimeout(r.Context(), took)
	defer cancel()
	<-ctx.Done()

	return nil
}

// number returns a parameter of a query; 0 if there is none.
func number(r *http.Request, name string, least, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, nil
	}

	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, directory.Refuse(directory.BadQuery, "%s must be %d to %d, got %.64q", name, least, most, text)
	}

	return n, nil
}

func profileNames() string {
	names := []string{"profile", "trace"}
	for _, p := range pprof.Profiles() {
		names = append(names, p.Name())
	}

	slices.Sort(names)

	return strings.Join(names, ", ")
}
