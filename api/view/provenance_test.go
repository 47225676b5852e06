package view

import (
	"bytes"
	"encoding/json"
	"maps"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/kinds"
	"github.com/roster-mesh/roster/discovery"
)

// identityMembers are the members of a provenance that the owner is disclosed with.
var identityMembers = []string{"registrant", "registrant_state", "owner", "registered_by", "transferred_by",
	"imported_from"}

// shapes are all forms in which a registration is shown to a caller who may see its owner.
func shapes(r *Renderer, entry *directory.Entry) map[string][]byte {
	opt := Options{Registrant: true}
	candidate := &discovery.Candidate{Entry: entry}

	return map[string][]byte{
		"/ad":               r.AD().Append(nil, entry, opt),
		"/ad/l":             r.AppendItem(nil, entry, opt),
		"/agents":           r.AIDIP().Append(nil, entry, opt),
		"/agents of a list": r.AppendSummary(nil, entry, opt, Match{}),
		"/agents/resolve":   r.AppendResolved(nil, candidate, nil, false),
		"/discovery":        r.Profile().Append(nil, entry, opt),
		"/discovery/query":  r.AppendCandidate(nil, candidate, &discovery.Request{}, opt),
	}
}

// identitiesIn returns those of identityMembers that a body's provenance has.
func identitiesIn(t *testing.T, body []byte) map[string]string {
	t.Helper()

	var shown struct {
		Provenance map[string]any `json:"provenance"`
	}
	if err := json.Unmarshal(body, &shown); err != nil {
		t.Fatalf("%v in %s", err, body)
	}

	found := map[string]string{}
	for _, name := range identityMembers {
		if value, ok := shown.Provenance[name].(string); ok {
			found[name] = value
		}
	}

	return found
}

// Every surface shows who registered the contents, and the identities that take part beside
// the registrant, where they differ from it.
//
// Requirement: SEC-006, SEC-008
func TestEverySurfaceShowsWhoRegistered(t *testing.T) {
	of := func(domain spiffeid.TrustDomain, path string) directory.Identity {
		return directory.IdentityOf(spiffeid.RequireFromPath(domain, path))
	}
	gamma := spiffeid.RequireTrustDomainFromString("gamma.test")

	oauth, err := directory.ParseIdentity("oauth:https://login.beta.test#bob")
	if err != nil {
		t.Fatal(err)
	}

	tool := of(alpha, "/tool/commissioner")

	for name, test := range map[string]struct {
		origin     spiffeid.TrustDomain
		owner      directory.Identity
		provenance *directory.Provenance
		want       map[string]string
	}{
		"its owner": {alpha, of(alpha, "/agent/ada"), nil,
			map[string]string{"registrant": "spiffe://alpha.test/agent/ada"}},
		"a tool": {alpha, of(alpha, "/agent/ada"), &directory.Provenance{Registrant: tool, RegisteredBy: tool},
			map[string]string{"registrant": tool.String(), "owner": "spiffe://alpha.test/agent/ada",
				"registered_by": tool.String()}},
		"moved by an operator": {alpha, of(alpha, "/agent/bob"),
			&directory.Provenance{Registrant: of(alpha, "/agent/ada"), TransferredBy: of(alpha, "/ops/otto")},
			map[string]string{"registrant": "spiffe://alpha.test/agent/ada", "owner": "spiffe://alpha.test/agent/bob",
				"transferred_by": "spiffe://alpha.test/ops/otto"}},
		"imported": {alpha, of(alpha, "/agent/ada"), &directory.Provenance{ImportedFrom: "https://registry.example"},
			map[string]string{"registrant": "spiffe://alpha.test/agent/ada",
				"imported_from": "https://registry.example"}},
		"of a peer": {beta, of(beta, "/agent/bob"), nil,
			map[string]string{"registrant": "spiffe://beta.test/agent/bob", "registrant_state": "verified"}},
		"a peer's word of a third domain": {beta, of(gamma, "/agent/eve"), nil,
			map[string]string{"registrant": "spiffe://gamma.test/agent/eve", "registrant_state": "claimed"}},
		"a peer's word of an OAuth subject": {beta, oauth, nil,
			map[string]string{"registrant": oauth.String(), "registrant_state": "claimed"}},
		"a peer's registrant for another domain's owner": {beta, of(gamma, "/agent/eve"),
			&directory.Provenance{Registrant: of(beta, "/tool/t"), RegisteredBy: of(beta, "/tool/t")},
			map[string]string{"registrant": "spiffe://beta.test/tool/t", "registrant_state": "claimed",
				"owner": "spiffe://gamma.test/agent/eve", "registered_by": "spiffe://beta.test/tool/t"}},
		"withheld": {beta, directory.Identity{}, nil, map[string]string{}},
	} {
		e := entry(t, test.origin, "01HX0000000000000000000000", "printer", 7, aDocument)
		e.Owner, e.Provenance = test.owner, test.provenance

		for where, body := range shapes(newTestRenderer(), e) {
			if got := identitiesIn(t, body); !maps.Equal(got, test.want) {
				t.Errorf("%s: %s shows %v, want %v", name, where, got, test.want)
			}
		}

		// All of it is withheld with the owner, and from anonymous callers.
		e.Visibility = directory.Visibility{}

		redacted := kinds.Redact(e, directory.Withhold(directory.MemberRegistrant))
		for where, body := range shapes(newTestRenderer(), redacted) {
			if got := identitiesIn(t, body); len(got) > 0 || bytes.Contains(body, []byte(`"visibility"`)) {
				t.Errorf("%s, withheld: %s shows %v in %s", name, where, got, body)
			}
		}

		for where, body := range map[string][]byte{
			"/.well-known/woa.json": newTestRenderer().AppendHosted(nil, e),
			"/ad to strangers":      newTestRenderer().AD().Append(nil, e, Options{}),
		} {
			if got := identitiesIn(t, body); len(got) > 0 {
				t.Errorf("%s: %s shows %v", name, where, got)
			}
		}
	}
}

// Nothing of a redacted document says that an agent takes no authentication, and no part of an endpoint that may hold a
// secret is shown to those who see its registration in part.
//
// Requirement: AI-022, XU-058
func TestWhatIsWithheldIsNotMadeUp(t *testing.T) {
	d, err := directory.ParseDocument(directory.KindAIDIP, []byte(`{"id":"agent","name":"A","description":"D",`+
		`"endpoint":"https://agents.example.com/a","inputs":{},"outputs":{},"authentication":{"type":"mtls"}}`))
	if err != nil {
		t.Fatal(err)
	}

	e := entry(t, alpha, "01HX0000000000000000000000", "agent", 7, aDocument)
	e.Document, e.Packed = d, directory.Packed{}
	redacted := kinds.Redact(e, directory.Withhold("authentication"))

	body := newTestRenderer().AppendResolved(nil, &discovery.Candidate{Entry: redacted}, nil, false)
	if bytes.Contains(body, []byte(`"auth"`)) {
		t.Errorf("with its authentication withheld it is shown as %s", body)
	}

	for endpoint, want := range map[string]string{
		"https://user:key@agents.example.com/a?key=1": "https://agents.example.com/a",
		"urn:agent:a?key=1":                           "urn:agent:a",
		"https://agents.example.com/a?":               "https://agents.example.com/a",
		"HTTPS://agents.example.com/%7Ea":             "HTTPS://agents.example.com/%7Ea", // as written
		"https://agents.example.com:x/a?key=1":        "https://agents.example.com:x/a",
	} {
		if got := plainEndpoint(endpoint); got != want {
			t.Errorf("%s is shown as %s, want %s", endpoint, got, want)
		}
	}
}
