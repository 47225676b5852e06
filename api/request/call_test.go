package request

import (
	"net/http"
	"slices"
	"testing"

	"github.com/roster-mesh/roster/directory"
)

// An audit event names all policies that decided.
//
// Requirement: TRUST-012
func TestAuditNamesEveryPolicy(t *testing.T) {
	call := &Call{Request: &http.Request{}, Decided: []string{"house-rules", "reserved-names", "quota"}}

	if got := call.Audit(directory.AuditEvent{Action: "register"}); !slices.Equal(got.Policies, call.Decided) {
		t.Errorf("the policies are %q, want %q", got.Policies, call.Decided)
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
