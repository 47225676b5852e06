package client

import (
	"cmp"
	"fmt"
	"net/http"
)

// A WorkloadToken makes the credentials of one request of that method to target, an
// absolute URI without query: a workload identity token and a proof of possession.
type WorkloadToken func(method, target string) (wit, proof string, err error)

// ShowWorkload returns a transport that adds a workload's credentials to every
// request (draft-ietf-wimse-wpt-02). It is for Config.HTTP. The transport beneath
// must verify the server, or the credentials go to a stranger.
func ShowWorkload(next http.RoundTripper, prove WorkloadToken) http.RoundTripper {
	return credentialTransport{next, func(r *http.Request) error {
		wit, proof, err := prove(cmp.Or(r.Method, http.MethodGet), r.URL.Scheme+"://"+r.URL.Host+r.URL.EscapedPath())
		if err != nil {
			return fmt.Errorf("showing the workload: %w", err)
		}

		r.Header.Set("Workload-Identity-Token", wit)
		r.Header.Set("Authorization", "WPT "+proof)

		return nil
	}}
}

// ShowBearer returns a transport that adds a bearer token to every request: an
// OAuth access token (RFC 6750) or a JWT-SVID. It is for Config.HTTP. token is called
// for each request, because tokens are renewed. The transport beneath must verify
// the server, or the token goes to a stranger.
func ShowBearer(next http.RoundTripper, token func() (string, error)) http.RoundTripper {
	return credentialTransport{next, func(r *http.Request) error {
		text, err := token()
		if err != nil {
			return fmt.Errorf("showing a token: %w", err)
		}

		r.Header.Set("Authorization", "Bearer "+text)

		return nil
	}}
}

// A credentialTransport sends a copy of each request with the credentials that add
// puts into it.
type credentialTransport struct {
	next http.RoundTripper
	add  func(*http.Request) error
}

// RoundTrip implements http.RoundTripper.
func (t credentialTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	shown := r.Clone(r.Context())
	if err := t.add(shown); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}

		return nil, err
	}

	return t.next.RoundTrip(shown)
}

// CloseIdleConnections closes those of the transport beneath, as
// http.Client.CloseIdleConnections expects.
func (t credentialTransport) CloseIdleConnections() {
	if next, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		next.CloseIdleConnections()
	}
}
