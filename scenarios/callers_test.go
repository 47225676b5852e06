package scenarios

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/mesh"
	"github.com/roster-mesh/roster/trust/credentials"
)

// An issuer makes the tokens of a domain's workloads and of its OAuth clients.
type issuer struct {
	t        *testing.T
	dir      string
	key, own *ecdsa.PrivateKey // the issuer's, and the workload's
}

const oauthIssuer = "https://login.alpha.test"

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, dir: t.TempDir()}

	var err1, err2 error
	i.key, err1 = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i.own, err2 = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i.must(errors.Join(err1, err2))
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: i.key.Public(), KeyID: "k1",
		Use: "sig"}}})
	i.must(err)
	i.write("jwks.json", set)
	der, err := x509.MarshalPKCS8PrivateKey(i.own)
	i.must(err)
	i.write("wit.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	i.write("wit", []byte(i.identityToken("/agent/token")))

	return i
}

// identityToken returns a workload identity token of alpha.test.
func (i *issuer) identityToken(path string) string {
	return i.sign("wit+jwt", map[string]any{
		"sub": "spiffe://alpha.test" + path, "exp": time.Now().Add(time.Hour).Unix(),
		"cnf": map[string]any{"jwk": jose.JSONWebKey{Key: i.own.Public(), Algorithm: "ES256"}},
	})
}

func (i *issuer) must(err error) {
	i.t.Helper()

	must(i.t, err)
}

func (i *issuer) file(name string) string { return filepath.Join(i.dir, name) }

func (i *issuer) write(name string, b []byte) { i.must(os.WriteFile(i.file(name), b, 0o600)) }

func (i *issuer) sign(typ string, claims map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "k1"}},
		(&jose.SignerOptions{}).WithType(jose.ContentType(typ)))
	i.must(err)
	text, err := json.Marshal(claims)
	i.must(err)
	signed, err := signer.Sign(text)
	i.must(err)
	jws, err := signed.CompactSerialize()
	i.must(err)

	return jws
}

func (i *issuer) configure(c *config.Config) {
	c.Gateway.Enabled = true
	c.Callers.WIMSE = []config.WIMSE{{Domain: "spiffe://alpha.test", JWKS: i.file("jwks.json")}}
	c.Callers.OAuth = []config.OAuth{{Issuer: oauthIssuer, JWKS: i.file("jwks.json"), Plain: credentials.PlainReads}}
}

// Callers show tokens instead of certificates: a workload its identity token with a
// proof, which is good for one change, invocation or stream at any node of the domain, and an OAuth client
// an access token that is bound to nothing, which is good for reads.
//
// Requirement: TRUST-005, TRUST-006, AD-038, AD-039, AD-071
func TestCallersShowTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIssuer(t)
		m := mesh.Start(t, mesh.Options{Nodes: 3, Configure: i.configure})
		nodes := m.Domain("alpha.test").Nodes
		w, err := credentials.OpenWorkload(i.file("wit"), i.file("wit.key"))
		i.must(err)
		client := func(n *mesh.Node, show func(http.RoundTripper) http.RoundTripper) *apiclient.Client {
			return apiclient.NewDirect(n.URL(), &http.Client{Transport: show(n.HTTP("").Transport)})
		}
		workload := func(prove apiclient.WorkloadToken) func(http.RoundTripper) http.RoundTripper {
			return func(next http.RoundTripper) http.RoundTripper { return apiclient.ShowWorkload(next, prove) }
		}
		fresh := workload(func(method, target string) (string, string, error) {
			return w.Prove(method, target, time.Now())
		})
		doc := []byte(`{"base":"https://10.9.9.9/one"}`)

		for _, n := range nodes {
			if _, err := client(n, fresh).
				Register(t.Context(), "by-token", doc, apiclient.RegisterOptions{}); err != nil {
				t.Fatalf("%s: %v", n.Name, err)
			}
		}

		got, err := client(nodes[0], fresh).Get(t.Context(), "by-token")
		i.must(err)

		if got.Provenance.Registrant != "spiffe://alpha.test/agent/token" {
			t.Errorf("the registrant is %q", got.Provenance.Registrant)
		}

		wit, proof, err := w.Prove("POST", "https://ad.alpha.test/ad/r", time.Now())
		i.must(err)

		same := workload(func(string, string) (string, string, error) { return wit, proof, nil })
		if _, err := client(nodes[0], same).
			Register(t.Context(), "once", doc, apiclient.RegisterOptions{}); err != nil {
			t.Fatal(err)
		}

		for _, n := range nodes {
			_, err := client(n, same).Register(t.Context(), "twice", doc, apiclient.RegisterOptions{})
			refused(t, n.Name+": a used proof", err, 401, directory.Replayed)
		}

		// A proof that was used at one node is refused at every other: for an
		// invocation, even a failed one, and for a watch.
		wit, proof, err = w.Prove("POST", "https://ad.alpha.test/agents/by-token/invoke", time.Now())
		i.must(err)
		_, err = client(nodes[0], same).Invoke(t.Context(), "by-token", "", []byte("{}"), apiclient.InvokeOptions{})
		refused(t, "an agent at a private address", err, 403, directory.EndpointRefused)
		_, err = client(nodes[1], same).Invoke(t.Context(), "by-token", "", []byte("{}"), apiclient.InvokeOptions{})
		refused(t, "an invocation by a used proof", err, 401, directory.Replayed)
		wit, proof, err = w.Prove("GET", "https://ad.alpha.test/ad/watch", time.Now())
		i.must(err)
		watch, err := client(nodes[0], same).Watch(t.Context(), apiclient.LookupOptions{}, "")
		i.must(err)
		i.must(watch.Close())
		_, err = client(nodes[1], same).Watch(t.Context(), apiclient.LookupOptions{}, "")
		refused(t, "a stream by a used proof", err, 401, directory.Replayed)

		wit, proof, err = w.Prove("POST", nodes[0].URL()+"/ad/r", time.Now())
		i.must(err)
		_, err = client(nodes[1], same).Register(t.Context(), "elsewhere", doc, apiclient.RegisterOptions{})
		refused(t, "a proof for another node", err, 401, directory.Unauthenticated)

		// A token may read as an operator, and change nothing as one.
		i.write("ops", []byte(i.identityToken("/ops/operator")))
		ops, err := credentials.OpenWorkload(i.file("ops"), i.file("wit.key"))
		i.must(err)

		byToken := client(nodes[0], workload(func(method, target string) (string, string, error) {
			return ops.Prove(method, target, time.Now())
		}))
		_, _, err = byToken.Operator().Keys(t.Context())
		i.must(err)

		_, err = byToken.Transfers().Force(t.Context(), "by-token", "spiffe://alpha.test/agent/eve")
		refused(t, "a transfer by an operator's token", err, 403, directory.Forbidden)
		err = byToken.Operator().RotateKey(t.Context())
		refused(t, "an operator's change by a token", err, 403, directory.Forbidden)

		bearer := func(claims map[string]any) func(http.RoundTripper) http.RoundTripper {
			claims["iss"], claims["aud"], claims["exp"] = oauthIssuer, "https://ad.alpha.test", time.Now().
				Add(time.Hour).Unix()
			token := i.sign("at+jwt", claims)

			return func(next http.RoundTripper) http.RoundTripper {
				return apiclient.ShowBearer(next, func() (string, error) { return token, nil })
			}
		}

		plain := client(nodes[2], bearer(map[string]any{"sub": "ada"}))
		if _, err := plain.Get(t.Context(), "by-token"); err != nil {
			t.Errorf("a plain token does not read: %v", err)
		}

		_, err = plain.Register(t.Context(), "plain", doc, apiclient.RegisterOptions{})
		refused(t, "a plain token that writes", err, 403, directory.Forbidden)
		_, err = client(nodes[2], bearer(map[string]any{})).Get(t.Context(), "by-token")
		refused(t, "a token without sub", err, 401, directory.Unauthenticated)
		_, err = client(nodes[2], func(next http.RoundTripper) http.RoundTripper { return next }).
			Register(t.Context(), "anonymous", doc, apiclient.RegisterOptions{})
		refused(t, "nobody", err, 401, directory.Unauthenticated)
	})
}

// refused fails unless err is a node's refusal with that problem; a 401 names every
// way to show who one is.
func refused(t *testing.T, what string, err error, status int, problem directory.Problem) {
	t.Helper()

	var e *apiclient.Error
	if !errors.As(err, &e) || e.Status != status || e.Code != string(problem) {
		t.Errorf("%s: %v, want %d %s", what, err, status, problem)
		return
	}

	if status != http.StatusUnauthorized {
		return
	}

	challenges := e.Header.Values("Www-Authenticate")
	for _, scheme := range []string{"WPT",
		`Bearer realm="alpha.test", resource_metadata="https://ad.alpha.test/.well-known/oauth-protected-resource"`} {
		if !slices.ContainsFunc(challenges, func(c string) bool { return strings.HasPrefix(c, scheme) }) {
			t.Errorf("%s: the challenges %q lack %s", what, challenges, scheme)
		}
	}
}
