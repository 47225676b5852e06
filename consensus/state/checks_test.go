package state

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// A command with two members would be applied as one and traced as the other. Each pair is
// refused, whatever stands beside it, and changes nothing.
//
// Requirement: SEC-012
func TestACommandHasOneMember(t *testing.T) {
	d := newDrive(t)
	one := map[string]reflect.Value{}

	for _, c := range everyCommand() {
		v := reflect.ValueOf(c)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if v.Field(i).Kind() == reflect.Pointer && !v.Field(i).IsNil() && name != "Spend" && name != "Origin" {
				one[name] = v.Field(i)
			}
		}
	}

	before, leaves := freeze(t, d.state), d.state.history.ledger.Size

	for first, x := range one {
		for second, y := range one {
			if first >= second {
				continue
			}

			c := Command{Origin: operatorOrigin("/v1/operator/policy"), Spend: &Spend{directory.Hash{7}, genesis}}
			v := reflect.ValueOf(&c).Elem()
			v.FieldByName(first).Set(x)
			v.FieldByName(second).Set(y)

			r := d.at(0, c)
			if directory.ProblemOf(r.Err) != directory.BadRequest || len(d.state.Traced()) != 0 {
				t.Fatalf("%s and %s: %v", first, second, r.Err)
			}
		}
	}

	if !bytes.Equal(freeze(t, d.state), before) || d.state.history.ledger.Size != leaves {
		t.Error("a refused command has changed the state")
	}
}

// An operator's request alone, or beside a command that no operator orders, would use up its proof
// without a trace. The member that brought a command stands beside each.
//
// Requirement: SEC-012, SEC-019
func TestAnOperatorStandsBesideATracedCommand(t *testing.T) {
	d := newDrive(t)
	before := freeze(t, d.state)
	origin := operatorOrigin("/v1/operator/policy")

	for name, c := range map[string]Command{
		"nothing":         {},
		"an origin alone": {Origin: origin},
		"with a proof":    {Origin: origin, Spend: &Spend{directory.Hash{7}, genesis/1000 + 60}},
		"with rules":      {Origin: origin, Rules: &Rules{Hold: 60}},
	} {
		if r := d.at(0, c); directory.ProblemOf(r.Err) != directory.BadRequest {
			t.Errorf("%s: %v", name, r.Err)
		}
	}

	if !bytes.Equal(freeze(t, d.state), before) {
		t.Error("a refused command has changed the state")
	}

	d.applies(0, Command{Spend: &Spend{directory.Hash{7}, genesis/1000 + 60}})

	d.applies(0, Command{Rules: &Rules{Hold: 60}, Origin: &Origin{From: origin.From}})
}

// A node by itself gives a peering that an operator has accepted no bundle endpoint of the web: the
// peer's bundle authenticates an endpoint of SPIFFE alone.
//
// Requirement: SEC-012, TRUST-004
func TestAnOperatorAloneSetsAnEndpointOfTheWeb(t *testing.T) {
	web := directory.BundleEndpoint{URL: "https://evil.test/", Profile: directory.ProfileWeb}
	own := directory.BundleEndpoint{URL: "https://b.test/", Profile: directory.ProfileSPIFFE}
	pending := Peer{Domain: beta, State: directory.PeeringPending, Bundle: []byte("{}")}

	for name, c := range map[string]struct {
		endpoint directory.BundleEndpoint
		node     bool
	}{
		"of SPIFFE":  {own, true},
		"of the web": {web, false},
	} {
		active := pending
		active.State, active.Endpoint = directory.PeeringActive, c.endpoint

		change, ok := (&Command{Amend: &Amend{Was: pending, Peer: active}}).Change()
		if !ok || change.Node != c.node || (change.Action == directory.ActionConfirm) != c.node {
			t.Errorf("%s: %+v", name, change)
		}
	}
}

// A peer's bundle is not rolled back: each member refuses an older one.
//
// Requirement: SEC-012, TRUST-004
func TestABundleIsNotRolledBack(t *testing.T) {
	bundle := func(more string) []byte { return []byte(`{"keys":[]` + more + `}`) }
	held := bundle(`,"spiffe_sequence":8`)
	endpoint := directory.BundleEndpoint{URL: "https://beta.test/bundle", Profile: directory.ProfileSPIFFE}

	for name, c := range map[string]struct {
		next    []byte
		at      directory.BundleEndpoint
		refused bool
	}{
		"older":               {bundle(`,"spiffe_sequence":7`), endpoint, true},
		"without a number":    {bundle(""), endpoint, true},
		"newer":               {bundle(`,"spiffe_sequence":9`), endpoint, false},
		"of the same number":  {bundle(`,"spiffe_sequence":8,"more":1`), endpoint, false},
		"without an endpoint": {bundle(`,"spiffe_sequence":9`), directory.BundleEndpoint{}, true},
	} {
		d := newDrive(t)
		p := peerBeta
		p.Bundle, p.Endpoint = held, c.at
		d.at(1, Command{Peer: &p})
		r := d.at(2, Command{Rebundle: &Rebundle{beta, directory.HashOf(held), c.next}})

		now := d.state.peers.byDomain[beta].Bundle
		if (directory.ProblemOf(r.Err) == directory.Conflict) != c.refused || bytes.Equal(now, held) != c.refused {
			t.Errorf("%s: %v, the bundle is %s", name, r.Err, now)
		}
	}
}
