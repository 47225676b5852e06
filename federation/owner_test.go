package federation

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
)

// Only a domain itself says what its identities own, registered or moved. A peer's
// record that names one is refused, and the rest of its page stands.
//
// Requirement: SEC-008
func TestAPeerNamesNoIdentityOfThisDomain(t *testing.T) {
	named := func(uri string) directory.Identity {
		identity, err := directory.ParseIdentity(uri)
		must(t, err)

		return identity
	}

	forgeries := map[string]func(*signed.Change){
		"owner":      func(c *signed.Change) { c.Owner = named("spiffe://beta.test/agent/bob") },
		"own-issuer": func(c *signed.Change) { c.Owner = named("oauth:https://login.beta.test#bob") },
		"own-issuer-registered": func(c *signed.Change) {
			c.Provenance.Registrant = named("oauth:https://login.beta.test#bob")
		},
		"wimse-owner":    func(c *signed.Change) { c.Owner = named("wimse://beta.test/agent/bob") },
		"registrant":     func(c *signed.Change) { c.Provenance.Registrant = named("spiffe://beta.test/agent/bob") },
		"registered-by":  func(c *signed.Change) { c.Provenance.RegisteredBy = named("spiffe://beta.test/tool/t") },
		"transferred-by": func(c *signed.Change) { c.Provenance.TransferredBy = named("spiffe://beta.test/ops/o") },
	}

	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(cfg *Config) {
			cfg.Inside = func(id directory.Identity) bool {
				return id.MemberOf(beta) || strings.HasPrefix(id.String(), "oauth:https://login.beta.test#")
			}
		})
		for name, forge := range forgeries {
			b.origin.forge = forge
			b.origin.register(name, 600)
		}

		b.origin.forge = func(c *signed.Change) { c.Owner = named("spiffe://gamma.test/agent/eve") }
		other := b.origin.register("of-another-domain", 600)
		b.origin.forge = func(c *signed.Change) { c.Owner = named("oauth:https://login.elsewhere.test#bob") }
		subject := b.origin.register("of-an-issuer", 600)
		b.origin.forge = nil
		honest := b.origin.register("honest", 600)

		b.pull()

		shown := b.beta.shown(alpha)
		if len(shown) != 3 || shown[honest] == nil || shown[other] == nil || shown[subject] == nil {
			t.Fatalf("%d are shown, want the three that name nobody of beta", len(shown))
		}

		for rid, want := range map[directory.RID]directory.RegistrantState{honest: directory.RegistrantVerified,
			other: directory.RegistrantClaimed, subject: directory.RegistrantClaimed} {
			if got := shown[rid].RegistrantState(); got != want {
				t.Errorf("the owner %s is %s, want %s", shown[rid].Owner, got, want)
			}
		}

		status := b.beta.Peers()[0]
		if status.Received[protocol.CodeOwnerForeign] != uint64(len(forgeries)) || status.Watermark != b.origin.rev ||
			status.Pending != 0 {
			t.Errorf("the forgeries are not counted, or they held the page up: %+v", status)
		}

		b.beta.reopen(t)

		if shown := b.beta.shown(alpha); len(shown) != 3 {
			t.Errorf("%d are shown after a restart", len(shown))
		}
	})
}
