package api

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/roster-mesh/roster/api/response"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/directory/strictjson"
)

// AdminConfig configures a listener without authentication.
type AdminConfig struct {
	// PublicURL is the domain's, where problems are explained.
	PublicURL string
	Hosts     func() []string // by which it may be asked, beside addresses and localhost; may be nil
	Metrics   http.Handler    // of /metrics; nil if it is not served
	// Ready returns nil if the node has a leader, has caught up and serves; else an error
	// that names the check that failed. If it is nil, health is not served.
	Ready func() error
	// Shed returns the domains whose registrations the node doesn't show, because it is short of
	// memory; nil for none.
	Shed func() []string
}

// NewAdmin returns the handler of the admin listener, or of one that serves a part of it:
// /metrics, /healthz (the process lives) and /readyz (it serves). It authenticates no caller.
func NewAdmin(cfg AdminConfig) http.Handler {
	m := http.NewServeMux()
	if cfg.Metrics != nil {
		m.Handle("GET /metrics", cfg.Metrics)
	}

	if cfg.Ready != nil {
		m.HandleFunc("GET /healthz", writeHealth)
		m.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { writeReadiness(w, r, &cfg) })
	}

	return knownHost(cfg, problem.Routes(m, cfg.PublicURL))
}

func writeHealth(w http.ResponseWriter, r *http.Request) {
	response.Write(w, r, http.StatusOK, "application/json", []byte(`{"healthy":true}`+"\n"))
}

func writeReadiness(w http.ResponseWriter, r *http.Request, cfg *AdminConfig) {
	if failing := cfg.Ready(); failing != nil {
		b := strictjson.AppendText([]byte(`{"ready":false`), "failing", failing.Error())
		response.Write(w, r, http.StatusServiceUnavailable, "application/json", append(b, '}', '\n'))

		return
	}

	answer := []byte(`{"ready":true`)

	if cfg.Shed != nil {
		if shed := cfg.Shed(); len(shed) > 0 {
			answer = strictjson.AppendText(answer, "short_of_memory_without", strings.Join(shed, " "))
		}
	}

	response.Write(w, r, http.StatusOK, "application/json", append(answer, '}', '\n'))
}

// knownHost refuses requests whose Host is neither an address, nor localhost, nor
// configured. A browser makes one whose page has had its own name bound to this address, to
// read what is there as if it were its own (OPS-021, SEC-016).
func knownHost(cfg AdminConfig, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}

		_, err := netip.ParseAddr(strings.Trim(host, "[]"))
		named := func(name string) bool { return strings.EqualFold(host, name) }

		var hosts []string
		if cfg.Hosts != nil {
			hosts = cfg.Hosts()
		}

		if err != nil && !named("localhost") && !slices.ContainsFunc(hosts, named) {
			problem.Write(w, cfg.PublicURL, directory.Refuse(problem.Misdirected,
				"%.64q is not this listener: use its address, localhost, or a name of listen.hosts", r.Host))

			return
		}

		next.ServeHTTP(w, r)
	})
}
