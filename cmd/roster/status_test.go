package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// healthyNode is the state of a node in which all is well.
const healthyNode = `{"id":"n1","ready":true,"position":"1.2","svid_expires":"2099-01-01T00:00:00Z",` +
	`"bundle_expires":"2099-01-01T00:00:00Z","disk_free":2000000000,"disk_free_percent":50}`

// status begins with a verdict in the words of doctor. With --exit-code a script need not read it.
func TestStatusBeginsWithAVerdict(t *testing.T) {
	const (
		peers  = `"peers":[{"id":"n1","address":"a:1","voter":true,"state":"alive"},`
		alive  = `{"id":"n2","address":"b:1","voter":true,"state":"alive"}]`
		silent = `{"id":"n2","address":"b:1","voter":true,"state":"silent"}]`
		cloned = `{"id":"n2","address":"b:1","voter":true,"state":"alive","duplicate":"c:1"}]`
		quotas = `,"quotas":{"registrations":1}`

		attention = " that need attention: 1"
	)

	for _, c := range []struct {
		raft, status, found string
		code                int
	}{
		{`{"leader":"n1",` + peers + alive + quotas + `}`, "ok", "n1 leads 2 voters", 0},
		{`{"leader":"n1",` + peers + silent + quotas + `}`, "warning", "silent: n2; lines below" + attention, 1},
		{`{"leader":"n1",` + peers + cloned + quotas + `}`, "failed", "n1 leads 2 voters; lines below" + attention, 1},
		{`{` + peers + alive + quotas + `}`, "failed", "no leader is known; 2 nodes vote", 1},
	} {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			says(map[string]string{"/v1/operator/status": healthyNode, "/v1/operator/raft": c.raft,
				"/v1/operator/peers": `{"peers":[]}`}[r.URL.Path])(w, r)
		})

		code, out, errs := w.run("status", "--exit-code")
		_, rows, _ := strings.Cut(out, "\n")

		if code != c.code || !strings.HasPrefix(rows, "verdict\t"+c.status+"\t") || !strings.Contains(rows, c.found) {
			t.Errorf("of %s: exit code %d, want %d\n%s%s", c.raft, code, c.code, out, errs)
		}

		if code, _, _ := w.run("status"); code != 0 {
			t.Errorf("without --exit-code: exit code %d", code)
		}
	}
}

// status judges a peer by the lag by which doctor does: one that fell behind a moment ago needs no attention.
func TestStatusJudgesALagAsDoctorDoes(t *testing.T) {
	const raft = `{"leader":"n1","peers":[{"id":"n1","address":"a:1","voter":true,"state":"alive"}],` +
		`"quotas":{"registrations":1}}`

	for answer, want := range map[string]int{
		`"lag_seconds":3,"missing":0`: 0, `"lag_seconds":11,"missing":0`: 1, `"lag_seconds":3,"missing":1`: 1,
	} {
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			says(map[string]string{"/v1/operator/status": healthyNode, "/v1/operator/raft": raft,
				"/v1/operator/peers": `{"peers":[{"domain":"beta.test","agreed":"active","state":"behind",` +
					answer + `}]}`}[r.URL.Path])(w, r)
		})

		if code, out, errs := w.run("status", "--exit-code"); code != want || !strings.Contains(out, "\tbehind\t") {
			t.Errorf("of a peer with %s: exit code %d, want %d\n%s%s", answer, code, want, out, errs)
		}
	}
}

// status names a witness that fails, and why, also at a node that does not lead: the leader, which asks the
// witnesses, is asked for them. One that failed a moment ago needs no attention.
//
// Requirement: LOG-009
func TestStatusNamesAWitnessThatFails(t *testing.T) {
	const (
		raft = `{"leader":"n2","peers":[{"id":"n1","address":"a:1","voter":true,"state":"alive"},` +
			`{"id":"n2","address":"b:1","voter":true,"state":"alive","api":"%s"}],"quotas":{"registrations":1}}`
		ledger = `,"ledger":{"leaves":12,"cosigned_leaves":9%s}}`
		failed = `,"witnesses":[{"name":"gamma.test","cosigned_at":"2026-11-01T00:00:00Z"},{"name":"beta.test",` +
			`"failing_since":"%s","error":"connection refused"}]`
	)

	node := strings.TrimSuffix(healthyNode, "}") + ledger

	for since, want := range map[string]int{
		"2026-11-01T00:00:00Z":                1,
		time.Now().UTC().Format(time.RFC3339): 0,
	} {
		asked := 0
		w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
			status := fmt.Sprintf(node, "")
			if r.URL.Path == "/v1/operator/status" {
				if asked++; asked%2 == 0 { // of the leader, which has the address of the node here
					status = fmt.Sprintf(node, fmt.Sprintf(failed, since))
				}
			}

			says(map[string]string{
				"/v1/operator/status": status,
				"/v1/operator/raft":   fmt.Sprintf(raft, "https://"+r.Host),
				"/v1/operator/peers":  `{"peers":[{"domain":"beta.test","agreed":"active","state":"active"}]}`,
			}[r.URL.Path])(w, r)
		})

		code, out, errs := w.run("status", "--exit-code")
		if code != want || !strings.Contains(out, "12 leaves, 9 of them cosigned") ||
			!strings.Contains(out, "witness gamma.test\tok\t") ||
			!strings.Contains(out, "cosigned nothing that this leader submitted: connection refused") {
			t.Errorf("a witness that fails since %s: exit code %d, want %d\n%s%s", since, code, want, out, errs)
		}
	}
}
