package state

import (
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/directorytest"
)

// An invitation is good for the domain that it is for, until it ends, and for the
// first who shows its secret; that one's repetition changes nothing. All members have the hash of the
// secret, which redeems nothing.
//
// Requirement: SEC-012, MESH-024
func TestAnInvitationIsUsedOnce(t *testing.T) {
	const secret = "secret"

	hash := directory.HashOf([]byte(secret))
	d := newDrive(t)
	redeem := func(seconds int64, domain spiffeid.TrustDomain, hash directory.Hash, shown, bundle string) error {
		return d.at(seconds, Command{Redeem: &Redeem{Secret: hash, Shown: shown,
			Peer: Peer{Domain: domain, State: directory.PeeringActive, Bundle: []byte(bundle), Mesh: true,
				Export: directory.PeerRules{Names: []string{"*"}}, Import: directory.PeerRules{Records: 1}}}}).Err
	}

	invite := &Peer{Domain: beta, State: directory.PeeringPending, Secret: hash, Until: genesis/1000 + 100,
		Export: directory.PeerRules{Names: []string{"a*"}}, Import: directory.PeerRules{Records: 7}}
	d.applies(10, Command{Peer: invite})

	for what, err := range map[string]error{
		"another secret":     redeem(11, beta, directory.HashOf([]byte("guess")), "guess", "{}"),
		"no secret":          redeem(11, beta, directory.HashOf(nil), "", "{}"),
		"the hash":           redeem(11, beta, hash, hash.String(), "{}"),
		"the hash, unproven": redeem(11, beta, hash, "", "{}"),
		"another domain":     redeem(11, directorytest.Gamma, hash, secret, "{}"),
		"too late":           redeem(100, beta, hash, secret, "{}"),
	} {
		if directory.ProblemOf(err) != directory.Forbidden {
			t.Errorf("%s: %v", what, err)
		}
	}

	if state := d.state.peers.byDomain[beta].State; state != directory.PeeringPending {
		t.Errorf("the peering is %s", state)
	}

	invite.Until += 100
	d.applies(101, Command{Peer: invite})
	directorytest.Must(t, redeem(102, beta, hash, secret, "{}"))

	if p := d.state.peers.byDomain[beta]; p.State != directory.PeeringActive || p.Mesh ||
		!p.Export.Equal(invite.Export) || !p.Import.Equal(invite.Import) {
		t.Errorf("beta is %+v; it is active, and says not itself what it may have", p)
	}

	before := d.state.history.revision
	if err := redeem(103, beta, hash, secret, "{}"); err != nil || d.state.history.revision != before {
		t.Errorf("the same once more: %v, revision %d after %d", err, d.state.history.revision, before)
	}

	problem(t, redeem(103, beta, hash, secret, `{"keys":[]}`), directory.Forbidden)
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
	d := newDrive(t)
	none := Peer{Domain: beta}
	active := Peer{Domain: beta, State: directory.PeeringActive, Mesh: true, Bundle: []byte("{}")}
	removed, ruled := active, active
	removed.State, removed.Mesh = directory.PeeringTerminated, false
	ruled.Import.Records = 5

	d.applies(1, Command{Amend: &Amend{Was: none, Peer: active}})
	d.applies(2, Command{Amend: &Amend{Was: active, Peer: removed}})

	before := d.state.history.revision
	for what, was := range map[string]Peer{"rules of what is no more": active,
		"a first agreement, and there was one": none} {
		err := d.at(3, Command{Amend: &Amend{Was: was, Peer: ruled}}).Err
		if directory.ProblemOf(err) != directory.Conflict || d.state.history.revision != before {
			t.Errorf("%s: %v, revision %d after %d", what, err, d.state.history.revision, before)
		}
	}

	if p := d.state.peers.byDomain[beta]; !p.Equal(directory.Peering(removed)) {
		t.Errorf("%+v", p)
	}
}
