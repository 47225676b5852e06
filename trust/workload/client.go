package workload

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/jwtbundle"
	"github.com/spiffe/go-spiffe/v2/exp/bundle/witbundle"
	"github.com/spiffe/go-spiffe/v2/exp/svid/witsvid"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
)

// A watch that ends is repeated after retryStep, and after each further failure
// retryStep later, up to retryMax. retryMax is the wait after InvalidArgument and
// Unimplemented too, which a repetition is not expected to change (SPIFFE Workload
// API, 4.4); the endpoint may be upgraded, though.
const (
	retryStep   = time.Second
	retryMax    = 30 * time.Second
	dialTimeout = 5 * time.Second
)

// A Client calls one Workload API. It is safe for concurrent use.
type Client struct {
	http http.Client
	url  string
}

// New returns a client of the Workload API at an address. Nothing is dialled before
// the first call.
func New(address Address) *Client {
	transport := &http.Transport{
		Protocols:          new(http.Protocols),
		DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			dialer := net.Dialer{Timeout: dialTimeout}
			return dialer.DialContext(ctx, address.network, address.target)
		},
	}
	transport.Protocols.SetUnencryptedHTTP2(true)

	return &Client{
		url: "http://" + address.authority() + service,
		http: http.Client{
			Transport: transport,
			// A local endpoint has no reason to redirect its callers.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// Close closes the connections that no call uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// WatchX509 calls update for every update of X.509-SVIDs and bundles, and fail for
// every update that cannot be parsed and every time that the watch ends; it is
// repeated until ctx ends. One of the two functions is called at a time.
func (c *Client) WatchX509(ctx context.Context, update func(*X509Update), fail func(error)) {
	watch(ctx, c, "FetchX509SVID", parseX509, update, fail)
}

// WatchJWTBundles is like WatchX509 for the keys that sign JWT-SVIDs.
func (c *Client) WatchJWTBundles(ctx context.Context, update func(*jwtbundle.Set), fail func(error)) {
	watch(ctx, c, "FetchJWTBundles", parseJWTBundles, update, fail)
}

// WatchWITBundles is like WatchX509 for the keys that sign WIT-SVIDs.
func (c *Client) WatchWITBundles(ctx context.Context, update func(*witbundle.Set), fail func(error)) {
	watch(ctx, c, "FetchWITBundles", parseWITBundles, update, fail)
}

func watch[T any](
	ctx context.Context, client *Client, method string,
	parse func([]byte) (T, error), update func(T), fail func(error),
) {
	var wait time.Duration

	for ctx.Err() == nil {
		err := client.call(ctx, method, nil, func(message []byte) error {
			wait = 0

			value, err := parse(message)
			if err != nil {
				fail(err)
				return nil
			}

			update(value)

			return nil
		})
		if err == nil {
			err = failed(Unavailable, "the endpoint ended the stream")
		}

		fail(err)

		wait = min(wait+retryStep, retryMax)
		if code := CodeOf(err); code == InvalidArgument || code == Unimplemented {
			wait = retryMax
		}

		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// FetchJWTSVID fetches a JWT-SVID of an identity for an audience.
func (c *Client) FetchJWTSVID(ctx context.Context, audience string, id spiffeid.ID) (*jwtsvid.SVID, error) {
	request := encode(field{1, audience}, field{2, id.String()})

	return first(ctx, c, "FetchJWTSVID", request, func(message []byte) (*jwtsvid.SVID, error) {
		return parseJWTSVID(message, audience)
	})
}

// FetchWITSVID fetches a WIT-SVID of an identity with its private key. The code of the
// error is Unimplemented when the endpoint does not have the WIT-SVID profile.
func (c *Client) FetchWITSVID(ctx context.Context, id spiffeid.ID) (*witsvid.SVID, error) {
	return first(ctx, c, "FetchWITSVID", encode(field{1, id.String()}), parseWITSVID)
}

// first returns the first message of a response, parsed.
func first[T any](
	ctx context.Context, client *Client, method string, request []byte, parse func([]byte) (T, error),
) (value T, err error) {
	enough := errors.New("one message is enough")

	err = client.call(ctx, method, request, func(message []byte) (err error) {
		if value, err = parse(message); err == nil {
			err = enough
		}

		return err
	})

	switch {
	case errors.Is(err, enough):
		return value, nil
	case err == nil:
		err = failed(Internal, "the response is empty")
	}

	return value, err
}

// CodeOf returns the code of an error that a call returned; Unknown for any other.
func CodeOf(err error) Code {
	var status *Error
	if errors.As(err, &status) {
		return status.Code
	}

	return Unknown
}
