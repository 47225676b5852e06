package api

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/admission"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/directory"
)

// An unreadable body fails the test that reads it.
type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, errors.New("not readable")
}

// exhausted returns a server at which each caller may make one request of each class. The
// caller "foreign" is an identity of another domain.
func exhausted(t *testing.T) *Server {
	t.Helper()

	return newTestServer(t, func(cfg *Config) {
		whole(cfg)

		cfg.Limits = admission.Limits{}
		for _, class := range []admission.Class{admission.Writes, admission.Reads, admission.Queries,
			admission.Invocations, admission.Operations, admission.Federation, admission.Public} {
			cfg.Limits[class] = 1e-6
		}

		cfg.Identify = func(r *http.Request) (request.Credential, error) {
			if r.Header.Get("Test-Caller") != "foreign" {
				return identify(r)
			}

			id := directory.IdentityOf(spiffeid.RequireFromPath(beta, "/agent/eve"))

			return request.Credential{Identity: id, Method: "x509-svid"}, nil
		}
	})
}

// Callers of each kind that ask too often are refused on every route, by every method, at
// unknown paths and by unknown methods, and nothing of the body is read.
//
// Requirement: SEC-001
func TestEveryRouteAdmitsBeforeItReads(t *testing.T) {
	s := exhausted(t)

	paths := []string{"/", "/nowhere", "/ad/nowhere/at/all"}
	for _, res := range resources(s.table()) {
		paths = append(paths, concrete.Replace(res.path))
	}

	send := func(caller, method, path string, body io.ReadCloser, length int64) int {
		r := &http.Request{
			Method: method, URL: &url.URL{Path: path}, RequestURI: path, Host: "ad.alpha.test:8400",
			Header: http.Header{"Test-Caller": {caller}}, ProtoMajor: 1, ProtoMinor: 1, RemoteAddr: "192.0.2.1:1",
			Body: body, ContentLength: length,
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)

		return w.Code
	}

	for _, caller := range []string{"", "liar", "foreign", "/agent/ada", "/ops/operator", "/roster/node/1"} {
		for _, path := range paths {
			for _, method := range append(slices.Clone(knownMethods), "BREW") {
				send(caller, method, path, http.NoBody, 0) // the only one of its class

				for _, length := range []int64{10, -1} {
					status := send(caller, method, path, io.NopCloser(unreadable{t}), length)
					if status != http.StatusTooManyRequests {
						t.Errorf("%q: %s %s, too often, is answered with %d", caller, method, path, status)
					}
				}
			}
		}
	}
}
