package client

import (
	"cmp"
	"fmt"
	"net/http"
)

// A WorkloadToken makes what shows a workload in one request of a method to target, an
// absolute URI without query: its workload identity token and a proof of possession.
type WorkloadToken func(method, target string) (wit, proof string, err error)

// ShowWorkload returns a transport that sends what prove makes with every request
// (draft-ietf-wimse-wpt-02). It is for Config.HTTP, and belongs on
// connections whose server is verified.
func ShowWorkload(next http.RoundTripper, prove WorkloadToken) http.RoundTripper {
	return showing{next, func(r *http.Request) error {
		wit, proof, err := prove(cmp.Or(r.Method, http.MethodGet), r.URL.Scheme+"://"+r.URL.Host+r.URL.EscapedPath())
		if err != nil {
			return fmt.Errorf("showing the workload: %w", err)
		}
		r.Header.Set("Workload-Identity-Token", wit)
		r.Header.Set("Authorization", "WPT "+proof)
		return nil
	}}
}

// ShowBearer returns a transport that sends the token that token returns with every
// request: an OAuth access token (RFC 6750), or a JWT-SVID. token is asked for each
// request, since tokens are renewed.
func ShowBearer(next http.RoundTripper, token func() (string, error)) http.RoundTripper {
	return showing{next, func(r *http.Request) error {
		text, err := token()
		if err != nil {
			return fmt.Errorf("showing a token: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+text)
		return nil
	}}
}

// showing sends a copy of each request with what show adds to it.
type showing struct {
	next http.RoundTripper
	show func(*http.Request) error
}

func (s showing) RoundTrip(r *http.Request) (*http.Response, error) {
	shown := r.Clone(r.Context())
	if err := s.show(shown); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper must
		}
		return nil, err
	}
	return s.next.RoundTrip(shown)
}

// CloseIdleConnections closes those of the transport beneath, as
// http.Client.CloseIdleConnections expects.
func (s showing) CloseIdleConnections() {
	if t, ok := s.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
