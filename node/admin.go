package node

import (
	"net/http"
	"sync/atomic"

	"github.com/roster-mesh/roster/api"
)

// A front answers on the listeners without authentication before, while and after the node
// serves.
type front struct {
	publicURL string
	hosts     atomic.Pointer[[]string] // by which it may be asked
	handlers  atomic.Pointer[frontHandlers]
}

// frontHandlers are the handlers of the three listeners.
type frontHandlers struct{ admin, health, metrics http.Handler }

// show answers with metrics, if there are any yet, and with whether the node serves.
func (f *front) show(metrics http.Handler, ready func() error) {
	hosts := func() []string { return *f.hosts.Load() }
	f.handlers.Store(&frontHandlers{
		admin:   api.NewAdmin(api.AdminConfig{PublicURL: f.publicURL, Hosts: hosts, Metrics: metrics, Ready: ready}),
		health:  api.NewAdmin(api.AdminConfig{PublicURL: f.publicURL, Hosts: hosts, Ready: ready}),
		metrics: api.NewAdmin(api.AdminConfig{PublicURL: f.publicURL, Hosts: hosts, Metrics: metrics}),
	})
}

// handler returns the handler of one listener.
func (f *front) handler(of func(*frontHandlers) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { of(f.handlers.Load()).ServeHTTP(w, r) })
}
