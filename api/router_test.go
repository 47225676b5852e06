package api

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/api/operator"
	"github.com/roster-mesh/roster/api/request"
	"github.com/roster-mesh/roster/api/wire"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/index"
)

// whole has every route of the table, those of parts that a node may lack too.
func whole(cfg *Config) {
	cfg.Bundle = func() ([]byte, error) { return quietBundles{}.Publish(cfg.Domain) }
	cfg.AcceptedCredentials = request.AcceptedCredentials{WPT: true, JWTSVID: true,
		Issuers: []string{"https://login.example"}, Plain: "reads"}
	cfg.Gateway = quietGateway{err: directory.Refuse(directory.NotFound, "the agent has no such operation")}
}

// quietConfig is of a node that keeps nothing, knows no peer, and demands no operator's proof.
func quietConfig(view *index.View) Config {
	return Config{
		Domain: alpha, PublicURL: publicURL, View: view, Policy: houseRules{}, Registry: cutOff{},
		Bundles: quietBundles{}, Ledger: quietLedger{}, Records: signedRequests{}, Trail: emptyTrail{},
		Past: func(spiffeid.TrustDomain, directory.RID, directory.Position) (*directory.Past, error) {
			return &directory.Past{Statements: []directory.PastStatement{{Payload: []byte("{}")}}}, nil
		},
		Recipients: func(*directory.Entry) []wire.Recipient { return []wire.Recipient{} },
		Operator:   quietOperator{}, Cluster: quietCluster{}, Backups: quietBackups{backup: []byte("backup")},
		Orders: lenientOrders{}, AuditLog: quietAudit{}, Peerings: struct{ operator.Peers }{}, // never asked
		Federation: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusNoContent)
		}),
		Witness: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("Cache-Control", "public, max-age=60")
			_, _ = io.WriteString(w, "logs/v0\n")
		}),
		IsPeer: func(spiffeid.TrustDomain) bool { return true }, Frozen: func() []spiffeid.TrustDomain { return nil },
		Stranger: func(directory.Identity) bool { return false }, Nodes: func() []string { return nil },
		Without: func() []string { return nil }, MemoryInUse: func() float64 { return 0 }, Shed: func(string) {},
		Observe: func(string, string, int, time.Duration) {},
	}
}

// lenientOrders takes every operator's change without a proof.
type lenientOrders struct{}

func (lenientOrders) Accept(*directory.OperatorRequest) error       { return nil }
func (lenientOrders) Precede(context.Context, string, string) error { return nil }

type quietAudit struct{}

func (q quietAudit) Intend(directory.AuditEvent) (func(directory.AuditEvent), error) {
	return q.Refused, nil
}
func (quietAudit) Refused(directory.AuditEvent) {}

// quietBundles hold the bundle of alpha.test alone.
type quietBundles struct{}

func (quietBundles) Publish(domain spiffeid.TrustDomain) ([]byte, error) {
	if domain.Name() != "alpha.test" {
		return nil, directory.Refuse(directory.NotFound, "This node holds no bundle of %s.", domain.Name())
	}

	return []byte(`{"keys":[],"spiffe_sequence":1,"spiffe_refresh_hint":300}`), nil
}

func (quietBundles) List() []wire.TrustBundle {
	return []wire.TrustBundle{{Domain: "alpha.test", Fingerprints: []string{strings.Repeat("0a", 32)}}}
}

// quietLedger has one log, of epoch 7, with an entry.
type quietLedger struct{}

func (quietLedger) Epoch() uint64 { return 7 }

func (quietLedger) of(epoch uint64, file string) (string, error) {
	if epoch != 7 {
		return "", directory.Refuse(directory.NotFound, "this node has no ledger of epoch %d", epoch)
	}

	return file, nil
}

func (l quietLedger) Checkpoint(epoch uint64) (string, error) { return l.of(epoch, "checkpoint") }
func (l quietLedger) Policy(epoch uint64) (string, error)     { return l.of(epoch, "policy") }

func (l quietLedger) Start(epoch uint64) ([]byte, error) {
	start, err := l.of(epoch, `{"epoch":7}`)
	return []byte(start), err
}

func (l quietLedger) Tile(epoch uint64, level int, n uint64, width int) ([]byte, error) {
	if level > 0 || n > 0 || width > 1 {
		return nil, directory.Refuse(directory.NotFound, "the ledger has no such tile")
	}

	file, err := l.of(epoch, "tile")

	return []byte(file), err
}

func (l quietLedger) Bundle(epoch, n uint64, width int) ([]byte, error) {
	bundle, err := l.Tile(epoch, 0, n, width)
	return append(bundle, " of entries"...), err
}

// emptyTrail is an audit log without lines.
type emptyTrail struct{}

func (emptyTrail) Read(context.Context, directory.AuditQuery) (directory.AuditPage, error) {
	return directory.AuditPage{}, nil
}
func (emptyTrail) Head() (uint64, directory.Hash) { return 0, directory.Hash{} }
func (emptyTrail) Grown() <-chan struct{}         { return nil }

// concrete puts values in the place of a route's variables.
var concrete = strings.NewReplacer("{id}", "01JWNTC0000000000000000AD1", "{origin}", "beta.test", "{name}",
	"not-found", "{operation}", "translate", "{domain}", "alpha.test", "{log}", "00",
	"{epoch}", "7", "{tile}", "0/000.p/1")

// Requirement: AD-078
func TestEveryRouteKnowsItsMethods(t *testing.T) {
	s := newTestServer(t, whole)

	all := resources(s.table())
	if len(all) < 12 {
		t.Fatalf("the table has only %d paths", len(all))
	}

	for _, res := range all {
		target := concrete.Replace(res.path)
		resp := ask(t, s, "", "OPTIONS", target, "")
		wantStatus(t, resp, 204)

		allow := resp.Header.Get("Allow")
		if allow != res.allow {
			t.Errorf("OPTIONS %s allows %q, want %q", target, allow, res.allow)
		}

		methods := strings.Split(allow, ", ")
		if slices.Contains(methods, "GET") != slices.Contains(methods, "HEAD") && res.path != "/ad/watch" ||
			!slices.Contains(methods, "OPTIONS") {
			t.Errorf("%s allows %q", target, allow)
		}

		for _, m := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "TRACE"} {
			if slices.Contains(methods, m) {
				continue
			}

			resp := ask(t, s, "", m, target, "")
			if resp.StatusCode != 405 || resp.Header.Get("Allow") != allow {
				t.Errorf("%s %s: %d with Allow %q, want 405 with %q", m, target, resp.StatusCode,
					resp.Header.Get("Allow"), allow)
			}
		}

		wantStatus(t, ask(t, s, "", "BREW", target, ""), 501)

		for _, elsewhere := range []string{target + "/", "/" + target, strings.Replace(target, "/", "//", 2)} {
			resp := ask(t, s, "/ops/operator", "GET", elsewhere, "")
			if resp.StatusCode != 404 || resp.Header.Get("Location") != "" {
				t.Errorf("GET %s: %d, Location %q; want 404 and no redirect", elsewhere, resp.StatusCode,
					resp.Header.Get("Location"))
			}
		}
	}
}

// HEAD answers what GET does, less the body.
//
// Requirement: AD-078
func TestHeadIsGetWithoutABody(t *testing.T) {
	e := entry(t, alpha, "01JWNTC0000000000000000AD1", "one", 1, aDocument)

	s := newTestServer(t, whole, e)
	for _, target := range []string{"/.well-known/ad", "/ad/l", "/ad/r/" + e.RID.String(), "/v1/operator/raft",
		"/ad/r/nobody", "/problems/not-found"} {
		get := ask(t, s, "/ops/operator", "GET", target, "", "X-Request-Id", "same")

		head := ask(t, s, "/ops/operator", "HEAD", target, "", "X-Request-Id", "same")
		if n := head.ContentLength; get.StatusCode != head.StatusCode || n != get.ContentLength {
			t.Errorf("HEAD %s: %d and %d bytes, GET: %d and %d", target, head.StatusCode, n, get.StatusCode,
				get.ContentLength)
		}

		for name := range get.Header {
			if get.Header.Get(name) != head.Header.Get(name) {
				t.Errorf("HEAD %s: %s is %q, for GET %q", target, name, head.Header.Get(name), get.Header.Get(name))
			}
		}

		if b := make([]byte, 1); func() int { n, _ := head.Body.Read(b); return n }() != 0 {
			t.Errorf("HEAD %s has a body", target)
		}
	}
}

// An encoded slash belongs to its segment, and is decoded once.
func TestPathsAreDecodedOnce(t *testing.T) {
	plain := entry(t, alpha, "01JWNTC0000000000000000AD1", "a/record", 1, aDocument)
	percent := entry(t, alpha, "01JWNTC0000000000000000AD2", "a%2Fb", 2, aDocument)

	s := newTestServer(t, nil, plain, percent)
	for target, want := range map[string]string{"/ad/r/a%2Frecord": "a/record", "/ad/r/a%252Fb": "a%2Fb"} {
		resp := ask(t, s, "", "GET", target, "")
		if body := wantStatus(t, resp, 200); body["agent"] != want {
			t.Errorf("%s is %v, want %s", target, body["agent"], want)
		}

		if !strings.HasPrefix(resp.Header.Get("Content-Location"), "/ad/r/01JW") {
			t.Errorf("%s: Content-Location is %q", target, resp.Header.Get("Content-Location"))
		}
	}

	wantStatus(t, ask(t, s, "", "GET", "/ad/r/a%2Fb", ""), 404)
}

// Requirement: AD-033
func TestTooLongIsRefusedBeforeAnythingElse(t *testing.T) {
	s := newTestServer(t, nil)
	wantStatus(t, ask(t, s, "", "GET", "/nowhere?q="+strings.Repeat("a", maxURI), ""), 414)
	wantStatus(t, ask(t, s, "", "GET", "/nowhere", "", "X-Long", strings.Repeat("a", maxHeader)), 431)
	wantStatus(t, ask(t, s, "", "GET", "/nowhere", "", "X-Long", strings.Repeat("a", maxHeader-100)), 404)
}

func TestRequestIDs(t *testing.T) {
	s := newTestServer(t, nil)
	for given, taken := range map[string]bool{"abc-1.2:3": true, "": false, "a b": false, "a\"b": false,
		strings.Repeat("x", 129): false} {
		got := ask(t, s, "", "GET", "/nowhere", "", "X-Request-Id", given).Header.Get("X-Request-Id")
		if (got == given) != taken || got == "" {
			t.Errorf("X-Request-Id %q is answered with %q", given, got)
		}
	}
}

// What is no refusal passes as it is.
func TestFederationPasses(t *testing.T) {
	s := newTestServer(t, func(cfg *Config) {
		cfg.Federation = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/jose")
			_, _ = w.Write([]byte(r.URL.Path))
			w.(http.Flusher).Flush()
		})
	})
	resp := ask(t, s, "", "GET", "/federation/v1/pages?since=0", "")
	b := make([]byte, 64)

	n, _ := resp.Body.Read(b)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/jose" ||
		string(b[:n]) != "/federation/v1/pages" {
		t.Errorf("got %d %s %s", resp.StatusCode, resp.Header.Get("Content-Type"), b[:n])
	}
}
