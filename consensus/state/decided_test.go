package state

import (
	"errors"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// What operators have decided of peerings and admissions is in a snapshot with the commands that put it in
// force. A member that had an earlier state follows them; one that missed a command in between, or that gets
// a state with other decisions, does not.
//
// Requirement: SEC-012
func TestDecisionsFollowFromCommands(t *testing.T) {
	d := newDrive(t)
	order := func(name string) *Origin { return operatorOrigin("/" + name) }
	pending := Peer{Domain: beta, State: directory.PeeringPending, Secret: directory.HashOf([]byte("secret")),
		Until: genesis/1000 + 600}
	active := pending
	active.State, active.Addresses = directory.PeeringActive, []string{"https://ad.beta.test"}
	meshed := active
	meshed.Mesh = true
	pattern := Admission{Pattern: "spiffe://alpha.test/roster/node/*", Max: 3}

	began := restore(t, d.state)
	d.applies(1, Command{Amend: &Amend{Was: Peer{Domain: beta}, Peer: pending}, Origin: order("invite")})

	invited := restore(t, d.state)
	d.applies(2, Command{Redeem: &Redeem{Secret: pending.Secret, Shown: "secret", Peer: active},
		Origin: &Origin{From: must(alphaNode("n0"))}})

	redeemed := restore(t, d.state)

	unordered, unorderedBefore := restore(t, d.state), restore(t, invited)
	unordered.decided["peer beta.test"][0].Origin = nil
	unorderedBefore.decided["peer beta.test"][0].Origin = nil

	d.applies(3, Command{Admit: &pattern, Origin: order("admit")})
	d.applies(4, Command{Amend: &Amend{Was: active, Peer: meshed}, Origin: order("mesh")})

	now := restore(t, d.state)

	other := restore(t, d.state)
	peering := other.peers.byDomain[beta]
	peering.Gossip = []string{"thief.test:1"}
	other.peers.byDomain[beta] = peering

	rebundled := restore(t, d.state)
	peering = rebundled.peers.byDomain[beta]
	peering.Bundle = []byte("forged")
	rebundled.peers.byDomain[beta] = peering

	joins := restore(t, d.state)
	joins.members.standing["spiffe://alpha.test/*"] = 9

	more := restore(t, d.state)
	more.members.standing[pattern.Pattern] = 9

	gone := restore(t, d.state)
	delete(gone.peers.byDomain, beta)

	wiped := restore(t, d.state)
	wiped.erasures.add(Erasure{RID: directory.NewRID(1, [10]byte{}), Revision: 9})

	d.applies(5, Command{Erase: &Erase{directory.NewRID(2, [10]byte{})}, Origin: order("erase")})

	erased := restore(t, d.state)
	if now.Decision() == erased.Decision() || now.Decision() == wiped.Decision() {
		t.Error("an erasure is no decision")
	}

	if now.Decision() == rebundled.Decision() {
		t.Error("the bundle of a peering without a bundle endpoint is no decision")
	}

	all := func(*Command) error { return nil }
	none := func(*Command) error { return errors.New("not proven") }

	for name, c := range map[string]struct {
		had, next *State
		check     func(*Command) error
		want      bool
	}{
		"nothing changed":                    {now, now, none, true},
		"an invitation":                      {began, invited, all, true},
		"an invitation, not proven":          {began, invited, none, false},
		"an invitation that was redeemed":    {began, redeemed, all, true},
		"a redemption alone":                 {invited, redeemed, all, true},
		"a redemption behind nobody's order": {invited, unordered, all, false},
		"a redemption of nobody's order":     {unorderedBefore, redeemed, all, false},
		"a change and an admission":          {redeemed, now, all, true},
		"a change, not proven":               {redeemed, now, none, false},
		"a change behind one that is gone":   {invited, now, all, false},
		"another peering":                    {now, other, all, false},
		"a bundle without an order":          {now, rebundled, all, false},
		"an admission that nobody ordered":   {now, joins, all, false},
		"an admission of more":               {now, more, all, false},
		"a peering is missing":               {now, gone, all, false},
		"an earlier one, as if it were new":  {now, redeemed, all, false},
		"an erasure":                         {now, erased, all, true},
		"an erasure, not proven":             {now, erased, none, false},
		"an erasure without an operator":     {now, wiped, all, false},
		"an erasure that is known":           {erased, erased, none, true},
	} {
		if err := c.next.CheckDecided(c.had, c.check); (err == nil) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}

	if bad := now.decided["peer beta.test"]; len(bad) != 1 || bad[0].Amend == nil {
		t.Errorf("the commands of the peering are %+v", bad)
	}

	// An admission that was withdrawn leaves nothing in a snapshot.
	size := len(freeze(t, d.state))
	d.applies(5, Command{Admit: &Admission{Pattern: pattern.Pattern}, Origin: order("withdraw")})

	if got := len(freeze(t, d.state)); got >= size || len(d.state.decided) != 1 {
		t.Errorf("the snapshot has %d bytes, had %d; kept are %v", got, size, d.state.decided)
	}
}

// A bundle that nodes refresh at an endpoint needs no command in a snapshot. It is a change that the member
// has checked at the endpoint; one of a restored backup, or that came with another endpoint, is not.
//
// Requirement: SEC-012
func TestBundlesOfASnapshotAreToBeChecked(t *testing.T) {
	d := newDrive(t)
	peering := peerBeta
	peering.Bundle = []byte("of the operator")
	peering.Endpoint = directory.BundleEndpoint{URL: "https://beta.test/bundle", Profile: directory.ProfileSPIFFE}
	d.applies(1, Command{Peer: &peering, Origin: operatorOrigin("/peer")})

	had := restore(t, d.state)
	d.applies(2, Command{Rebundle: &Rebundle{beta, directory.HashOf(peering.Bundle), []byte("refreshed")}})

	next := restore(t, d.state)
	if err := next.CheckDecided(had, func(*Command) error { return errors.New("not proven") }); err != nil {
		t.Errorf("a refreshed bundle: %v", err)
	}

	changes := next.BundlesSince(had)
	if len(changes) != 1 || changes[0].Was.Domain != beta || string(changes[0].Was.Bundle) != "of the operator" ||
		string(changes[0].Next) != "refreshed" {
		t.Errorf("changed are %+v", changes)
	}

	// A bundle that an operator's command has put in force needs its proof.
	byOperator := Command{Peer: &peering, Origin: operatorOrigin("/peer/again")}
	byOperator.Peer.Bundle = []byte("of the operator again")
	d.applies(3, byOperator)

	ordered := restore(t, d.state)
	for name, check := range map[string]error{"proven": nil, "forged": errors.New("not proven")} {
		is := ordered.OrdersBundle(ordered.BundlesSince(next)[0], func(*Command) error { return check })
		if is != (check == nil) || next.OrdersBundle(changes[0], func(*Command) error { return check }) {
			t.Errorf("%s: the operator's command orders the bundle: %t", name, is)
		}
	}

	restored := restore(t, d.state)
	restored.history.epoch++

	for name, s := range map[string]*State{"the same": had, "a backup": restored} {
		if changes := s.BundlesSince(had); len(changes) != 0 {
			t.Errorf("%s: changed are %+v", name, changes)
		}
	}
}
