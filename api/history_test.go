package api

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
)

// pastOf is the history of registrations: two documents, and an end where it is not living.
func pastOf(first, second *directory.Entry, living bool) func(spiffeid.TrustDomain, directory.RID, directory.Position) (
	*directory.Past, error,
) {
	return func(_ spiffeid.TrustDomain, rid directory.RID, _ directory.Position) (*directory.Past, error) {
		if rid != second.RID {
			return nil, directory.Refuse(directory.NotFound, "nothing was stated of registration %s", rid)
		}

		past := &directory.Past{Complete: true, Checkpoints: []string{"note"}}
		for i, e := range []*directory.Entry{first, second} {
			past.Statements = append(past.Statements, directory.PastStatement{
				Inclusion: directory.Inclusion{Log: "alpha.test/roster/1", Index: uint64(i), At: 1780315200},
				Payload:   []byte(`{"v":1}`), Revision: e.Statement, Entry: e, Path: []directory.Hash{{byte(i)}},
			})
		}

		if !living {
			past.Statements = append(past.Statements, directory.PastStatement{Payload: []byte(`{"v":1}`)})
		}

		return past, nil
	}
}

// Requirement: LOG-012
func TestAHistoryIsSeenAsItsRegistrationIs(t *testing.T) {
	first := entry(t, alpha, rid(1), "one", 300, `{"base":"https://a.example/1","description":"a secret of before"}`)
	second := entry(t, alpha, rid(1), "one", 381, `{"base":"https://a.example/2","description":"a secret of now"}`)
	first.Visibility, second.Visibility = directory.Visibility{}, directory.Visibility{Mesh: true}
	policy := newPartPolicy(directory.Redaction{})

	s := newTestServer(t, func(cfg *Config) {
		cfg.Past, cfg.Policy = pastOf(first, second, true), policy
		cfg.Identify = func(r *http.Request) (request.Credential, error) {
			if r.Header.Get("Test-Caller") == "beta" {
				id := directory.IdentityOf(spiffeid.RequireFromString("spiffe://beta.test/agent/eve"))
				return request.Credential{Identity: id, Method: "x509-svid"}, nil
			}

			return identify(r)
		}
	}, second)

	get := func(s *Server, caller, id string) (status int, body string) {
		t.Helper()

		resp := ask(t, s, caller, "GET", "/ad/r/"+id+"/history", "")

		data, err := io.ReadAll(resp.Body)
		must(t, err)

		return resp.StatusCode, string(data)
	}

	status, body := get(s, "/agent/bob", rid(1))
	if status != 200 || !strings.Contains(body, "a secret of before") ||
		!strings.Contains(body, `"changed":["base","description"]`) ||
		!strings.Contains(body, `"checkpoints":["note"]`) || !strings.Contains(body, `"complete":true`) ||
		!strings.Contains(body, `"owner":"`) {
		t.Errorf("a reader gets %d %s", status, body)
	}

	if _, body := get(s, "", rid(1)); strings.Contains(body, `"owner":"`) {
		t.Errorf("a stranger learns who registered it: %s", body)
	}

	// Contents of before the export are not shown to a peer that may see the registration now.
	for _, caller := range []string{"beta", ""} {
		if status, body := get(s, caller, rid(1)); status != 200 || strings.Contains(body, "of before") ||
			!strings.Contains(body, "of now") || !strings.Contains(body, `"state":"withheld"`) {
			t.Errorf("%q gets %d %s", caller, status, body)
		}
	}

	policy.set(partRules{sight: directory.Withhold("description")})

	if status, body := get(s, "/agent/bob", rid(1)); status != 200 || strings.Contains(body, "secret") ||
		!strings.Contains(body, `"changed":["base"]`) || !strings.Contains(body, `"redacted":true`) {
		t.Errorf("from whom the description is withheld, gets %d %s", status, body)
	}

	// The statement of another domain is shown as policy shows its registration.
	far := entry(t, beta, rid(4), "far", 17, `{"base":"https://b.example/","description":"a secret of far"}`)
	mirrors := newTestServer(t, func(cfg *Config) {
		cfg.Past, cfg.Policy = pastOf(far, far, true), policy
	}, far)

	if status, body := get(mirrors, "/agent/bob", "beta.test/"+rid(4)); status != 200 ||
		strings.Contains(body, "secret") || !strings.Contains(body, `"redacted":true`) {
		t.Errorf("of another domain's, gets %d %s", status, body)
	}

	// The registration before it had another owner and has ended: its rid is for those who may see its history.
	before := entry(t, alpha, rid(3), "one", 200, `{"base":"https://a.example/0"}`)
	followed := newTestServer(t, func(cfg *Config) {
		newest, former := cfg.Past, pastOf(before, before, false)
		cfg.Past = func(domain spiffeid.TrustDomain, rid directory.RID, at directory.Position) (
			*directory.Past, error,
		) {
			if rid == before.RID {
				return former(domain, rid, at)
			}

			past, err := newest(domain, rid, at)
			if err == nil {
				past.Before = before.RID
			}

			return past, err
		}
	}, second)

	for caller, sees := range map[string]bool{"": false, "/agent/bob": false, "/agent/ada": true} {
		if _, body := get(followed, caller, rid(1)); strings.Contains(body, rid(3)) != sees {
			t.Errorf("%q gets the rid of the registration before, want %t: %s", caller, sees, body)
		}
	}

	policy.set(partRules{hidden: "one"})

	if status, body := get(s, "/agent/bob", rid(1)); status != 404 {
		t.Errorf("from whom it is hidden, gets %d %s", status, body)
	}

	ended := newTestServer(t, func(cfg *Config) {
		cfg.Past = pastOf(first, second, false)
	})

	for caller, want := range map[string]int{"": 404, "/agent/bob": 404, "/agent/ada": 200, "/ops/operator": 200} {
		if status, body := get(ended, caller, rid(1)); status != want ||
			status == 200 && !strings.Contains(body, `"state":"end"`) {
			t.Errorf("after its end %q gets %d %s, want %d", caller, status, body, want)
		}
	}

	// A long history comes in parts, from its end back. The end says who may see the parts before it.
	long := newTestServer(t, func(cfg *Config) {
		cfg.Past = func(domain spiffeid.TrustDomain, rid directory.RID, at directory.Position) (
			*directory.Past, error,
		) {
			past, err := pastOf(first, second, false)(domain, rid, at)
			if at == (directory.Position{}) {
				past.Statements, past.Earlier = past.Statements[1:], directory.Position{Epoch: 1, Revision: 1}
			} else {
				past.Statements = past.Statements[:1]
			}

			return past, err
		}
	})

	for _, c := range []struct {
		caller, cursor string
		status         int
		has, lacks     string
	}{
		{"/agent/ada", "", 200, `"next":"1.1"`, "of before"},
		{"/agent/ada", "?after=1.1", 200, "of before", `"next"`},
		{"/agent/bob", "?after=1.1", 404, "not_found", "of before"},
		{"/agent/ada", "?after=1", 400, "EPOCH.REVISION", "of before"},
	} {
		resp := ask(t, long, c.caller, "GET", "/ad/r/"+rid(1)+"/history"+c.cursor, "")
		data, err := io.ReadAll(resp.Body)
		must(t, err)

		if body := string(data); resp.StatusCode != c.status || !strings.Contains(body, c.has) ||
			strings.Contains(body, c.lacks) {
			t.Errorf("%s gets by %q %d %s", c.caller, c.cursor, resp.StatusCode, body)
		}
	}

	// Once all contents were erased, operators and auditors see hashes and times.
	erased := newTestServer(t, func(cfg *Config) {
		cfg.Past = func(spiffeid.TrustDomain, directory.RID, directory.Position) (*directory.Past, error) {
			return &directory.Past{Erased: true, Statements: []directory.PastStatement{{H: directory.Hash{7}}}}, nil
		}
	})

	for caller, want := range map[string]int{"": 404, "/agent/ada": 404, "/ops/operator": 200} {
		if status, body := get(erased, caller, rid(1)); status != want || status == 200 &&
			(!strings.Contains(body, `"state":"erased"`) || !strings.Contains(body, directory.Hash{7}.String()) ||
				strings.Contains(body, `"agent"`)) {
			t.Errorf("of erased contents %q gets %d %s, want %d", caller, status, body, want)
		}
	}

	if status, _ := get(ended, "/ops/operator", rid(2)); status != 404 {
		t.Errorf("of one that never was: %d", status)
	}

	if second.ExpiresAt < time.Now().UnixMilli() {
		t.Fatal("the living one has ended")
	}
}

// An end says whether the deadline or a caller ended the registration. A command that comes for a name past its
// deadline ends the registration that had it, and removes nothing.
//
// Requirement: LOG-012
func TestAnEndSaysWhyItEnded(t *testing.T) {
	last := entry(t, alpha, rid(1), "one", 300, `{"base":"https://a.example/"}`)
	member := signed.BroughtBy(spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1"))

	for name, end := range map[string]struct {
		before *directory.Entry
		at     int64
		from   signed.Extension
		want   string
	}{
		"at the deadline":              {last, last.ExpiresAt / 1000, signed.Extension{}, `"reason":"expired"`},
		"by a command for its name":    {last, last.ExpiresAt / 1000, member, `"reason":"expired"`},
		"by its owner, or an operator": {last, last.ExpiresAt/1000 - 1, member, `"reason":"removed"`},
		"its deadline is not here":     {nil, last.ExpiresAt / 1000, member, ""},
	} {
		payload, err := signed.Statement(1, &signed.Change{Issuer: alpha, RID: last.RID, Op: signed.OpEnd, Epoch: 1,
			Revision: 301, IssuedAt: end.at, Since: 1, Extension: end.from}, nil)
		must(t, err)

		s := newTestServer(t, func(cfg *Config) {
			cfg.Past = func(spiffeid.TrustDomain, directory.RID, directory.Position) (*directory.Past, error) {
				return &directory.Past{Statements: []directory.PastStatement{{Entry: end.before},
					{Inclusion: directory.Inclusion{At: end.at}, Payload: payload}}}, nil
			}
		})

		body, err := io.ReadAll(ask(t, s, "/ops/operator", "GET", "/ad/r/"+rid(1)+"/history", "").Body)
		if err != nil || !strings.Contains(string(body), end.want) ||
			end.want == "" && strings.Contains(string(body), `"reason":`) {
			t.Errorf("%s: %s, %v", name, body, err)
		}
	}
}
