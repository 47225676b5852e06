package workload

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

var ada = spiffeid.RequireFromString("spiffe://alpha.test/agent/ada")

// listen returns a Unix socket and a client of it.
func listen(t *testing.T) (net.Listener, *Client) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "api.sock")

	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}

	address, err := ParseAddress("unix://" + path)
	if err != nil {
		t.Fatal(err)
	}

	client := New(address)
	t.Cleanup(client.Close)

	return l, client
}

// answering returns a client of an endpoint that answers every call by handler.
func answering(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	l, client := listen(t)
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	server.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })

	return client
}

func head(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
}

// A server of the gRPC library understands the requests, and its statuses arrive.
func TestSpeaksWithTheGRPCLibrary(t *testing.T) {
	l, client := listen(t)
	server := grpc.NewServer()
	pb.RegisterSpiffeWorkloadAPIServer(server, &library{})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })

	if _, err := client.FetchWITSVID(t.Context(), ada); CodeOf(err) != Unimplemented {
		t.Errorf("a profile that the server lacks: %v", err)
	}

	_, err := client.FetchJWTSVID(t.Context(), "https://ad.test", ada)
	if want := `permission denied: no entry for "https://ad.test", 100 % sure: é`; err == nil || err.Error() != want {
		t.Errorf("a refusal: %v, want %s", err, want)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var updates, failures []string
	client.WatchJWTBundles(ctx, nil, func(err error) {
		failures = append(failures, err.Error())
		if len(failures) == 2 {
			cancel()
		}
	})

	if len(updates) > 0 || len(failures) != 2 || !strings.Contains(failures[0], "bundle of alpha.test") ||
		failures[1] != "unavailable: goodbye" {
		t.Errorf("a stream with one bad message: updates %q, failures %q", updates, failures)
	}
}

type library struct {
	pb.UnimplementedSpiffeWorkloadAPIServer
}

func (*library) FetchJWTSVID(_ context.Context, req *pb.JWTSVIDRequest) (*pb.JWTSVIDResponse, error) {
	if req.GetSpiffeId() != ada.String() {
		return nil, status.Error(codes.InvalidArgument, req.GetSpiffeId())
	}

	return nil, status.Errorf(codes.PermissionDenied, "no entry for %q, 100 %% sure: é", req.GetAudience()[0])
}

func (*library) FetchJWTBundles(_ *pb.JWTBundlesRequest, to grpc.ServerStreamingServer[pb.JWTBundlesResponse]) error {
	bundles := map[string][]byte{"spiffe://alpha.test": []byte("{")}
	if err := to.Send(&pb.JWTBundlesResponse{Bundles: bundles}); err != nil {
		return err
	}

	return status.Error(codes.Unavailable, "goodbye")
}

// Every answer that is not gRPC's, or is cut off, is an error with a code; none is
// waited for or buffered beyond the limit.
func TestHostileEndpoints(t *testing.T) {
	prefix := func(flag byte, size uint32) []byte { return binary.BigEndian.AppendUint32([]byte{flag}, size) }
	for _, tc := range []struct {
		name    string
		answer  http.HandlerFunc
		code    Code
		message string
	}{
		{"another status", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "x", http.StatusBadGateway)
		}, Unavailable, "502"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/other", http.StatusFound)
		}, Unavailable, "302"},
		{"HTML", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
		}, Unknown, "text/html"},
		{"no trailer", func(w http.ResponseWriter, _ *http.Request) { head(w) }, Unavailable, "without a status"},
		{"no message", func(w http.ResponseWriter, _ *http.Request) {
			head(w)
			w.Header().Set("Grpc-Status", "0")
		}, Internal, "empty"},
		{"a status that is no number", func(w http.ResponseWriter, _ *http.Request) {
			head(w)
			w.Header().Set("Grpc-Status", "-1")
		}, Unavailable, "without a status"},
		{"compressed", func(w http.ResponseWriter, _ *http.Request) {
			head(w)
			_, _ = w.Write(prefix(1, 0))
		}, Unimplemented, "compressed"},
		{"too large", func(w http.ResponseWriter, _ *http.Request) {
			head(w)
			_, _ = w.Write(prefix(0, 1<<31))
		}, Internal, "over the limit"},
		{"cut in the prefix", func(w http.ResponseWriter, _ *http.Request) {
			head(w)
			_, _ = w.Write([]byte{0, 0})
		}, Unavailable, "unexpected EOF"},
		{"cut after the prefix", func(w http.ResponseWriter, _ *http.Request) {
			head(w)
			_, _ = w.Write(prefix(0, 9))
		}, Unavailable, "unexpected EOF"},
		{"a status in the headers", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "12")
			w.Header().Set("Grpc-Message", "100%zz")
		}, Unimplemented, "100%zz"},
		{"a reset", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, Unavailable, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := answering(t, tc.answer)

			_, err := client.FetchWITSVID(t.Context(), ada)
			if err == nil || CodeOf(err) != tc.code || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("%v (code %d), want code %d with %q", err, CodeOf(err), tc.code, tc.message)
			}
		})
	}
}

// Each request has the headers that the specification and gRPC demand.
func TestRequestHeaders(t *testing.T) {
	seen := make(chan *http.Request, 1)
	client := answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if _, err := readFrame(strings.NewReader(string(body))); err != nil || len(body) < prefixSize {
			t.Errorf("request %x: %v", body, err)
		}

		seen <- r
		head(w)
	})
	_, _ = client.FetchWITSVID(t.Context(), ada)

	r := <-seen
	if r.Method != http.MethodPost || r.URL.Path != "/SpiffeWorkloadAPI/FetchWITSVID" || r.Host != "localhost" ||
		r.Header.Get("workload.spiffe.io") != "true" || r.Header.Get("Te") != "trailers" ||
		r.Header.Get("Accept-Encoding") != "" {
		t.Errorf("request %s %s%s %v", r.Method, r.Host, r.URL.Path, r.Header)
	}
}

// A watch of an endpoint that is absent ends with its context, and says why it failed.
func TestWatchEndsWithItsContext(t *testing.T) {
	l, client := listen(t)
	_ = l.Close()
	ctx, cancel := context.WithCancel(t.Context())

	var last error
	client.WatchX509(ctx, nil, func(err error) { last = err; cancel() })

	if CodeOf(last) != Unavailable || !errors.As(last, new(*net.OpError)) {
		t.Errorf("an absent endpoint: %v", last)
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"unix:///run/spire/api.sock": "unix /run/spire/api.sock", "tcp://127.0.0.1:8081": "tcp 127.0.0.1:8081",
		"tcp://[::1]:80": "tcp [::1]:80",
		"":               "scheme", "/run/api.sock": "scheme", "http://127.0.0.1:80": "scheme",
		"unix:api.sock":       "slashes",
		"unix://run/api.sock": "three slashes",
		"unix:///a?b":         "query", "unix:///a?": "query", "unix:///a#b": "fragment", "unix://u@h/a": "user",
		"unix://":            "path",
		"tcp://localhost:80": "IP", "tcp://127.0.0.1": "port", "tcp://127.0.0.1:80/": "path",
		"tcp:127.0.0.1:80": "slashes", "unix://\x00": "not a valid URI",
	} {
		a, err := ParseAddress(text)
		if got := a.network + " " + a.target; err == nil && got != want ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}

// Decoding any bytes ends without a panic, and agrees with the protobuf library about
// the trust domains of a map.
func FuzzMessages(f *testing.F) {
	for _, m := range []proto.Message{
		&pb.JWTBundlesResponse{Bundles: map[string][]byte{"spiffe://alpha.test": []byte(`{"keys":[]}`)}},
		&pb.X509SVIDResponse{Svids: []*pb.X509SVID{{SpiffeId: ada.String(), X509Svid: []byte{1}, Hint: "x"}},
			FederatedBundles: map[string][]byte{"spiffe://beta.test": nil}},
		&pb.WITSVIDResponse{Svids: []*pb.WITSVID{{SpiffeId: ada.String(), WitSvid: "a.b.c", WitSvidKey: "{}"}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}

		f.Add(b)
	}

	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseX509(b)
		_, _ = parseWITSVID(b)
		_, _ = parseWITBundles(b)
		_, _ = parseJWTSVID(b, "x")
		_, _ = parseJWTBundles(b)
		ours, err := decodeBundles(b, 1)

		theirs := new(pb.JWTBundlesResponse)
		if proto.Unmarshal(b, theirs) != nil || err != nil {
			return
		}

		if len(ours) > len(theirs.GetBundles()) {
			t.Errorf("%d bundles, the library has %d", len(ours), len(theirs.GetBundles()))
		}
	})
}
