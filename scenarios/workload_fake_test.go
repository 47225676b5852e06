package scenarios

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/roster-mesh/roster/trust"
)

// A workloadAPI provides the identities of a domain's workloads by the published protobuf of
// the SPIFFE Workload API, as the outside world of these tests. Each of its sockets
// serves one workload.
type workloadAPI struct {
	t   *testing.T
	td  spiffeid.TrustDomain
	dir string
	jwt *ecdsa.PrivateKey

	mu        sync.Mutex // guards the rest
	cas       []*trust.CA
	rotations int
	ttl       time.Duration
	federated map[string][]byte
	spoil     func(*workload.X509SVIDResponse) // applied to later answers
	changed   chan struct{}                    // closed at the next change
}

func newWorkloadAPI(t *testing.T, domain string) *workloadAPI {
	t.Helper()
	s := &workloadAPI{t: t, td: spiffeid.RequireTrustDomainFromString(domain), ttl: time.Hour,
		changed: make(chan struct{})}

	var err1, err2 error
	s.dir, err1 = os.MkdirTemp("", "wl-") // a socket's path is at most 107 bytes long
	s.jwt, err2 = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(errors.Join(err1, err2))
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	s.rotate()

	return s
}

func (s *workloadAPI) must(err error) {
	s.t.Helper()

	if err != nil {
		s.t.Fatal(err)
	}
}

// change changes the state and sends it to all workloads.
func (s *workloadAPI) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// rotate gives all workloads new SVIDs; every third time by a new CA, which has been
// in the bundle for one rotation, as the old one stays in it for some.
func (s *workloadAPI) rotate() {
	s.change(func() {
		if s.rotations%3 == 0 {
			ca, err := trust.NewCA(s.td, time.Now())
			if err != nil {
				panic(err)
			}

			s.cas = append(s.cas, ca)
			s.cas = s.cas[max(0, len(s.cas)-3):]
		}

		s.rotations++
	})
}

// signer is the CA that signs now: the newest but one, once there is one.
func (s *workloadAPI) signer() *trust.CA { return s.cas[max(0, len(s.cas)-2)] }

func (s *workloadAPI) bundle() (der []byte) {
	for _, ca := range s.cas {
		for _, c := range ca.Bundle().X509Authorities() {
			der = append(der, c.Raw...)
		}
	}

	return der
}

// A socket serves one workload.
type socket struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	*workloadAPI
	path   string
	server *grpc.Server
	done   chan struct{}
}

// address is the address of a workload's Workload API, running or not.
func (s *workloadAPI) address(name string) string { return "unix://" + filepath.Join(s.dir, name) }

// serve serves the workload at path until it is closed.
func (s *workloadAPI) serve(name, path string) *socket {
	s.t.Helper()
	k := &socket{workloadAPI: s, path: path, server: grpc.NewServer(), done: make(chan struct{})}
	workload.RegisterSpiffeWorkloadAPIServer(k.server, k)
	ln, err := net.Listen("unix", filepath.Join(s.dir, name))
	s.must(err)
	go func() {
		defer close(k.done)
		_ = k.server.Serve(ln)
	}()
	s.t.Cleanup(k.close)

	return k
}

func (k *socket) close() {
	k.server.Stop()
	<-k.done
}

// secured checks the specification's demands on each request.
func secured(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if v := md.Get("workload.spiffe.io"); len(v) != 1 || v[0] != "true" {
		return status.Error(codes.InvalidArgument, "security header missing")
	}

	return nil
}

// stream sends the current state, and again after each change.
func (k *socket) stream(ctx context.Context, send func() error) error {
	if err := secured(ctx); err != nil {
		return err
	}

	for {
		k.mu.Lock()
		changed := k.changed
		k.mu.Unlock()

		if err := send(); err != nil {
			return err
		}

		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (k *socket) FetchX509SVID(_ *workload.X509SVIDRequest,
	to grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	return k.stream(to.Context(), func() error {
		resp, err := k.x509()
		if err != nil {
			return err
		}

		return to.Send(resp)
	})
}

func (k *socket) x509() (*workload.X509SVIDResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	resp := &workload.X509SVIDResponse{FederatedBundles: k.federated}

	svid, err := k.signer().Issue(k.path, k.ttl, time.Now())
	if err != nil {
		return nil, err
	}

	key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
	if err != nil {
		return nil, err
	}

	resp.Svids = []*workload.X509SVID{{SpiffeId: svid.ID.String(), X509Svid: svid.Certificates[0].Raw,
		X509SvidKey: key, Bundle: k.bundle()}}

	if k.spoil != nil {
		k.spoil(resp)
	}

	return resp, nil
}

func (k *socket) FetchJWTBundles(_ *workload.JWTBundlesRequest,
	to grpc.ServerStreamingServer[workload.JWTBundlesResponse]) error {
	return k.stream(to.Context(), func() error {
		set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.jwt.Public(), KeyID: "j1",
			Use: "jwt-svid"}}})
		if err != nil {
			return err
		}

		return to.Send(&workload.JWTBundlesResponse{Bundles: map[string][]byte{k.td.IDString(): set}})
	})
}

func (k *socket) FetchWITBundles(_ *workload.WITBundlesRequest,
	to grpc.ServerStreamingServer[workload.WITBundlesResponse]) error {
	return k.stream(to.Context(), func() error {
		set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: k.jwt.Public(), KeyID: "w1",
			Use: "wit-svid"}}})
		if err != nil {
			return err
		}

		return to.Send(&workload.WITBundlesResponse{Bundles: map[string]string{k.td.IDString(): string(set)}})
	})
}

func (k *socket) FetchWITSVID(req *workload.WITSVIDRequest,
	to grpc.ServerStreamingServer[workload.WITSVIDResponse]) error {
	return k.stream(to.Context(), func() error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}

		private, err := json.Marshal(jose.JSONWebKey{Key: key, Algorithm: "ES256"})
		if err != nil {
			return err
		}

		return to.Send(&workload.WITSVIDResponse{Svids: []*workload.WITSVID{{SpiffeId: req.GetSpiffeId(),
			WitSvid: k.wit(k.path, key), WitSvidKey: string(private)}}})
	})
}

// wit issues a WIT-SVID of a workload for its key.
func (s *workloadAPI) wit(path string, key *ecdsa.PrivateKey) string {
	s.t.Helper()

	return s.sign("wit+jwt", "w1", map[string]any{
		"sub": s.td.IDString() + path, "exp": time.Now().Add(time.Hour).Unix(),
		"cnf": map[string]any{"jwk": jose.JSONWebKey{Key: key.Public(), Algorithm: "ES256"}},
	})
}

func (s *workloadAPI) sign(typ, kid string, claims map[string]any) string {
	s.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.jwt, KeyID: kid}},
		(&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	s.must(err)
	text, err := json.Marshal(claims)
	s.must(err)
	signed, err := signer.Sign(text)
	s.must(err)
	token, err := signed.CompactSerialize()
	s.must(err)

	return token
}

func (k *socket) FetchJWTSVID(ctx context.Context, req *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	if err := secured(ctx); err != nil {
		return nil, err
	}

	id := cmp.Or(req.GetSpiffeId(), k.td.IDString()+k.path)

	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256,
		Key: jose.JSONWebKey{Key: k.jwt, KeyID: "j1"}}, nil)
	if err != nil {
		return nil, err
	}

	claims, err := json.Marshal(map[string]any{"sub": id, "aud": req.Audience, "iat": time.Now().Unix(),
		"exp": time.Now().Add(5 * time.Minute).Unix()})
	if err != nil {
		return nil, err
	}

	signed, err := signer.Sign(claims)
	if err != nil {
		return nil, err
	}

	token, err := signed.CompactSerialize()
	if err != nil {
		return nil, err
	}

	return &workload.JWTSVIDResponse{Svids: []*workload.JWTSVID{{SpiffeId: id, Svid: token}}}, nil
}
