package trust

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc"
)

// A workloadServer gives the answers that a test sets, by the published protobuf of the SPIFFE
// Workload API: it is the outside world of these tests.
type workloadServer struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	path string

	mu       sync.Mutex // guards the rest
	x509     *workload.X509SVIDResponse
	jwtKeys  map[string][]byte // JWKS by trust domain
	witKeys  map[string]string
	subject  string // of the tokens that it issues
	issued   int    // WIT-SVIDs
	lifetime time.Duration
	changed  chan struct{}
}

func newWorkloadServer(t *testing.T) *workloadServer {
	t.Helper()

	// The path of a socket is at most 107 bytes long.
	dir, err := os.MkdirTemp("", "wl-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })

	return &workloadServer{path: filepath.Join(dir, "s"), lifetime: time.Hour, changed: make(chan struct{})}
}

// serve serves until the end of the test, or until stop is called.
func (s *workloadServer) serve(t *testing.T) (stop func()) {
	t.Helper()
	server := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(server, s)
	listener, err := net.Listen("unix", s.path)
	must(t, err)

	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) })

	stop = func() { server.Stop(); wg.Wait() }
	t.Cleanup(stop)

	return stop
}

// change changes the answers, and sends them to all watches.
func (s *workloadServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()

	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// offer changes the SVIDs and their bundle.
func (s *workloadServer) offer(t *testing.T, cas []*CA, svids ...*x509svid.SVID) {
	t.Helper()
	s.change(func() {
		s.x509 = &workload.X509SVIDResponse{FederatedBundles: s.x509.GetFederatedBundles()}

		for _, svid := range svids {
			key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
			must(t, err)

			s.x509.Svids = append(s.x509.Svids, &workload.X509SVID{SpiffeId: svid.ID.String(),
				X509Svid: svid.Certificates[0].Raw, X509SvidKey: key, Bundle: derOf(cas...)})
		}
	})
}

func derOf(cas ...*CA) (der []byte) {
	for _, ca := range cas {
		der = append(der, ca.cert.Raw...)
	}

	return der
}

// send sends an answer at once, if ok, and at each change.
func (s *workloadServer) send(ctx context.Context, answer func() error) error {
	for {
		s.mu.Lock()
		changed := s.changed
		err := answer()
		s.mu.Unlock()

		if err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (s *workloadServer) FetchX509SVID(
	_ *workload.X509SVIDRequest, to grpc.ServerStreamingServer[workload.X509SVIDResponse],
) error {
	return s.send(to.Context(), func() error { return to.Send(s.x509) })
}

func (s *workloadServer) FetchJWTBundles(
	_ *workload.JWTBundlesRequest, to grpc.ServerStreamingServer[workload.JWTBundlesResponse],
) error {
	return s.send(to.Context(), func() error { return to.Send(&workload.JWTBundlesResponse{Bundles: s.jwtKeys}) })
}

func (s *workloadServer) FetchWITBundles(
	_ *workload.WITBundlesRequest, to grpc.ServerStreamingServer[workload.WITBundlesResponse],
) error {
	return s.send(to.Context(), func() error { return to.Send(&workload.WITBundlesResponse{Bundles: s.witKeys}) })
}

// token returns a token of s.subject, which nothing here verifies.
func (s *workloadServer) token(typ string, claims map[string]any) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}

	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}},
		(&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	if err != nil {
		return "", err
	}

	claims["sub"], claims["exp"] = s.subject, time.Now().Add(s.lifetime).Unix()

	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}

	jws, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}

	return jws.CompactSerialize()
}

func (s *workloadServer) FetchJWTSVID(
	_ context.Context, request *workload.JWTSVIDRequest,
) (*workload.JWTSVIDResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	token, err := s.token("JWT", map[string]any{"aud": request.GetAudience()})

	return &workload.JWTSVIDResponse{Svids: []*workload.JWTSVID{{SpiffeId: s.subject, Svid: token}}}, err
}

func (s *workloadServer) FetchWITSVID(
	request *workload.WITSVIDRequest, to grpc.ServerStreamingServer[workload.WITSVIDResponse],
) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	key, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	private, err2 := json.Marshal(jose.JSONWebKey{Key: key, Algorithm: "ES256"})
	token, err3 := s.token("wit+jwt",
		map[string]any{"cnf": map[string]any{"jwk": jose.JSONWebKey{Key: key.Public(), Algorithm: "ES256"}}})
	s.issued++

	return errors.Join(err1, err2, err3, to.Send(&workload.WITSVIDResponse{Svids: []*workload.WITSVID{
		{SpiffeId: request.GetSpiffeId(), WitSvid: token, WitSvidKey: string(private)}}}))
}

// keySet is a JWKS with new keys for tokens of that use.
func keySet(t *testing.T, use string, kids ...string) []byte {
	t.Helper()

	var set jose.JSONWebKeySet

	for _, kid := range kids {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(t, err)

		set.Keys = append(set.Keys, jose.JSONWebKey{Key: key.Public(), KeyID: kid, Use: use})
	}

	text, err := json.Marshal(set)
	must(t, err)

	return text
}

// follow opens a server's API and has it followed until stop is called or the test ends.
func (s *workloadServer) follow(t *testing.T, bundles *Bundles, wits bool) (api *WorkloadAPI, stop func()) {
	t.Helper()

	api, err := OpenWorkloadAPI("unix://"+s.path, bundles, func(id spiffeid.ID) bool { return IsNode(id, alpha) })
	must(t, err)

	if wits {
		api.FollowWITBundles()
	}

	ctx, cancel := context.WithCancel(context.Background())

	var wg sync.WaitGroup
	wg.Go(func() { api.Run(ctx, slog.New(slog.NewTextHandler(io.Discard, nil))) })

	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)

	return api, stop
}

// first is the first source of an API.
func first(t *testing.T, api *WorkloadAPI) *Source {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	source, err := api.Source(ctx)
	must(t, err)

	return source
}

// An identity is waited for, renewed with its bundle, and kept while the Workload API is away,
// which readiness tells; once the API is back, it is renewed again.
//
// Requirement: TRUST-001, TRUST-002
func TestAWorkloadAPIThatIsAwayAndBack(t *testing.T) {
	server := newWorkloadServer(t)
	bundles := NewBundles()
	api, stop := server.follow(t, bundles, false)

	ended, cancel := context.WithCancel(t.Context())
	cancel()

	if err := api.Err(); err == nil || !strings.Contains(err.Error(), server.path) {
		t.Errorf("before the first answer: %v", err)
	}

	if source, err := api.Source(ended); source != nil || err == nil || !strings.Contains(err.Error(), server.path) {
		t.Errorf("without an answer the source is %v, %v", source, err)
	}

	one, err := NewCA(alpha, time.Now())
	must(t, err)
	two, err := NewCA(alpha, time.Now())
	must(t, err)
	server.offer(t, []*CA{one}, issue(t, one, "/roster/node/1"))
	halt := server.serve(t)
	source := first(t, api)

	if !bundles.Has(alpha) || api.Err() != nil || source.Trouble() != nil || source.Err() != nil {
		t.Fatalf("the first SVID came with a bundle: %t; %v, %v", bundles.Has(alpha), api.Err(), source.Err())
	}

	// Bundles alone are no new SVID: connections would be made anew for nothing.
	before, grown := source.Changed(), bundles.Changed()
	server.offer(t, []*CA{one, two}, source.SVID())
	<-grown

	held, err := bundles.GetX509BundleForTrustDomain(alpha)
	must(t, err)

	select {
	case <-before:
		t.Error("a new bundle is taken for a new SVID")
	default:
	}

	if len(held.X509Authorities()) != 2 {
		t.Errorf("the bundle has %d authorities", len(held.X509Authorities()))
	}

	next := issue(t, two, "/roster/node/1")
	server.offer(t, []*CA{one, two}, next)
	<-before

	if !source.SVID().Certificates[0].Equal(next.Certificates[0]) {
		t.Error("another SVID than the new one is used")
	}

	halt()
	eventually(t, "that the API is away", func() bool { return source.Trouble() != nil })

	if source.SVID().ID != next.ID || source.Err() != nil || !bundles.Has(alpha) {
		t.Errorf("while the API is away: %v, %v", source.SVID().ID, source.Err())
	}

	back := source.Changed()
	server.offer(t, []*CA{two}, issue(t, two, "/roster/node/1"))
	server.serve(t)
	<-back

	if api.Err() != nil {
		t.Errorf("the API is back: %v", api.Err())
	}

	stop()

	if api.Err() != nil {
		t.Errorf("the end of the program is taken for one of the API: %v", api.Err())
	}
}

// An update whose SVID or own bundle doesn't hold changes nothing, and its reason is told until a valid one
// comes. Of another identity than the first no SVID is used.
//
// Requirement: TRUST-001, TRUST-002
func TestAnInvalidUpdateChangesNothing(t *testing.T) {
	server := newWorkloadServer(t)
	ca, err := NewCA(alpha, time.Now())
	must(t, err)
	other, err := NewCA(alpha, time.Now())
	must(t, err)
	peer, err := NewCA(beta, time.Now())
	must(t, err)

	bundles := NewBundles()
	server.offer(t, []*CA{ca}, issue(t, ca, "/agent/ada"), issue(t, peer, "/roster/node/1"))
	server.serve(t)
	api, _ := server.follow(t, bundles, false)
	eventually(t, "that none is acceptable", func() bool {
		err := api.Err()
		return err != nil && strings.Contains(err.Error(), "none of the 2 SVIDs")
	})

	if bundles.Has(alpha) {
		t.Error("a bundle came without an SVID")
	}

	// The first that is acceptable is taken.
	node := issue(t, ca, "/roster/node/1")
	server.offer(t, []*CA{ca}, issue(t, ca, "/agent/ada"), node, issue(t, ca, "/roster/node/2"))
	source := first(t, api)
	jwks, err := bundles.JWKS(alpha)
	must(t, err)

	expired, err := ca.Issue("/roster/node/1", time.Minute, time.Now().Add(-time.Hour))
	must(t, err)

	for name, offer := range map[string]func(){
		"without an SVID": func() { server.offer(t, []*CA{ca}) },
		"of others": func() {
			server.offer(t, []*CA{ca}, issue(t, ca, "/roster/node/2"), issue(t, ca, "/agent/ada"))
		},
		"expired":                        func() { server.offer(t, []*CA{ca}, expired) },
		"that its bundle doesn't":        func() { server.offer(t, []*CA{other}, issue(t, ca, "/roster/node/1")) },
		"without a bundle":               func() { server.offer(t, nil, issue(t, ca, "/roster/node/1")) },
		"with an authority that is none": func() { server.offer(t, []*CA{{cert: node.Certificates[0]}, ca}, node) },
		"with another domain's bundle": func() {
			server.offer(t, []*CA{ca}, node)
			server.change(func() { server.x509.Svids[0].SpiffeId = "spiffe://beta.test/roster/node/1" })
		},
		"that can't be read": func() {
			server.change(func() {
				server.x509 = &workload.X509SVIDResponse{Svids: []*workload.X509SVID{{
					SpiffeId: node.ID.String(), X509Svid: []byte("x"), X509SvidKey: []byte("x"), Bundle: derOf(ca)}}}
			})
		},
	} {
		offer()
		eventually(t, name+": the reason", func() bool { return source.Trouble() != nil })

		if held, err := bundles.JWKS(alpha); err != nil || !bytes.Equal(held, jwks) ||
			!source.SVID().Certificates[0].Equal(node.Certificates[0]) {
			t.Errorf("an SVID %s: %s is used, %v", name, source.SVID().ID, err)
		}

		server.offer(t, []*CA{ca}, issue(t, ca, "/roster/node/2"), node)
		eventually(t, name+": a valid update", func() bool { return source.Trouble() == nil })
	}
}

// The bundle of a domain that the Workload API federates goes before the one that was agreed with it, until the API
// federates it no more. An invalid one leaves the former in use, and keeps no other from its renewal.
//
// Requirement: TRUST-001, TRUST-005
func TestBundlesThatAWorkloadAPIFederates(t *testing.T) {
	server := newWorkloadServer(t)
	authorities := map[spiffeid.TrustDomain]*CA{}
	bundles := NewBundles()

	for _, td := range []spiffeid.TrustDomain{alpha, beta, gamma} {
		ca, err := NewCA(td, time.Now())
		must(t, err)

		authorities[td] = ca
	}

	agreed, err := NewCA(beta, time.Now())
	must(t, err)
	must(t, bundles.SetX509(beta, agreed.Bundle().X509Authorities()))

	trusts := func(ca *CA) bool {
		_, err := verifyChain(issue(t, ca, "/agent/ada").Certificates, bundles, forClient, time.Now())
		return err == nil
	}
	federate := func(der map[string][]byte) {
		server.change(func() {
			server.x509 = &workload.X509SVIDResponse{Svids: server.x509.GetSvids(), FederatedBundles: der}
		})
	}

	node := issue(t, authorities[alpha], "/roster/node/1")
	server.offer(t, []*CA{authorities[alpha]}, node)
	federate(map[string][]byte{beta.IDString(): derOf(authorities[beta]), gamma.IDString(): derOf(authorities[gamma])})
	server.serve(t)
	api, _ := server.follow(t, bundles, false)
	first(t, api)

	if !trusts(authorities[beta]) || !trusts(authorities[gamma]) || trusts(agreed) {
		t.Error("the federated bundles aren't used with the first SVID, or the agreed one beside them")
	}

	next, err := NewCA(gamma, time.Now())
	must(t, err)
	federate(map[string][]byte{beta.IDString(): node.Certificates[0].Raw, gamma.IDString(): derOf(next)})
	eventually(t, "gamma's new authority", func() bool { return trusts(next) })

	if !trusts(authorities[beta]) || trusts(authorities[gamma]) {
		t.Error("an invalid bundle takes the place of a valid one, or an old one stays")
	}

	federate(map[string][]byte{gamma.IDString(): derOf(next)})
	eventually(t, "the agreed bundle", func() bool { return trusts(agreed) })

	if trusts(authorities[beta]) || !trusts(next) {
		t.Error("a bundle that is federated no more is used, or one that is federated isn't")
	}

	// It comes back as it was: nothing may remember it as applied.
	federate(map[string][]byte{beta.IDString(): derOf(authorities[beta])})
	eventually(t, "beta's bundle", func() bool { return trusts(authorities[beta]) })

	if bundles.Has(gamma) || !bundles.Has(alpha) {
		t.Error("gamma is still federated, or the own domain isn't known")
	}
}

// The keys of tokens join the bundles of their domains, whether they come before the first SVID or
// after it, and WIT-SVIDs' only where they are followed.
//
// Requirement: TRUST-001, TRUST-005
func TestKeysOfTokensJoinTheBundles(t *testing.T) {
	server := newWorkloadServer(t)
	ca, err := NewCA(alpha, time.Now())
	must(t, err)
	peer, err := NewCA(beta, time.Now())
	must(t, err)

	stranger := issue(t, ca, "/agent/ada")
	server.offer(t, []*CA{ca}, stranger)
	server.change(func() {
		server.x509.FederatedBundles = map[string][]byte{beta.IDString(): derOf(peer)}
		server.jwtKeys = map[string][]byte{alpha.IDString(): keySet(t, "jwt-svid", "j1")}
		server.witKeys = map[string]string{alpha.IDString(): string(keySet(t, "wit-svid", "w1"))}
	})
	server.serve(t)

	bundles, plain := NewBundles(), NewBundles()
	api, _ := server.follow(t, bundles, true)
	without, _ := server.follow(t, plain, false)

	// The keys are known before there is an SVID, and change no bundle yet.
	eventually(t, "the first keys", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()

		return api.sets.jwt != nil && api.sets.wit != nil
	})

	if bundles.Has(alpha) {
		t.Error("keys without an SVID make a bundle")
	}

	server.offer(t, []*CA{ca}, issue(t, ca, "/roster/node/1"))
	first(t, api)
	first(t, without)

	if bundles.JWTAuthorities(alpha)["j1"] == nil || bundles.WITAuthorities(alpha)["w1"] == nil {
		t.Error("keys that came before the SVID are lost")
	}

	server.change(func() {
		server.jwtKeys = map[string][]byte{
			alpha.IDString(): keySet(t, "jwt-svid", "j2", "j4", "j5", "j6"),
			beta.IDString():  keySet(t, "jwt-svid", "j3"),
		}
		server.witKeys = map[string]string{beta.IDString(): string(keySet(t, "wit-svid", "w3"))}
	})
	eventually(t, "the next keys", func() bool {
		return bundles.JWTAuthorities(alpha)["j2"] != nil && bundles.JWTAuthorities(beta)["j3"] != nil &&
			bundles.WITAuthorities(beta)["w3"] != nil && len(bundles.WITAuthorities(alpha)) == 0 &&
			plain.JWTAuthorities(alpha)["j2"] != nil
	})

	// The same keys are no news, in whatever order they are: what was verified by them would be verified again.
	generation, renewed := bundles.generation(alpha), api.source.Changed()
	server.offer(t, []*CA{ca}, issue(t, ca, "/roster/node/1"))
	<-renewed

	if bundles.generation(alpha) != generation {
		t.Error("a new SVID makes the bundle another one")
	}

	if bundles.JWTAuthorities(alpha)["j1"] != nil || len(plain.WITAuthorities(beta)) > 0 || !plain.Has(beta) {
		t.Error("a key that was withdrawn is used, or WIT-SVIDs are trusted where they aren't followed")
	}
}

// The gateway calls agents by an SVID of its own: the one with the node's name under the gateways' path of the node's
// domain, else the first there. One that doesn't hold leaves the former in use; without any there is none.
//
// Requirement: AI-017, SEC-009
func TestAWorkloadAPIGivesTheGatewayItsOwnIdentity(t *testing.T) {
	server := newWorkloadServer(t)
	ca, err := NewCA(alpha, time.Now())
	must(t, err)
	unknown, err := NewCA(alpha, time.Now())
	must(t, err)
	peer, err := NewCA(beta, time.Now())
	must(t, err)

	server.offer(t, []*CA{ca}, issue(t, ca, "/roster/node/1"))
	server.serve(t)
	api, _ := server.follow(t, NewBundles(), false)
	node := first(t, api)

	if api.Gateway() != nil {
		t.Error("there is a gateway's identity without an SVID of it")
	}

	var before *Source

	for _, tc := range []struct {
		name   string
		offers []*x509svid.SVID
		want   string
		swaps  bool // the source that is there
	}{
		{"named and another", []*x509svid.SVID{issue(t, ca, "/agent/ada"), issue(t, ca, "/roster/gateway/2"),
			issue(t, ca, "/roster/gateway/1")}, "/roster/gateway/1", false},
		{"renewed", []*x509svid.SVID{issue(t, ca, "/roster/gateway/1")}, "/roster/gateway/1", true},
		{"untrusted", []*x509svid.SVID{issue(t, unknown, "/roster/gateway/1")}, "/roster/gateway/1", true},
		{"others", []*x509svid.SVID{issue(t, ca, "/roster/gateway/2"), issue(t, ca, "/roster/gateway/3")},
			"/roster/gateway/2", false},
		{"none", []*x509svid.SVID{issue(t, ca, "/gateway/1"), issue(t, ca, "/roster/node/2"),
			issue(t, peer, "/roster/gateway/1")}, "", false},
	} {
		renewed := node.Changed()
		server.offer(t, []*CA{ca}, append(tc.offers, issue(t, ca, "/roster/node/1"))...)
		<-renewed

		gateway := api.Gateway()
		if tc.want == "" {
			if gateway != nil {
				t.Errorf("%s: %s is the gateway", tc.name, gateway.SVID().ID)
			}

			continue
		}

		if gateway == nil || gateway.SVID().ID.Path() != tc.want || (gateway == before) != tc.swaps {
			t.Fatalf("%s: the gateway is %v, its source was there: %t", tc.name, gateway, gateway == before)
		}

		offered := gateway.SVID().Certificates[0]
		if used := offered.CheckSignatureFrom(ca.cert) == nil; !used {
			t.Errorf("%s: an SVID that its bundle doesn't certify is used", tc.name)
		}

		if fresh := offered.Equal(tc.offers[len(tc.offers)-1].Certificates[0]); tc.name == "renewed" && !fresh {
			t.Error("the gateway keeps the former SVID")
		}

		before = gateway
	}

	if node.SVID().ID.Path() != "/roster/node/1" {
		t.Errorf("the node became %s", node.SVID().ID)
	}
}

// Tokens are the node's own: a JWT-SVID for one audience, and a WIT-SVID, which serves half its life.
// A token of another identity is refused, and a failure names the API.
//
// Requirement: TRUST-002, AI-017
func TestTokensOfAWorkloadAPI(t *testing.T) {
	server := newWorkloadServer(t)
	ca, err := NewCA(alpha, time.Now())
	must(t, err)

	server.offer(t, []*CA{ca}, issue(t, ca, "/roster/node/1"), issue(t, ca, "/roster/gateway/1"))
	halt := server.serve(t)
	api, _ := server.follow(t, NewBundles(), false)
	source := first(t, api)
	gateway := api.Gateway()
	now := time.Now()

	for _, s := range []*Source{source, gateway} {
		id := s.SVID().ID
		server.change(func() { server.subject = id.String() })

		token, until, err := s.JWTSVID(t.Context(), "https://agent.test")
		if err != nil || token == "" || until.Sub(now).Round(time.Minute) != server.lifetime {
			t.Errorf("a JWT-SVID of %s: %q until %s, %v", id, token, until, err)
		}
	}

	if _, _, err := source.JWTSVID(t.Context(), "https://agent.test"); err == nil ||
		!strings.Contains(err.Error(), "/roster/gateway/1") {
		t.Errorf("a JWT-SVID of another: %v", err)
	}

	if _, err := source.WITSVID(t.Context(), now); err == nil || !strings.Contains(err.Error(), "/roster/gateway/1") {
		t.Errorf("a WIT-SVID of another: %v", err)
	}

	server.change(func() { server.subject = source.SVID().ID.String(); server.issued = 0 })

	if _, _, err := source.JWTSVID(t.Context(), ""); err == nil {
		t.Error("a JWT-SVID is for no audience")
	}

	for _, c := range []struct {
		after  time.Duration
		issued int
	}{{0, 1}, {server.lifetime/2 - time.Minute, 1}, {server.lifetime/2 + time.Minute, 2}} {
		svid, err := source.WITSVID(t.Context(), now.Add(c.after))
		must(t, err)

		var issued int

		server.change(func() { issued = server.issued })

		if issued != c.issued || svid.ID != source.SVID().ID || svid.PrivateKey == nil {
			t.Errorf("after %s %d WIT-SVIDs were issued, want %d; of %s", c.after, issued, c.issued, svid.ID)
		}
	}

	halt()

	if _, _, err := source.JWTSVID(t.Context(), "https://agent.test"); err == nil ||
		!strings.Contains(err.Error(), server.path) {
		t.Errorf("a JWT-SVID while the API is away: %v", err)
	}

	files := NewSource(source.SVID())
	if _, _, err := files.JWTSVID(t.Context(), "https://agent.test"); !errors.Is(err, ErrNoJWTSVID) {
		t.Errorf("a JWT-SVID of an identity in files: %v", err)
	}

	if _, err := files.WITSVID(t.Context(), now); !errors.Is(err, ErrNoWITSVID) {
		t.Errorf("a WIT-SVID of an identity in files: %v", err)
	}
}
