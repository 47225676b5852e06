package trust

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/roster-mesh/roster/directory"
)

// An endpoint is beta.test's bundle endpoint, which answers as it is told.
type endpoint struct {
	*httptest.Server
	now atomic.Pointer[http.HandlerFunc]
}

func (e *endpoint) say(h http.HandlerFunc) { e.now.Store(&h) }

func newEndpoint(t *testing.T, start func(*httptest.Server)) *endpoint {
	e := &endpoint{}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*e.now.Load())(w, r)
	}))
	e.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	start(e.Server)
	t.Cleanup(e.Close)

	return e
}

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

func gives(status int, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}
}

// bundleOf is beta.test's bundle with a sequence number, none where it is 0.
func bundleOf(t *testing.T, seq uint64, authorities ...*x509.Certificate) []byte {
	t.Helper()

	b := spiffebundle.FromX509Authorities(beta, authorities)
	if seq > 0 {
		b.SetSequenceNumber(seq)
	}

	text, err := b.Marshal()
	must(t, err)

	return text
}

// What an endpoint may not do: each leaves the last good bundle, with the reason.
//
// Requirement: TRUST-004
func TestFetcherRules(t *testing.T) {
	ca, err := NewCA(beta, time.Now())
	must(t, err)
	next, err := NewCA(beta, time.Now())
	must(t, err)
	other, err := NewCA(alpha, time.Now())
	must(t, err)
	spent, err := NewCA(beta, time.Now().Add(-20*365*24*time.Hour))
	must(t, err)
	held, fresh := bundleOf(t, 7, ca.cert), bundleOf(t, 8, ca.cert, next.cert)

	e := newEndpoint(t, (*httptest.Server).StartTLS)
	roots := x509.NewCertPool()
	roots.AddCert(e.Certificate())
	f := NewFetcher(NewBundles(), roots, dialTCP)
	at := directory.BundleEndpoint{URL: e.URL + "/bundle", Profile: directory.ProfileWeb}

	elsewhere := newEndpoint(t, (*httptest.Server).Start)
	elsewhere.say(gives(http.StatusOK, fresh))

	for name, c := range map[string]struct {
		say  http.HandlerFunc
		want string
	}{
		"a lower sequence":     {gives(200, bundleOf(t, 6, next.cert)), ErrBundleOlder.Error()},
		"no sequence any more": {gives(200, bundleOf(t, 0, next.cert)), ErrBundleOlder.Error()},
		"an error's body":      {gives(503, fresh), "503"},
		"a 203":                {gives(203, fresh), "203"},
		"a redirect to http":   {http.RedirectHandler(elsewhere.URL, http.StatusFound).ServeHTTP, "302"},
		"a redirect to itself": {http.RedirectHandler(e.URL+"/other", http.StatusMovedPermanently).ServeHTTP, "301"},
		"over 1 MiB": {gives(200, append([]byte(strings.Repeat(" ", MaxBundle)), fresh...)),
			"over 1048576 bytes"},
		"without end":            {endless, "over 1048576 bytes"},
		"an empty key set":       {gives(200, []byte(`{"keys":[],"spiffe_sequence":9}`)), "no X.509 authority"},
		"members twice":          {gives(200, []byte(`{"keys":[],`+string(fresh[1:]))), "not strict JSON"},
		"not JSON":               {gives(200, []byte("<html>")), ""},
		"another's authority":    {gives(200, bundleOf(t, 9, ca.cert, other.cert)), "another domain's"},
		"a leaf as authority":    {gives(200, bundleOf(t, 9, issue(t, next, "/x").Certificates[0])), "no CA"},
		"nothing in force":       {gives(200, bundleOf(t, 9, spent.cert)), "none of its authorities is in force"},
		"a connection that ends": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		e.say(c.say)

		if got, err := f.Fetch(t.Context(), beta, at, held); err == nil || !strings.Contains(err.Error(), c.want) ||
			got.JWKS != nil {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}

	e.say(gives(200, fresh))

	got, err := f.Fetch(t.Context(), beta, at, held)
	if err != nil || !got.News || string(got.JWKS) != string(fresh) || got.Again != refreshDefault {
		t.Fatalf("a new bundle: %+v, %v", got, err)
	}

	e.say(gives(200, bundleOf(t, 8, next.cert, ca.cert)))

	if got, err = f.Fetch(t.Context(), beta, at, fresh); err != nil || got.News {
		t.Errorf("the same in another order: %+v, %v", got, err)
	}

	// Else a bundle of before that number would be taken afterwards.
	e.say(gives(200, bundleOf(t, 9, ca.cert, next.cert)))

	if got, err = f.Fetch(t.Context(), beta, at, fresh); err != nil || !got.News {
		t.Errorf("the same with a higher sequence: %+v, %v", got, err)
	}

	for hint, want := range map[int64]time.Duration{0: refreshLeast, 1: refreshLeast, 600: 10 * time.Minute,
		1 << 30: refreshMost} {
		e.say(gives(200,
			[]byte(strings.Replace(string(fresh), "{", `{"spiffe_refresh_hint":`+strconv.FormatInt(hint, 10)+",", 1))))

		if got, err := f.Fetch(t.Context(), beta, at, held); err != nil || got.Again != want {
			t.Errorf("a refresh hint of %d: %v, %v", hint, got.Again, err)
		}
	}

	if _, err := NewFetcher(NewBundles(), x509.NewCertPool(), dialTCP).Fetch(t.Context(), beta, at, held); err == nil {
		t.Error("a server that nobody certifies is believed")
	}

	for _, bad := range []directory.BundleEndpoint{
		{URL: "http://127.0.0.1/", Profile: directory.ProfileWeb}, {URL: e.URL, Profile: "web"},
		{URL: e.URL, Profile: directory.ProfileWeb, ID: spiffeid.RequireFromPath(beta, "/x")},
		{URL: "https://u:p@" + e.Listener.Addr().String(), Profile: directory.ProfileWeb},
	} {
		if _, err := f.Fetch(t.Context(), beta, bad, held); err == nil {
			t.Errorf("%+v is asked", bad)
		}
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		if _, err := io.WriteString(w, strings.Repeat(" ", 64<<10)); err != nil {
			return
		}
	}
}

// An endpoint of https_spiffe is who it is named to be, by the bundle that is held:
// any node of the domain, or the one ID.
//
// Requirement: TRUST-004
func TestFetcherOfSPIFFE(t *testing.T) {
	ca, err := NewCA(beta, time.Now())
	must(t, err)
	next, err := NewCA(beta, time.Now())
	must(t, err)
	held := bundleOf(t, 0, ca.cert)
	believed := NewBundles()
	must(t, believed.Set(beta, held))

	f := NewFetcher(believed, nil, dialTCP)
	for name, c := range map[string]struct {
		shows *CA
		path  string
		id    string // that is named; empty for any node
		ok    bool
	}{
		"a node":            {ca, "/roster/node/7", "", true},
		"no node":           {ca, "/agent/eve", "", false},
		"the one":           {ca, "/spire/server", "/spire/server", true},
		"another":           {ca, "/roster/node/7", "/spire/server", false},
		"a CA not yet held": {next, "/roster/node/7", "", false},
	} {
		e := newEndpoint(t, func(s *httptest.Server) {
			s.TLS = ServerTLS(NewSource(issue(t, c.shows, c.path)), believed, nil)
			s.TLS.Certificates = append(s.TLS.Certificates, *NewSource(issue(t, c.shows, c.path)).Certificate())
			s.StartTLS()
		})
		e.say(gives(200, bundleOf(t, 2, ca.cert, next.cert)))

		at := directory.BundleEndpoint{URL: e.URL, Profile: directory.ProfileSPIFFE}
		if c.id != "" {
			at.ID = spiffeid.RequireFromPath(beta, c.id)
		}

		got, err := f.Fetch(t.Context(), beta, at, held)
		if (err == nil) != c.ok || got.News != c.ok {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// What is published has a sequence number that rises with each new authority, and a
// refresh hint; what the source says itself is kept.
func TestPublishedBundles(t *testing.T) {
	ca, err := NewCA(beta, time.Now().Add(-time.Hour))
	must(t, err)
	next, err := NewCA(beta, time.Now())
	must(t, err)

	b := NewBundles()
	if _, err := b.Publish(beta); !errors.Is(err, ErrNoBundle) {
		t.Errorf("of nobody: %v", err)
	}

	seq := func(authorities ...*x509.Certificate) uint64 {
		must(t, b.SetX509(beta, authorities))
		text, err := b.Publish(beta)
		must(t, err)
		parsed, err := ParseBundle(beta, text)
		must(t, err)

		n, _ := parsed.SequenceNumber()
		if hint, ok := parsed.RefreshHint(); !ok || hint != refreshDefault ||
			len(parsed.X509Authorities()) != len(authorities) {
			t.Errorf("published is %s", text)
		}

		return n
	}

	one, both, two := seq(ca.cert), seq(ca.cert, next.cert), seq(next.cert)
	if one == 0 || both <= one || two != both {
		t.Errorf("the sequence is %d, %d, %d", one, both, two)
	}

	own := spiffebundle.FromX509Authorities(beta, []*x509.Certificate{ca.cert})
	own.SetSequenceNumber(3)
	own.SetRefreshHint(time.Minute)
	text, err := own.Marshal()
	must(t, err)
	must(t, b.Set(beta, text))

	if got, err := b.Publish(beta); err != nil || string(got) != string(text) {
		t.Errorf("published is %s, %v", got, err)
	}
}

// withKey returns a bundle with an authority of tokens more.
func withKey(t *testing.T, jwks []byte, add func(*spiffebundle.Bundle, string, crypto.PublicKey) error) []byte {
	t.Helper()

	b, err := ParseBundle(beta, jwks)
	must(t, err)

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	must(t, add(b, "one", key.Public()))

	text, err := b.Marshal()
	must(t, err)

	return text
}

// A bundle that the domain took is the one of the endpoint, which the bundle before authenticates, or
// an earlier one.
//
// Requirement: SEC-012, TRUST-004
func TestABundleIsConfirmedByTheOneBefore(t *testing.T) {
	ca, err := NewCA(beta, time.Now())
	must(t, err)
	next, err := NewCA(beta, time.Now())
	must(t, err)
	thief, err := NewCA(beta, time.Now())
	must(t, err)

	was, fresh := bundleOf(t, 7, ca.cert), bundleOf(t, 8, ca.cert, next.cert)
	forged := bundleOf(t, 8, thief.cert)

	e := newEndpoint(t, func(s *httptest.Server) {
		source := NewSource(issue(t, ca, "/roster/node/1"))
		s.TLS = ServerTLS(source, NewBundles(), nil)
		s.TLS.Certificates = append(s.TLS.Certificates, *source.Certificate())
		s.StartTLS()
	})
	at := directory.BundleEndpoint{URL: e.URL + "/bundle", Profile: directory.ProfileSPIFFE}
	f := NewFetcher(NewBundles(), nil, dialTCP) // which bundle is in force doesn't matter

	for name, c := range map[string]struct {
		at        directory.BundleEndpoint
		says      []byte
		was, next []byte
		want      error
	}{
		"the same":                     {at, fresh, was, fresh, nil},
		"a later one":                  {at, bundleOf(t, 9, next.cert), was, fresh, nil},
		"the one before":               {at, was, was, forged, ErrBundleOther},
		"another":                      {at, fresh, was, forged, ErrBundleOther},
		"forged, of the number before": {at, fresh, was, bundleOf(t, 7, thief.cert), ErrBundleOther},
		"forged, without a number":     {at, fresh, was, bundleOf(t, 0, thief.cert), ErrBundleOther},
		"forged, of number 1":          {at, fresh, was, bundleOf(t, 1, thief.cert), ErrBundleOther},
		"forged, of a number between":  {at, bundleOf(t, 9, ca.cert), was, forged, errBundleReplaced},
		"a forged JWT authority": {at, bundleOf(t, 9, ca.cert, next.cert), was,
			withKey(t, fresh, (*spiffebundle.Bundle).AddJWTAuthority), errBundleReplaced},
		"a forged WIT authority": {at, bundleOf(t, 9, ca.cert, next.cert), was,
			withKey(t, fresh, (*spiffebundle.Bundle).AddWITAuthority), errBundleReplaced},
		"a rollback": {at, fresh, fresh, was, ErrBundleOther},
		"a rollback to a retired CA": {at, bundleOf(t, 9, ca.cert, next.cert), fresh,
			bundleOf(t, 6, thief.cert, ca.cert),
			ErrBundleOther},
		"without an endpoint": {directory.BundleEndpoint{}, fresh, was, forged, ErrBundleOther},
	} {
		e.say(gives(http.StatusOK, c.says))

		if err := f.Confirm(t.Context(), beta, c.at, c.was, c.next); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}

	e.say(gives(http.StatusOK, forged))

	if err := f.Confirm(t.Context(), beta, at, bundleOf(t, 7, thief.cert), forged); err == nil {
		t.Error("the bundle before does not authenticate the endpoint")
	}

	if !SameBundle(beta, fresh, bundleOf(t, 8, next.cert, ca.cert)) || SameBundle(beta, fresh, forged) ||
		SameBundle(beta, []byte("{"), []byte("{")) {
		t.Error("bundles are compared wrongly")
	}
}

// The authorities of a bundle are the same bytes in whichever order and with whatever else they came: a ledger has
// one entry of them.
func TestAuthoritiesHaveOneEncoding(t *testing.T) {
	first, err := NewCA(beta, time.Now())
	must(t, err)
	second, err := NewCA(beta, time.Now())
	must(t, err)

	var want []byte

	for _, order := range [][]*x509.Certificate{{first.cert, second.cert}, {second.cert, first.cert}} {
		bundle := spiffebundle.FromX509Authorities(beta, order)
		bundle.SetSequenceNumber(uint64(len(want)))

		jwks, err := bundle.Marshal()
		must(t, err)

		b := NewBundles()
		must(t, b.Set(beta, jwks))

		got, err := b.Authorities(beta)
		if err != nil || len(want) > 0 && !bytes.Equal(got, want) {
			t.Errorf("got %s, want %s: %v", got, want, err)
		}

		want = got
	}
}
