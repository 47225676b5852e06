package api

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	apiclient "github.com/roster-mesh/roster/api/client"
	surface "github.com/roster-mesh/roster/api/discovery"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/problem"
	"github.com/roster-mesh/roster/discovery"
)

// What the server writes from types of its own has the members of the wire types
// that clients read it into.
//
// Requirement: FORM-008
func TestWireTypesMirrorTheServers(t *testing.T) {
	for _, x := range []struct{ ours, wire reflect.Type }{
		{reflect.TypeFor[discovery.Evidence](), reflect.TypeFor[wire.Evidence]()},
		{reflect.TypeFor[discovery.Components](), reflect.TypeFor[wire.Components]()},
		{reflect.TypeFor[discovery.MatchedExample](), reflect.TypeFor[wire.MatchedExample]()},
		{reflect.TypeFor[surface.Explanation](), reflect.TypeFor[wire.Explanation]()},
		{reflect.TypeFor[directory.PeerRules](), reflect.TypeFor[wire.PeerRules]()},
		{reflect.TypeFor[directory.BundleEndpoint](), reflect.TypeFor[wire.BundleEndpoint]()},
	} {
		if ours, theirs := membersOf(x.ours), membersOf(x.wire); ours != theirs {
			t.Errorf("%s has the members %s, and %s has %s", x.ours, ours, x.wire, theirs)
		}
	}

	for _, x := range []struct{ ours, wire any }{
		{request.MaxBody, directory.MaxDocument}, {directory.MaxRenewals, wire.MaxRenewals},
		{int(wire.DefaultLifetime.Seconds()), directory.DefaultLifetime},
	} {
		if x.ours != x.wire {
			t.Errorf("the server's bound is %v, and the wire's %v", x.ours, x.wire)
		}
	}
}

// membersOf lists the JSON members of a struct, with those of the structs in it.
func membersOf(typ reflect.Type) string {
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		typ = typ.Elem()
	}

	if typ.Kind() != reflect.Struct || strings.HasPrefix(typ.PkgPath(), "github.com/spiffe/") {
		return ""
	}

	var names []string
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names = append(names, name+membersOf(typ.Field(i).Type))
	}

	return "{" + strings.Join(names, " ") + "}"
}

// Every member that a lookup's items and a registration's provenance have is one
// that clients know.
func TestItemsHaveNoMembersThatClientsDoNotKnow(t *testing.T) {
	const document = `{"base":"https://a.example","status":"degraded",
		"capabilities":[{"name":"sum","type":"tool","description":"adds"}]}`
	redacted := entry(t, alpha, rid(3), "three", 3, document)
	redacted.Redacted = true
	own, foreign := entry(t, alpha, rid(1), "one", 1, document), entry(t, beta, rid(2), "two", 2, document)
	s := newTestServer(t, nil, own, foreign, redacted)

	resp := ask(t, s, "/agent/ada", "GET", "/ad/l", "")

	var page wire.Listing
	must(t, json.UnmarshalRead(resp.Body, &page, json.RejectUnknownMembers(true)))

	for _, item := range page.Agents {
		if item.Provenance.ExpiresAt.IsZero() || item.RID() == "" || len(item.Capabilities) == 0 {
			t.Errorf("%+v", item)
		}
	}

	if len(page.Agents) != 3 {
		t.Errorf("%d items", len(page.Agents))
	}
}

// Every problem of the one table is known to clients by its code, and of a kind.
func TestClientsKnowEveryProblem(t *testing.T) {
	kinds := []error{
		apiclient.ErrInvalid, apiclient.ErrUnauthenticated, apiclient.ErrForbidden, apiclient.ErrQuota,
		apiclient.ErrNotFound,
		apiclient.ErrConflict, apiclient.ErrPrecondition, apiclient.ErrRateLimited, apiclient.ErrUnavailable,
		apiclient.ErrOutcomeUnknown,
		apiclient.ErrAgent,
	}
	for _, name := range problem.All() {
		rule := problem.RuleOf(name)
		refused := &problem.Refusal{Err: &directory.Error{Problem: name, Detail: "a detail", Pointer: "/a"}}
		node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(rule.Status)
			_, _ = w.Write(refused.Body("https://ad.alpha.test", "7"))
		}))
		_, err := apiclient.NewDirect(node.URL, node.Client()).Get(t.Context(), "x")
		node.Close()

		var e *apiclient.Error
		if !errors.As(err, &e) || e.Code != string(name) || e.Status != rule.Status || e.RequestID != "7" ||
			e.Pointer != "/a" {
			t.Errorf("%s is %+v", name, err)
			continue
		}

		var found []string
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				found = append(found, kind.Error())
			}
		}

		if len(found) != 1 && rule.Status != http.StatusInternalServerError && name != problem.NotImplemented &&
			name != directory.NotInvocable {
			t.Errorf("%s (%d) is of the kinds %q", name, rule.Status, found)
		}
	}

	for code, name := range map[string]directory.Problem{
		wire.CodeUnavailable: directory.Unavailable, wire.CodeOverloaded: directory.Overloaded,
		wire.CodeOvertaken:      directory.Overtaken,
		wire.CodeOutcomeUnknown: directory.OutcomeUnknown,
		wire.CodeRateLimited:    directory.RateLimited, wire.CodeQuotaExceeded: directory.QuotaExceeded,
		wire.CodeKeyInUse:  directory.KeyInUse,
		wire.CodeNameTaken: directory.NameTaken,
	} {
		if code != string(name) {
			t.Errorf("clients know %s as %s", name, code)
		}
	}
}
