package mesh

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory/operatorproof"
	"github.com/roster-mesh/roster/trust"
)

// A Thief has a copy of a domain's certificate authority, on a host of its own.
type Thief struct {
	m    *Mesh
	of   *Domain
	ca   *trust.CA
	host string
}

// StealCA copies the authority that issues a domain's SVIDs now.
func StealCA(m *Mesh, domain string) *Thief {
	m.T.Helper()
	m.Note("the CA of %s is stolen", domain)

	return &Thief{m: m, of: m.Domain(domain), ca: m.Domain(domain).issuer(), host: "10.66.0.1"}
}

// Authority makes an authority of the domain that the thief alone knows.
func (t *Thief) Authority() *Thief {
	t.m.T.Helper()
	ca, err := trust.NewCA(t.of.td, time.Now())
	t.m.must(err)

	return &Thief{m: t.m, of: t.of, ca: ca, host: t.host}
}

// Bundle returns a bundle of the thief's authority for a bundle endpoint, with a sequence number.
func (t *Thief) Bundle(number uint64) []byte {
	t.m.T.Helper()
	bundle := t.ca.Bundle()
	bundle.SetSequenceNumber(number)
	text, err := bundle.Marshal()
	t.m.must(err)

	return text
}

// source returns an SVID that the thief issued.
func (t *Thief) source(path string) *trust.Source {
	svid, err := t.ca.Issue(path, svidTTL, time.Now())
	t.m.must(err)

	return trust.NewSource(svid)
}

// HTTP returns a client of nodes, with connections of its own, that presents an SVID of the thief.
func (t *Thief) HTTP(path string) *http.Client {
	t.m.T.Helper()

	anyone := func(spiffeid.ID) error { return nil }
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return t.m.Net.Dial(ctx, t.host, address)
		},
		TLSClientConfig:     trust.ClientTLS(t.source(path), t.m.bundles, anyone, "h2", "http/1.1"),
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: requestTimeout,
	}
	t.m.T.Cleanup(transport.CloseIdleConnections)

	return &http.Client{Transport: transport, Timeout: requestTimeout}
}

// Reads returns nil if a node answers a lookup of an agent of the thief.
func (t *Thief) Reads(n *Node) error { return t.get(t.HTTP("/agent/thief"), n.URL()+"/ad/l") }

// Federates returns nil if a node answers a node of the thief.
func (t *Thief) Federates(n *Node) error {
	return t.get(t.HTTP(trust.NodePath+"1"), n.URL()+"/federation/v1/heads?origin="+n.Domain.Name)
}

// Commands returns nil if a node obeys an operator of the thief.
func (t *Thief) Commands(n *Node) error {
	ctx, cancel := request()
	defer cancel()

	client := t.HTTP(operator)
	defer client.CloseIdleConnections()

	return apiclient.NewDirect(n.URL(), client).Operator().ChangePeering(ctx, t.peerOf(n).Name, apiclient.PeerExport)
}

// Proves returns nil if a node obeys a command that comes over an honest operator's connection with
// a proof of the thief's operator.
func (t *Thief) Proves(n *Node) error {
	ctx, cancel := request()
	defer cancel()

	body := []byte(`{"domain":"` + t.peerOf(n).Name + `","verb":"export"}`)
	url := n.URL() + "/v1/operator/peers/change"
	proof, err := operatorproof.Make(t.source(operator).Certificate(), operatorproof.Request{
		Domain: n.Domain.Name, Method: http.MethodPost, URL: url, Body: sha256.Sum256(body),
	}, time.Now())
	t.m.must(err)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	t.m.must(err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(operatorproof.Header, proof)

	return answered(n.HTTP(operator).Do(req))
}

// peerOf returns another domain.
func (t *Thief) peerOf(n *Node) *Domain {
	if t.m.Domains[0] != n.Domain {
		return t.m.Domains[0]
	}

	return t.m.Domains[1]
}

func (t *Thief) get(client *http.Client, url string) error {
	defer client.CloseIdleConnections()

	return answered(client.Get(url))
}

// answered returns nil for an answer of success.
func answered(res *http.Response, err error) error {
	if err != nil {
		return err
	}

	defer res.Body.Close()

	if res.StatusCode >= http.StatusMultipleChoices {
		return errors.New(res.Status)
	}

	return nil
}

// A Stream is a watch that an agent of the thief holds open at a node.
type Stream struct{ ended chan struct{} }

// Watch opens a watch at a node.
func (t *Thief) Watch(n *Node) *Stream {
	t.m.T.Helper()
	client := t.HTTP("/agent/thief")
	client.Timeout = 0

	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+"/ad/watch", nil)
	t.m.must(err)
	res, err := client.Do(req)
	t.m.must(err)

	if res.StatusCode != http.StatusOK {
		t.m.T.Fatalf("a watch at %s: %s", n.Name, res.Status)
	}

	s := &Stream{ended: make(chan struct{})}

	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(s.ended)
		defer res.Body.Close()

		_, _ = io.Copy(io.Discard, res.Body)
	})
	t.m.T.Cleanup(func() {
		cancel()
		reading.Wait()
	})

	return s
}

// Ended returns nil once the node has ended the watch.
func (s *Stream) Ended() error {
	select {
	case <-s.ended:
		return nil
	default:
		return errors.New("the watch is open")
	}
}
