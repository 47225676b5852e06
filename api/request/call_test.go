package request

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// An audit event says who asked, how that was proved, and all policies that decided.
//
// Requirement: TRUST-012
func TestAnAuditEventSaysWhoAsked(t *testing.T) {
	ada, err := directory.ParseIdentity("spiffe://alpha.test/agent/ada")
	if err != nil {
		t.Fatal(err)
	}

	call := &Call{
		Request: &http.Request{}, RequestID: "r", Identity: ada,
		Decided: []string{"house-rules", "reserved-names", "quota"},
	}

	for credential, authn := range map[Credential]string{
		{}: "", {ReadOnly: true}: "", {Method: "wpt"}: "wpt",
		{Method: "jwt-svid", ReadOnly: true}: "jwt-svid, for reads",
	} {
		call.Credential = credential

		got := call.Audit(directory.AuditEvent{Action: "register"})
		if got.Action != "register" || got.RequestID != "r" || got.Actor != ada || got.Authn != authn ||
			!slices.Equal(got.Policies, call.Decided) {
			t.Errorf("by %+v: %+v", credential, got)
		}
	}

	for err, want := range map[error]string{
		nil: directory.OutcomeOK, directory.Refuse(directory.Forbidden, "no"): string(directory.Forbidden),
		errors.New("disk"): string(directory.Internal),
	} {
		if got := OutcomeOf(err); got != want {
			t.Errorf("the outcome of %v is %s, want %s", err, got, want)
		}
	}
}

// A percent sign or a plus that was encoded stays one: values are decoded once.
//
// Requirement: AD-059
func TestValuesAreDecodedOnce(t *testing.T) {
	for raw, want := range map[string]string{
		"a%2Bb": "a+b", "a+b": "a b", "a%2520b": "a%20b", "%252B": "%2B", "a%20b%2Bc+d": "a b+c d", "%25": "%",
		"caf%C3%A9": "café", "cafe%CC%81": "café",
	} {
		got, err := Param{Name: "tag", Raw: raw}.Value()
		if err != nil || got != want {
			t.Errorf("%s is %q, %v; want %q", raw, got, err, want)
		}
	}

	for _, raw := range []string{"%", "%2", "%zz", "%FF"} {
		if got, err := (Param{Name: "tag", Raw: raw}).Value(); err == nil {
			t.Errorf("%s is %q", raw, got)
		}
	}
}
