package state

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
	"github.com/roster-mesh/roster/directory/index"
)

// An invitation is good for the domain that it is for, until it ends, and for the
// first who shows its secret; that one's repetition changes nothing.
//
// Requirement: MESH-024
func TestAnInvitationIsUsedOnce(t *testing.T) {
	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	gamma := spiffeid.RequireTrustDomainFromString("gamma.test")

	const secret = "secret"

	hash := directory.HashOf([]byte(secret))
	offer := func(td spiffeid.TrustDomain, shown, bundle string) *Command {
		return &Command{Redeem: &Redeem{Secret: directory.HashOf([]byte(shown)), Shown: shown,
			Peer: Peer{Domain: td, State: directory.PeeringActive,
				Bundle: []byte(bundle), Mesh: true,
				Export: directory.PeerRules{Names: []string{"*"}}, Import: directory.PeerRules{Records: 1}}}}
	}
	s := New(spiffeid.RequireTrustDomainFromString("alpha.test"),
		index.NewView(spiffeid.RequireTrustDomainFromString("alpha.test")).Own())
	apply := func(seconds int64, c *Command) error {
		t.Helper()

		results, err := s.Apply(&Batch{Version: FirstVersion, Time: seconds * 1000, Commands: []Command{*c}})
		directorytest.Must(t, err)

		return results[0].Err
	}

	invite := &Command{Peer: &Peer{Domain: beta, State: directory.PeeringPending, Secret: hash, Until: 100,
		Export: directory.PeerRules{Names: []string{"a*"}}, Import: directory.PeerRules{Records: 7}}}
	for _, c := range []*Command{{Epoch: &Epoch{10, "test"}}, invite} {
		directorytest.Must(t, apply(10, c))
	}

	refused := func(what string, err error) {
		t.Helper()

		if directory.ProblemOf(err) != directory.Forbidden || s.peers.byDomain[beta].State == directory.PeeringActive {
			t.Errorf("%s: %v; beta is %s", what, err, s.peers.byDomain[beta].State)
		}
	}
	refused("another secret", apply(11, offer(beta, "guess", "{}")))
	refused("no secret", apply(11, offer(beta, "", "{}")))
	refused("another domain", apply(11, offer(gamma, secret, "{}")))
	refused("too late", apply(100, offer(beta, secret, "{}")))

	invite.Peer.Until = 200
	directorytest.Must(t, apply(101, invite))

	directorytest.Must(t, apply(102, offer(beta, secret, "{}")))

	if p := s.peers.byDomain[beta]; p.State != directory.PeeringActive || p.Mesh ||
		!p.Export.Equal(invite.Peer.Export) || !p.Import.Equal(invite.Peer.Import) {
		t.Errorf("beta is %+v; it is active, and says not itself what it may have", p)
	}

	before := s.history.revision
	if err := apply(103, offer(beta, secret, "{}")); err != nil || s.history.revision != before {
		t.Errorf("the same once more: %v, revision %d after %d", err, s.history.revision, before)
	}

	if err := apply(103, offer(beta, secret, `{"keys":[]}`)); directory.ProblemOf(err) != directory.Forbidden {
		t.Errorf("the same secret by somebody else: %v", err)
	}
}

// A peer's new bundle takes the place of the one that it was compared with, and of no
// other; no grant is asked for anew.
func TestABundleIsReplaced(t *testing.T) {
	d := newDrive(t)
	old := []byte(`{"keys":[]}`)
	next := []byte(`{"keys":[],"spiffe_sequence":2}`)
	p := peerBeta
	p.Bundle = old
	p.Endpoint = directory.BundleEndpoint{URL: "https://beta.test/bundle", Profile: directory.ProfileSPIFFE}
	d.at(1, Command{Peer: &p})
	policy, revision := d.state.policy.basis, d.state.history.revision
	held := func() []byte { return d.state.peers.byDomain[beta].Bundle }
	d.at(2, Command{Rebundle: &Rebundle{beta, directory.HashOf(next), []byte("{}")}})
	d.at(3, Command{Rebundle: &Rebundle{spiffeid.RequireTrustDomainFromString("gamma.test"), directory.HashOf(nil),
		next}})

	if string(held()) != string(old) || d.state.history.revision != revision || len(d.state.peers.byDomain) != 1 {
		t.Fatalf("compared with another bundle, or of a stranger: %s", held())
	}

	d.at(4, Command{Rebundle: &Rebundle{beta, directory.HashOf(old), next}})

	if string(held()) != string(next) || d.state.policy.basis != policy || d.state.history.revision != revision+1 {
		t.Fatalf("the bundle is %s, and policy moved from %d to %d", held(), policy, d.state.policy.basis)
	}

	p.State, p.Bundle = directory.PeeringTerminated, next
	d.at(5, Command{Peer: &p})
	d.at(6, Command{Rebundle: &Rebundle{beta, directory.HashOf(next), old}})

	if string(held()) != string(next) {
		t.Error("a peering that has ended gets a bundle")
	}
}

// Of two operators who change one peering at once the second is told, and nothing of
// what the first did is undone: a peer that was removed stays so when another's rules
// come after.
//
// Requirement: MESH-024
func TestAPeeringIsChangedByWhoSawIt(t *testing.T) {
	beta := spiffeid.RequireTrustDomainFromString("beta.test")
	s := New(spiffeid.RequireTrustDomainFromString("alpha.test"),
		index.NewView(spiffeid.RequireTrustDomainFromString("alpha.test")).Own())
	apply := func(was, next Peer) error {
		t.Helper()

		results, err := s.Apply(&Batch{Version: FirstVersion, Time: 10_000,
			Commands: []Command{{Amend: &Amend{Was: was, Peer: next}}}})
		directorytest.Must(t, err)

		return results[0].Err
	}

	begun := []Command{{Epoch: &Epoch{10, "test"}}}
	if _, err := s.Apply(&Batch{Version: FirstVersion, Time: 10_000, Commands: begun}); err != nil {
		t.Fatal(err)
	}

	none := Peer{Domain: beta}
	active := Peer{Domain: beta, State: directory.PeeringActive, Mesh: true, Bundle: []byte("{}")}
	removed, ruled := active, active
	removed.State, removed.Mesh = directory.PeeringTerminated, false
	ruled.Import.Records = 5

	directorytest.Must(t, apply(none, active))

	directorytest.Must(t, apply(active, removed))

	before := s.history.revision
	for what, was := range map[string]Peer{"rules of what is no more": active,
		"a first agreement, and there was one": none} {
		if err := apply(was, ruled); directory.ProblemOf(err) != directory.Conflict || s.history.revision != before {
			t.Errorf("%s: %v, revision %d after %d", what, err, s.history.revision, before)
		}
	}

	if p := s.peers.byDomain[beta]; !p.Equal(directory.Peering(removed)) {
		t.Errorf("%+v", p)
	}
}
