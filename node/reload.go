package node

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/consensus"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/node/config"
)

// A reloader applies changes of the configuration to the parts of a running node.
type reloader struct {
	current atomic.Pointer[config.Config] // with the values of the last reload

	mu    sync.Mutex     // held during a reload
	level *slog.LevelVar // of the log; nil if it doesn't change
	front *front
	face  *api.Server
	store *consensus.Store

	// Guards of requests whose targets others choose; nil if a node doesn't make such requests.
	gateway, crawl, probe *gateway.Guard
}

// reload applies the reloadable keys of a configuration all together, and returns their
// names, and those of other keys that differ from the running configuration.
func (r *reloader) reload(next *config.Config) (changed, restart []string) {
	r.mu.Lock()
	defer r.mu.Unlock()

	current := r.current.Load()
	merged := current.WithReloadable(next)

	r.apply(&merged)
	r.current.Store(&merged)

	return current.Changes(next)
}

// apply puts the reloadable values in force. It can't fail: the values are valid, and each
// part takes them as they are.
func (r *reloader) apply(cfg *config.Config) {
	if r.level != nil {
		r.level.Set(cfg.Log.MinLevel())
	}

	r.front.hosts.Store(&cfg.Listen.Hosts)
	r.face.SetLimits(cfg.Limits.Rates(), cfg.Limits.CallerTerms())
	r.store.SetRules(consensusRules(cfg))

	permit(r.gateway, "gateway.allow_networks", cfg.Gateway.AllowNetworks, gateway.Permission{
		Hosts: cfg.Gateway.AllowHosts, Ports: cfg.Gateway.Ports, AnyBundle: cfg.Gateway.AnyBundle,
	})
	permit(r.crawl, "crawl.allow", cfg.Crawl.Allow, gateway.Permission{})
	permit(r.probe, "probe.allow", cfg.Probe.Allow, gateway.Permission{})
}

// permit replaces the targets of a guard, if there is one.
func permit(guard *gateway.Guard, key string, networks []string, targets gateway.Permission) {
	if guard == nil {
		return
	}

	targets.Allow, _ = config.ParseRanges(key, networks) // the configuration is valid
	guard.Permit(targets)
}
