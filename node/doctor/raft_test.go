package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/node/config"
)

// Voters that a leader never heard are missed like those that fell silent, and what
// the domain can still lose is said.
func TestTheDoctorMissesVoters(t *testing.T) {
	heard := wire.RaftPeer{Voter: true, State: "alive"}
	silent := wire.RaftPeer{ID: "quiet", Voter: true, State: "silent", LastContact: time.Now().Add(-3 * time.Second)}
	unheard := wire.RaftPeer{ID: "never", Voter: true, State: "silent"}
	unknown := wire.RaftPeer{Voter: true, State: "unknown"}
	reader := wire.RaftPeer{ID: "reader", State: "silent"}

	for want, peers := range map[string][]wire.RaftPeer{
		"ok leads 5 voters":                      {heard, heard, heard, unknown, unknown, reader},
		"warning 1 more may fail; silent: quiet": {heard, heard, heard, heard, silent},
		"warning 0 more may fail; silent: never": {heard, heard, unheard},
		"warning 0 more may fail; 4 voters":      {heard, heard, heard, silent},
		"warning 0 more may fail; quiet, never":  {heard, heard, heard, silent, unheard},
	} {
		d := &diagnosis{}
		d.together("raft", &wire.RaftStatus{Leader: "leader", Peers: peers})

		status, texts, _ := strings.Cut(want, " ")
		if len(d.findings) != 1 || d.findings[0].Status != status {
			t.Errorf("of %v it finds %v, want %s", peers, d.findings, want)
			continue
		}

		for _, text := range strings.Split(texts, "; ") {
			if !strings.Contains(d.findings[0].Found, text) {
				t.Errorf("it finds %q, want %q in it", d.findings[0].Found, text)
			}
		}
	}
}

// Requirement: FLD-027
func TestTheDoctorNamesBothProcessesOfAnIdentity(t *testing.T) {
	d := &diagnosis{}
	d.together("raft", &wire.RaftStatus{Leader: "leader", Peers: []wire.RaftPeer{
		{ID: "cloned", Voter: true, State: "alive", Address: "a:1", Duplicate: "b:1"}}})

	if want := "two processes use this identity: a:1, b:1"; d.findings[0].Status != StatusFailed ||
		d.findings[0].Found != want {
		t.Errorf("it finds %+v, want %q", d.findings[0], want)
	}
}

// The addresses of the file are compared with those of the domain.
//
// Requirement: FLD-025
func TestTheDoctorComparesAddresses(t *testing.T) {
	moved := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/moved")
	stays := spiffeid.RequireFromString("spiffe://alpha.test/roster/node/stays")

	d := &diagnosis{}
	d.cfg.Members = []config.Member{{ID: moved, Cluster: "10.0.0.9:8402"}, {ID: stays, Cluster: "10.0.0.2:8402"}}
	d.memberAddresses(&wire.RaftStatus{Peers: []wire.RaftPeer{
		{ID: moved.String(), Address: "10.0.0.1:8402"}, {ID: stays.String(), Address: "10.0.0.2:8402"},
	}})

	if want := "members says 10.0.0.9:8402, and the domain's members reach it at 10.0.0.1:8402"; len(d.findings) != 1 ||
		d.findings[0].Status != StatusWarning || d.findings[0].Found != want {
		t.Errorf("it finds %+v, want %q", d.findings, want)
	}
}

// Requirement: FORM-005
func TestTheDoctorWarnsOfQuotas(t *testing.T) {
	for want, s := range map[string]wire.QuotaStatus{
		"ok registrations: 5, bytes of their documents: 70": {Registrations: 5, RegistrationsLimit: 10, Bytes: 70,
			BytesLimit: 100, LargestShare: .5},
		"ok no limit": {Registrations: 5, Bytes: 70},
		"warning 95 % of limits.bytes_per_domain": {Registrations: 5, RegistrationsLimit: 10, Bytes: 95,
			BytesLimit: 100},
		"failed limits.registrations_per_domain is use": {Registrations: 10, RegistrationsLimit: 10},
		"warning an owner uses over 90 %":               {Registrations: 1, RegistrationsLimit: 10, LargestShare: 1},
	} {
		d := &diagnosis{}
		d.quotas(s)

		status, text, _ := strings.Cut(want, " ")
		if text == "no limit" {
			text = "registrations: 5"
		}

		if len(d.findings) != 1 || d.findings[0].Status != status || !strings.Contains(d.findings[0].Found, text) {
			t.Errorf("of %+v it finds %+v, want %s", s, d.findings, want)
		}
	}
}
