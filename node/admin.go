package node

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/node/metrics"
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

// show answers with metrics, if there are any yet, and with whether the node serves, and without
// which domains, if shed isn't nil. The listeners for other machines have places of their own for
// scrapes, so that those of the admin listener stay free.
func (f *front) show(metrics *metrics.Set, ready func() error, shed func() []string) {
	hosts := func() []string { return *f.hosts.Load() }
	config := func(withMetrics bool, ready func() error) api.AdminConfig {
		c := api.AdminConfig{PublicURL: f.publicURL, Hosts: hosts, Ready: ready}
		if withMetrics && metrics != nil {
			c.Metrics = metrics.Handler()
		}

		return c
	}

	admin := config(true, ready)
	admin.Shed = shed

	f.handlers.Store(&frontHandlers{
		admin:   api.NewAdmin(admin),
		health:  api.NewAdmin(config(false, (&probed{ready: ready}).check)),
		metrics: api.NewAdmin(config(true, nil)),
	})
}

// A probed check is asked at most once a second and keeps its reason for the admin listener:
// strangers may ask, and a reason may name files and identities.
type probed struct {
	ready func() error

	mu     sync.Mutex
	asked  time.Time
	answer error
}

var errNotReady = errors.New("the node isn't ready; /readyz at its admin listener says why")

func (p *probed) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()

	if now := time.Now(); now.Sub(p.asked) >= time.Second {
		p.asked, p.answer = now, nil
		if p.ready() != nil {
			p.answer = errNotReady
		}
	}

	return p.answer
}

// handler returns the handler of one listener.
func (f *front) handler(of func(*frontHandlers) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { of(f.handlers.Load()).ServeHTTP(w, r) })
}
