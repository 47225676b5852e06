package scenarios

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node"
	"github.com/roster-mesh/roster/node/config"
	"github.com/roster-mesh/roster/scenarios/launch"
	"github.com/roster-mesh/roster/trust"
	"github.com/roster-mesh/roster/trust/credentials"
)

// A workloadNode is one node of alpha.test in this process, on loopback, which has its
// identity from a Workload API.
type workloadNode struct {
	*testing.T
	cfg  config.Config
	node *node.Node
	at   map[string]net.Listener // by the address that is configured
}

func newWorkloadNode(t *testing.T, s *workloadAPI) *workloadNode {
	t.Helper()
	l := &workloadNode{T: t, cfg: config.Default(), at: map[string]net.Listener{}}
	c := &l.cfg
	c.TrustDomain = s.td
	c.PublicURL = "https://ad.alpha.test"
	c.Data = t.TempDir()
	c.Identity = config.Identity{WorkloadAPI: s.address("node.sock")}
	c.Gossip.Enabled = false
	c.Limits = c.Limits.Pools()
	c.Callers.JWTSVID, c.Callers.WITSVID = true, true
	c.Listen = config.Listen{API: "10.0.0.1:8400", Admin: "127.0.0.1:8401", Cluster: "10.0.0.1:8402",
		Gossip: "10.0.0.1:8403"}

	c.Members = []config.Member{{ID: spiffeid.RequireFromPath(s.td, "/roster/node/1"), Cluster: c.Listen.Cluster,
		API: "https://10.0.0.1:8400"}}
	for _, addr := range []string{c.Listen.API, c.Listen.Admin, c.Listen.Cluster} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)

		l.at[addr] = ln
		t.Cleanup(func() { _ = ln.Close() })
	}

	return l
}

func (l *workloadNode) dial(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", l.at[addr].Addr().String())
}

func (l *workloadNode) start(ctx context.Context) error {
	n, err := node.Start(l.cfg, node.Env{
		Context: ctx, Logger: slog.New(slog.DiscardHandler),
		Network: node.Network{Listen: func(addr string) (net.Listener, error) { return l.at[addr], nil }, Dial: l.dial},
	})
	if err == nil {
		l.node = n
		l.Cleanup(func() { _ = n.Close() })
	}

	return err
}

func (l *workloadNode) readyz() string {
	resp, err := admin.Get("http://" + l.at[l.cfg.Listen.Admin].Addr().String() + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)

	return string(b)
}

// An agent is a workload that asks the node.
type agent struct {
	source  *trust.Source
	bundles *trust.Bundles
}

// newAgent opens a workload's Workload API, until the test ends.
func newAgent(t *testing.T, s *workloadAPI, name string) *agent {
	t.Helper()
	a := &agent{bundles: trust.NewBundles()}
	w, err := trust.OpenWorkloadAPI(s.address(name), a.bundles, func(spiffeid.ID) bool { return true })
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())

	var wg sync.WaitGroup
	wg.Go(func() { w.Run(ctx, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	bound, cancel2 := context.WithTimeout(t.Context(), time.Minute)
	defer cancel2()
	a.source, err = w.Source(bound)
	s.must(err)

	return a
}

// http returns a client with source's SVID, or an anonymous one if source is nil.
func (l *workloadNode) http(source *trust.Source, bundles *trust.Bundles, again bool) *http.Client {
	allow := func(id spiffeid.ID) error {
		if !trust.IsNode(id, l.cfg.TrustDomain) {
			return errors.New("no node")
		}

		return nil
	}
	tr := &http.Transport{
		DialContext:     func(ctx context.Context, _, addr string) (net.Conn, error) { return l.dial(ctx, addr) },
		TLSClientConfig: trust.ClientTLS(source, bundles, allow, "h2", "http/1.1"), ForceAttemptHTTP2: true,
		DisableKeepAlives: again,
	}
	l.Cleanup(tr.CloseIdleConnections)

	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// proving returns a client that shows a workload identity token and its proof.
func (l *workloadNode) proving(bundles *trust.Bundles, prove func(method, target string) (wit, proof string,
	err error)) *http.Client {
	return &http.Client{Transport: apiclient.ShowWorkload(l.http(nil, bundles, true).Transport,
		func(method, target string) (string, string, error) {
			return prove(method, strings.Replace(target, "https://"+l.cfg.Listen.API, l.cfg.PublicURL, 1))
		})}
}

// prove shows the agent by the WIT-SVIDs that its Workload API gives.
func (a *agent) prove(method, target string) (wit, proof string, err error) {
	return credentials.ProveBySource(context.Background(), a.source, method, target, time.Now())
}

// lookup is one request.
func (l *workloadNode) lookup(c *http.Client, bearer string) error {
	req, err := http.NewRequestWithContext(l.Context(), http.MethodGet, "https://"+l.cfg.Listen.API+"/ad/l", nil)
	if err != nil {
		return err
	}

	if bearer != "" {
		req.Header.Set("Authorization", "Bearer "+bearer)
	}

	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}

	return err
}

// serial is the serial number of the SVID that the node shows to a new connection.
func (l *workloadNode) serial() (string, error) {
	raw, err := l.dial(l.Context(), l.cfg.Listen.API)
	if err != nil {
		return "", err
	}
	defer raw.Close()

	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err := c.HandshakeContext(l.Context()); err != nil {
		return "", err
	}

	return c.ConnectionState().PeerCertificates[0].SerialNumber.String(), nil
}

// A Workload API renews SVIDs and CAs many times a second under load, with updates in
// between that don't hold: no request fails.
//
// Requirement: TRUST-001, TRUST-002
func TestWorkloadAPIRotatesUnderLoad(t *testing.T) {
	s := newWorkloadAPI(t, "alpha.test")
	s.serve("node.sock", "/roster/node/1")
	s.serve("agent.sock", "/agent/ada")
	l := newWorkloadNode(t, s)
	s.must(l.start(t.Context()))
	a := newAgent(t, s, "agent.sock")
	launch.Eventually(l, "the node is ready", func() error { return l.node.Ready() })

	spoils := []func(*workload.X509SVIDResponse){
		func(r *workload.X509SVIDResponse) { r.Svids[0].X509Svid = []byte("garbage") },
		func(r *workload.X509SVIDResponse) { r.Svids[0].Bundle = nil },
		func(r *workload.X509SVIDResponse) {
			other, err := trust.NewCA(s.td, time.Now())
			if err == nil {
				r.Svids[0].Bundle = other.Bundle().X509Authorities()[0].Raw
			}
		},
		func(r *workload.X509SVIDResponse) { r.Svids = nil },
	}
	// STORY_LONG asks for 1,000 requests a second over a minute.
	rotations := long(60, 12)
	workers := long(330, 6)
	most := int64(long(1_000_000, 20_000))
	each := time.Duration(long(300, 6)) * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())

	var (
		requests, failures atomic.Int64
		wg                 sync.WaitGroup
	)
	for i := range workers {
		c := l.http(a.source, a.bundles, i%long(20, 2) == 0)
		wg.Go(func() {
			pace := time.NewTicker(each) // a load that others on the machine survive
			defer pace.Stop()

			for ctx.Err() == nil && requests.Load() < most {
				requests.Add(1)

				if err := l.lookup(c, ""); err != nil && failures.Add(1) < 5 {
					t.Errorf("a request failed: %v", err)
				}

				<-pace.C
			}
		})
	}

	began, seen := time.Now(), map[string]bool{}
	for i := range rotations {
		before := a.source.Changed()
		s.rotate()

		select {
		case <-before:
		case <-time.After(time.Minute):
			t.Fatal("the workload gets no new SVID")
		}

		launch.Eventually(l, "the node shows a new SVID", func() error {
			serial, err := l.serial()
			if err != nil || seen[serial] {
				return fmt.Errorf("%s: %w", serial, err)
			}

			seen[serial] = true

			return nil
		})
		s.change(func() { s.spoil = spoils[i%len(spoils)] })
		// the load goes on over it; nothing is concluded from the time
		time.Sleep(time.Duration(long(800, 100)) * time.Millisecond)
		s.mu.Lock()
		s.spoil = nil
		s.mu.Unlock()
	}

	cancel()
	wg.Wait()

	if failures.Load() > 0 || requests.Load() < int64(rotations) {
		t.Errorf("%d of %d requests failed", failures.Load(), requests.Load())
	}

	t.Logf("%d requests, %.0f a second, %d failed, over %d rotations", requests.Load(),
		float64(requests.Load())/time.Since(began).Seconds(), failures.Load(), rotations)
}

// A node whose Workload API is away waits and says so; it goes on with the last good
// SVID while that is away later, and says when that has ended.
//
// Requirement: TRUST-002
func TestWorkloadAPIAway(t *testing.T) {
	s := newWorkloadAPI(t, "alpha.test")
	l := newWorkloadNode(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error, 1)
	go func() { waiting <- l.start(ctx) }()
	launch.Eventually(l, "readiness names the pending step", func() error {
		if got := l.readyz(); !strings.Contains(got, "waiting for an SVID: the Workload API at unix://") ||
			!strings.Contains(got, "node.sock") {
			return errors.New(got)
		}

		return nil
	})
	cancel()

	if err := <-waiting; err == nil || !strings.Contains(err.Error(), "identity: the Workload API at") {
		t.Fatalf("a start that was given up: %v", err)
	}

	l = newWorkloadNode(t, s)
	go func() { waiting <- l.start(t.Context()) }()
	launch.Eventually(l, "it waits", func() error {
		if got := l.readyz(); !strings.Contains(got, "waiting") {
			return errors.New(got)
		}

		return nil
	})
	k := s.serve("node.sock", "/roster/node/1")
	s.serve("agent.sock", "/agent/ada")

	must(t, <-waiting)

	a := newAgent(t, s, "agent.sock")
	launch.Eventually(l, "the node is ready", func() error { return l.node.Ready() })
	c := l.http(a.source, a.bundles, true)
	s.must(l.lookup(c, ""))

	k.close()
	old, err := l.serial()
	s.must(err)
	s.must(l.lookup(c, ""))
	s.must(l.node.Ready())
	s.change(func() { s.ttl = 5 * time.Second })
	k = s.serve("node.sock", "/roster/node/1")
	launch.Eventually(l, "it gets a new SVID from the Workload API that came back", func() error {
		if now, err := l.serial(); err != nil || now == old {
			return fmt.Errorf("%s: %w", now, err)
		}

		return nil
	})
	k.close()
	launch.Eventually(l, "readiness says that the SVID has ended", func() error {
		if got := l.readyz(); !strings.Contains(got, "identity: SVID expired at") ||
			!strings.Contains(got, "the Workload API at") {
			return errors.New(got)
		}

		return nil
	})
}

// Bundles of federated domains come and go with the Workload API, and with them the keys
// of its JWT-SVIDs, which a node's own source gives for an audience, and of its WIT-SVIDs.
//
// Requirement: TRUST-001, TRUST-005, AI-017
func TestWorkloadAPIGivesBundlesAndTokens(t *testing.T) {
	s, other := newWorkloadAPI(t, "alpha.test"), newWorkloadAPI(t, "beta.test")
	s.federated = map[string][]byte{"spiffe://beta.test": other.bundle()}
	s.serve("node.sock", "/roster/node/1")
	socket := s.serve("agent.sock", "/agent/ada")
	other.serve("agent.sock", "/agent/bob")
	l := newWorkloadNode(t, s)
	address := "https://" + l.at[l.cfg.Listen.API].Addr().String()
	l.cfg.Callers.Addresses = []string{address}
	s.must(l.start(t.Context()))
	ada, bob := newAgent(t, s, "agent.sock"), newAgent(t, other, "agent.sock")
	launch.Eventually(l, "the node is ready", func() error { return l.node.Ready() })
	s.must(l.lookup(l.http(ada.source, ada.bundles, true), ""))
	federated := l.http(bob.source, ada.bundles, true)
	s.must(l.lookup(federated, ""))

	token, until, err := ada.source.JWTSVID(t.Context(), l.cfg.PublicURL)
	s.must(err)

	if !until.After(time.Now()) {
		t.Errorf("the JWT-SVID is good until %s", until)
	}

	nobody := l.http(nil, ada.bundles, true)
	launch.Eventually(l, "a JWT-SVID by the bundle's key is taken", func() error { return l.lookup(nobody, token) })

	if token, _, err = ada.source.JWTSVID(t.Context(), "https://elsewhere.test"); err != nil {
		t.Fatal(err)
	}

	if err := l.lookup(nobody, token); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a JWT-SVID for another: %v", err)
	}

	if _, _, err := trust.NewSource(bob.source.SVID()).JWTSVID(t.Context(), "x"); !errors.Is(err, trust.ErrNoJWTSVID) {
		t.Errorf("a source of files: %v", err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	s.must(err)
	dir := t.TempDir()
	s.must(os.WriteFile(dir+"/wit", []byte(s.wit("/agent/wit", key)), 0o600))
	s.must(os.WriteFile(dir+"/key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	prover, err := credentials.OpenWorkload(dir+"/wit", dir+"/key")
	s.must(err)
	shown := l.proving(ada.bundles, func(method, target string) (string, string, error) {
		return prover.Prove(method, target, time.Now())
	})
	launch.Eventually(l, "a WIT-SVID by the bundle's key is taken with its proof", func() error {
		return l.lookup(shown, "")
	})
	given := l.proving(ada.bundles, ada.prove)
	s.must(l.lookup(given, ""))
	s.must(l.lookup(given, ""))

	if !testing.Short() {
		path, err := program()
		s.must(err)

		cmd := exec.CommandContext(t.Context(), path, "--wit=workload-api", "--workload-api="+s.address("agent.sock"),
			"--address="+address, "lookup", "-o", "json")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte(`"agents"`)) {
			t.Errorf("the program by a WIT-SVID: %v: %s", err, out)
		}
	}

	if _, _, err := credentials.ProveBySource(
		t.Context(), trust.NewSource(bob.source.SVID()), "GET", "https://x", time.Now()); !errors.Is(err,
		trust.ErrNoWITSVID) {
		t.Errorf("a source of files: %v", err)
	}

	s.change(func() { s.federated = nil })
	launch.Eventually(l, "beta.test is no longer federated", func() error {
		if err := l.lookup(federated, ""); err == nil {
			return errors.New("its workload is still believed")
		}

		return nil
	})

	socket.close()
	_, _, err = credentials.ProveBySource(t.Context(), ada.source, "GET", "https://x", time.Now().Add(45*time.Minute))
	s.must(err) // by the WIT-SVID that is good for an hour

	if _, _, err := credentials.ProveBySource(t.Context(), ada.source, "GET", "https://x",
		time.Now().Add(2*time.Hour)); err == nil {
		t.Error("a WIT-SVID is shown that has ended")
	}
}
