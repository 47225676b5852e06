package api

import (
	"net/http"
	"net/http/pprof"

	"github.com/roster-mesh/roster/directory"
)

// AdminConfig is what the admin listener shows.
type AdminConfig struct {
	Metrics http.Handler // of /metrics; may be nil
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
			b := directory.AppendText([]byte(`{"ready":false`), "failing", err.Error())
			write(w, r, http.StatusServiceUnavailable, "application/json", append(b, '}', '\n'))
			return
		}
		write(w, r, http.StatusOK, "application/json", []byte(`{"ready":true}`+"\n"))
	})
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return m
}
