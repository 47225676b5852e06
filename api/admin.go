package api

import (
	"net/http"
	"net/http/pprof"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AdminConfig configures the admin listener.
type AdminConfig struct {
	// PublicURL is the domain's, where problems are explained.
	PublicURL string
	Metrics   http.Handler // of /metrics; may be nil
	// Ready returns nil if the node has a leader, has caught up and serves; else an error
	// that names the check that failed.
	Ready func() error
}

// NewAdmin returns the handler of the admin listener: /metrics, /healthz (the
// process lives), /readyz (it serves) and /debug/pprof. It authenticates no caller, so it
// belongs on a loopback address.
func NewAdmin(cfg AdminConfig) http.Handler {
	m := http.NewServeMux()
	if cfg.Metrics != nil {
		m.Handle("GET /metrics", cfg.Metrics)
	}

	m.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		response.Write(w, r, http.StatusOK, "application/json", []byte(`{"healthy":true}`+"\n"))
	})
	m.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := cfg.Ready(); err != nil {
			b := strictjson.AppendText([]byte(`{"ready":false`), "failing", err.Error())
			response.Write(w, r, http.StatusServiceUnavailable, "application/json", append(b, '}', '\n'))

			return
		}

		response.Write(w, r, http.StatusOK, "application/json", []byte(`{"ready":true}`+"\n"))
	})

	for path, show := range profiles {
		m.HandleFunc("GET /debug/pprof/"+path, onLoopback(cfg.PublicURL, show))
	}

	return problem.Routes(m, cfg.PublicURL)
}

var profiles = map[string]http.HandlerFunc{
	"":        pprof.Index,
	"cmdline": pprof.Cmdline,
	"profile": pprof.Profile,
	"symbol":  pprof.Symbol,
	"trace":   pprof.Trace,
}

// onLoopback refuses requests that name this machine otherwise than as loopback. A browser
// does so whose page has had its own name bound to the loopback address, to read what is
// there as if it were its own (OPS-021).
func onLoopback(base string, show http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !request.IsLoopback(r.Host) {
			problem.Write(w, base, directory.Refuse(directory.Forbidden,
				"profiles are shown only at localhost, or at a loopback address"))

			return
		}

		show(w, r)
	}
}
