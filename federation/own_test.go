package federation

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/federation/protocol"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// countingKeys counts the signatures that are looked at.
type countingKeys struct {
	Keyring
	verified int
}

func (c *countingKeys) Verify(origin spiffeid.TrustDomain, typ, jws string) ([]byte, string, error) {
	c.verified++
	return c.Keyring.Verify(origin, typ, jws)
}

// A behind is a keyring that is told of the own domain's key document after the state
// has it, as a node's is.
type behind struct {
	*keyring
	doc *signed.KeyDocument
}

func (k *behind) Verify(_ spiffeid.TrustDomain, typ, text string) ([]byte, string, error) {
	return k.scheme.verifyBy(k.doc, typ, text)
}

// Who forges what this domain said is counted like who forges another's; who echoes it is
// not, also where the key is none that is known any more.
//
// Requirement: MESH-017
func TestWhoForgesTheOwnDomainsWordIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, own := newBench(t, nil), newModel(beta, alpha)
		b.beta.Mesh.cfg.Source = own
		own.listKeys(nil, b.beta.keys)
		b.beta.Mesh.cfg.Keys = &behind{b.beta.keys, own.KeyDocument()}
		says := func(by *site) string {
			text, err := by.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) { p.Issuer = beta }))
			must(t, err)

			return text
		}
		good := says(b.beta)
		cut := strings.LastIndexByte(good, '.') + 1

		forged := good[:cut] + strings.Repeat("A", len(good)-cut)
		for i, text := range []string{good, says(b.alpha), forged} {
			b.beta.pushed(gamma, protocol.GossipPage, text)

			if n := b.beta.refusals.BySender.Of(gamma)[protocol.CodeSignature]; n != uint64(i/2) {
				t.Errorf("after %d messages %d are counted as forged", i+1, n)
			}
		}
	})
}

// What claims to be of the own domain costs a sender no less than what it says of
// others.
//
// Requirement: MESH-017
func TestASendersRateCountsForTheOwnDomainToo(t *testing.T) {
	inBench(t, func(t *testing.T, b *bench) {
		keys := &countingKeys{Keyring: b.beta.keys}
		b.beta.Mesh.cfg.Keys = keys

		forged, err := b.alpha.keys.Sign(signed.TypePage, b.page(func(p *signed.Page) { p.Issuer = beta }))
		must(t, err)

		for range 5 * senderBurst {
			b.beta.pushed(alpha, protocol.GossipPage, forged)
		}

		if keys.verified > senderBurst {
			t.Errorf("%d signatures were looked at for one sender at one moment", keys.verified)
		}

		if n := b.beta.refusals.BySender.Of(alpha)[protocol.CodeRate]; n != 4*senderBurst {
			t.Errorf("%d were counted as too many", n)
		}
	})
}
