package node

import (
	"net/url"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api"
	"github.com/roster-mesh/roster/gateway"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/trust/policy"
)

// Each part of a node that goes where others say takes the targets of a new configuration.
//
// Requirement: OPS-031
func TestAReloadPermitsTargets(t *testing.T) {
	target, err := url.Parse("https://10.1.2.3/")
	must(t, err)

	store := openStore(t)

	shipped, err := policy.New("shipped", spiffeid.RequireTrustDomainFromString("alpha.test"))
	must(t, err)

	r := &reloader{front: &front{}, face: api.New(api.Config{Registry: store, Policy: shipped}), store: store}
	r.current.Store(&config.Config{})

	for allow, rule := range map[string]gateway.Rule{"10.0.0.0/8": "", "192.168.0.0/16": gateway.RuleAddress} {
		r.gateway = gateway.NewGuard(gateway.GuardConfig{})
		r.crawl = gateway.NewGuard(gateway.GuardConfig{})
		r.probe = gateway.NewGuard(gateway.GuardConfig{})

		next := &config.Config{}
		next.Gateway.AllowNetworks = []string{allow}
		next.Crawl.Allow, next.Probe.Allow = next.Gateway.AllowNetworks, next.Gateway.AllowNetworks
		r.reload(next)

		for name, guard := range map[string]*gateway.Guard{"gateway": r.gateway, "crawl": r.crawl, "probe": r.probe} {
			if err := guard.Check(target); gateway.RuleOf(err) != rule || (err == nil) != (rule == "") {
				t.Errorf("with %s, %s: %v", allow, name, err)
			}
		}
	}
}
