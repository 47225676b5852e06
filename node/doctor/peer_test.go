package doctor

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/node/config"
)

// A peer whose nodes bring what no honest node sends is warned of, whomever that names;
// what honest ones send that are behind or hurried isn't spoken of.
//
// Requirement: MESH-026
func TestDoctorWarnsOfAPeerThatForges(t *testing.T) {
	for want, refused := range map[string]map[string]uint64{
		"": {"rate": 5, "key_unknown": 1, "epoch_old": 2},
		"started: 7 for format, 12 for signature":         {"signature": 12, "format": 7, "rate": 5},
		"started: 1 for header, 2 for json, 3 for record": {"record": 3, "json": 2, "header": 1},
	} {
		d := &diagnosis{}
		d.peer(wire.Peer{Domain: "gamma.test", State: "active", Refused: refused})

		var got string
		for _, f := range d.findings {
			if f.Check == "messages from gamma.test" && f.Status == StatusWarning {
				got = f.Found
			}
		}

		if !strings.HasSuffix(got, want) || want == "" && got != "" {
			t.Errorf("of %v it says %q", refused, got)
		}
	}
}

// A node that was never started may be the first of its domain, so that others don't answer it is no finding.
func TestDoctorAsksNoClockOfANewNode(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)

	other := clock{"https://" + ln.Addr().String(), spiffeid.RequireTrustDomainFromString("alpha.test")}
	must(t, ln.Close())

	for isNew, want := range map[bool]int{true: 0, false: 1} {
		d := newDiagnosis(config.Config{}, nil)
		d.isNew = isNew

		if d.compare(t.Context(), other); len(d.findings) != want {
			t.Errorf("new %t: %+v", isNew, d.findings)
		}
	}
}

// A peer that is behind for a moment is as it should be; one that is for longer, or whose
// records nobody gives, is warned of.
func TestDoctorBearsAMomentsLag(t *testing.T) {
	for want, p := range map[string]wire.Peer{
		StatusOK:      {State: "behind", LagRevisions: 3, LagSeconds: 0.4},
		StatusWarning: {State: "behind", LagRevisions: 3, LagSeconds: 11},
		StatusFailed:  {State: "failing"},
	} {
		d := &diagnosis{}
		if d.peer(p); d.findings[0].Status != want {
			t.Errorf("%+v", d.findings)
		}
	}

	d := &diagnosis{}
	if d.peer(wire.Peer{State: "behind", Missing: 1}); d.findings[0].Status != StatusWarning {
		t.Errorf("%+v", d.findings)
	}

	d = &diagnosis{}
	if d.peer(wire.Peer{State: "terminated"}); len(d.findings) != 0 {
		t.Errorf("of a peering that has ended it says %+v", d.findings)
	}

	d = &diagnosis{}

	d.peer(wire.Peer{State: "active", BundleError: "no route", BundleChecked: time.Now()})

	if last := d.findings[len(d.findings)-1]; last.Status != StatusFailed || last.Found != "no route" {
		t.Errorf("of a bundle endpoint that fails since it was fetched from it says %+v", last)
	}
}

// A peer that has shown another ledger to other nodes is named with them.
//
// Requirement: LOG-017
func TestDoctorNamesNodesThatWereShownAnotherLedger(t *testing.T) {
	d := &diagnosis{}
	d.peer(wire.Peer{Domain: "beta.test", State: "active", LedgerDiffers: []string{"delta.test", "gamma.test"}})

	is := func(f Finding) bool {
		return f.Check == "ledger of beta.test" && f.Status == StatusFailed &&
			strings.HasSuffix(f.Found, "shown to delta.test, gamma.test")
	}
	if !slices.ContainsFunc(d.findings, is) {
		t.Errorf("it says %+v", d.findings)
	}
}

// A node that is short of memory shows no records of the peer, whatever the peer's quota.
func TestDoctorNamesAPeerThatIsLeftOut(t *testing.T) {
	d := &diagnosis{}
	d.peer(wire.Peer{Domain: "gamma.test", State: "active", Shed: true})

	if last := d.findings[len(d.findings)-1]; last.Check != "records of gamma.test" || last.Status != StatusFailed {
		t.Errorf("%+v", d.findings)
	}
}
