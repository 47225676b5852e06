package api

import (
	"net/http"
	"net/http/pprof"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AdminConfig is what the admin listener shows.
type AdminConfig struct {
	// PublicURL is the domain's, which explains the problems that are answered.
	PublicURL string
	Metrics   http.Handler // of /metrics; may be nil
	// Ready is nil where the node has a leader, has caught up and serves; else it
	// names the check that failed.
	Ready func() error
}

// NewAdmin returns the handler of the admin listener: /metrics, /healthz (the
// process lives), /readyz (it serves) and /debug/pprof. It asks nobody who they
// are: it belongs on a loopback address.
func NewAdmin(cfg AdminConfig) http.Handler {
	m := http.NewServeMux()
	if cfg.Metrics != nil {
		m.Handle("GET /metrics", cfg.Metrics)
	}
	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		write(w, r, http.StatusOK, "application/json", []byte(`{"healthy":true}`+"\n"))
	})
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := cfg.Ready(); err != nil {
			b := strictjson.AppendText([]byte(`{"ready":false`), "failing", err.Error())
			write(w, r, http.StatusServiceUnavailable, "application/json", append(b, '}', '\n'))
			return
		}
		write(w, r, http.StatusOK, "application/json", []byte(`{"ready":true}`+"\n"))
	})
	for path, show := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		m.HandleFunc("GET /debug/pprof/"+path, calledLoopback(cfg.PublicURL, show))
	}
	return problem.Routes(m, cfg.PublicURL)
}

// calledLoopback refuses who calls this machine by another name. So a browser does whose
// page has had its own name bound to the loopback address, to read what is there as if it
// were its own (OPS-021).
func calledLoopback(base string, show http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			problem.Write(w, base, directory.Refuse(directory.Forbidden, "This is shown to who calls it localhost, or by its loopback address."))
			return
		}
		show(w, r)
	}
}
