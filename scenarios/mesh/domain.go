package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	apioperator "github.com/roster-mesh/roster/api/operator"
	apiwire "github.com/roster-mesh/roster/api/wire"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/trust"
)

// A Domain is one trust domain with its nodes.
type Domain struct {
	Name  string
	Nodes []*Node

	env *environment
	td  spiffeid.TrustDomain

	mu         sync.Mutex // guards the fields below
	ca         *trust.CA
	next       *trust.CA               // while the domain's CA is rotated
	clients    map[string]*http.Client // by node and identity
	transports []*http.Transport       // of clients
}

// newDomain makes domain number i: its CA, its bundle, and its nodes, not yet started.
func newDomain(env *environment, i int) *Domain {
	td := spiffeid.RequireTrustDomainFromString(names[i])
	ca, err := trust.NewCA(td, time.Now())
	env.must(err)
	env.must(env.bundles.SetX509(td, ca.Bundle().X509Authorities()))

	domain := &Domain{Name: td.Name(), env: env, td: td, ca: ca, clients: map[string]*http.Client{}}
	for j := range env.options.Nodes {
		domain.Nodes = append(domain.Nodes, newNode(domain, i+1, j+1))
	}

	return domain
}

// peerWith makes other a peer of d, by its operator's command.
func (d *Domain) peerWith(other *Domain) {
	jwks, err := other.Bundle().Marshal()
	d.env.must(err)

	peering := directory.Peering{Domain: other.td, State: directory.PeeringActive, Bundle: jwks, Mesh: true}
	if d.env.options.Endpoints {
		peering.Endpoint = directory.BundleEndpoint{URL: other.Nodes[0].URL() + apiwire.BundlePath,
			Profile: directory.ProfileSPIFFE}
	}

	for _, n := range other.Nodes {
		peering.Addresses = append(peering.Addresses, n.URL())
		if !d.env.options.NoGossip {
			peering.Gossip = append(peering.Gossip, n.gossip())
		}
	}

	d.env.Eventually(time.Minute, d.Name+" peers with "+other.Name, func() error {
		ctx, cancel := request()
		defer cancel()

		return d.Nodes[0].client(operator).Operator().SetPeering(ctx, apioperator.WirePeering(peering))
	})
}

// Bundle returns the domain's trust bundle.
func (d *Domain) Bundle() *spiffebundle.Bundle { return d.issuer().Bundle() }

// issuer returns the CA that issues the domain's SVIDs.
func (d *Domain) issuer() *trust.CA {
	d.mu.Lock()
	defer d.mu.Unlock()

	return d.ca
}

// living returns the first node that runs.
func (d *Domain) living() *Node {
	d.env.T.Helper()

	for _, n := range d.Nodes {
		if n.Lives() {
			return n
		}
	}

	d.env.T.Fatalf("no node of %s runs", d.Name)

	return nil
}

// write does one write: at each living node in turn until one of them answers, also with
// a refusal.
func (d *Domain) write(do func(context.Context, *apiclient.Client) error) error {
	err := errors.New("no node of " + d.Name + " runs")
	for _, n := range d.Nodes {
		if !n.Lives() {
			continue
		}

		err = n.write(do)

		var refusal *apiclient.Error
		if err == nil || errors.As(err, &refusal) && refusal.Status < 500 {
			return err
		}
	}

	return err
}

// Kill kills all nodes.
func (d *Domain) Kill() {
	for _, n := range d.Nodes {
		if n.Lives() {
			n.Kill()
		}
	}
}

// Leader returns the leader in the view of a majority of the nodes.
func (d *Domain) Leader() *Node {
	d.env.T.Helper()

	var leader *Node
	d.env.Eventually(d.env.options.patience(), d.Name+" has a leader", func() error {
		votes := map[string]int{}
		for _, n := range d.Nodes {
			if !n.Lives() {
				continue
			}

			ctx, cancel := request()
			status, _, err := n.client(operator).Operator().Raft(ctx)
			cancel()

			if err == nil {
				votes[status.Leader]++
			}
		}

		for _, n := range d.Nodes {
			if n.Lives() && votes[n.source.SVID().ID.String()] > len(d.Nodes)/2 {
				leader = n
				return nil
			}
		}

		return fmt.Errorf("votes: %v", votes)
	})

	return leader
}

// httpClient returns the client that speaks to one node as one of the domain's identities,
// or anonymously if path is empty.
func (d *Domain) httpClient(n *Node, path string) *http.Client {
	d.mu.Lock()
	defer d.mu.Unlock()

	if c, ok := d.clients[n.Name+path]; ok {
		return c
	}

	var source *trust.Source
	if path != "" {
		svid, err := d.ca.Issue(path, svidTTL, time.Now())
		d.env.must(err)
		source = trust.NewSource(svid)
	}

	allow := func(id spiffeid.ID) error {
		if !trust.IsNode(id, d.td) {
			return fmt.Errorf("%s is not a node of %s", id, d.Name)
		}

		return nil
	}

	// The clients' host is beside the nodes: no cut and no delay lies between.
	host := d.clientHost()
	d.env.Net.SetLink(host, n.host, Link{})
	d.env.Net.SetLink(n.host, host, Link{})
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return d.env.Net.Dial(ctx, host, addr)
		},
		TLSClientConfig:     trust.ClientTLS(source, d.env.bundles, allow, "h2", "http/1.1"),
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: requestTimeout,
		IdleConnTimeout:     time.Minute,
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	d.transports = append(d.transports, transport)
	d.clients[n.Name+path] = client

	return client
}

// clientHost is the host that the domain's clients are on.
func (d *Domain) clientHost() string { return "client." + d.Name }

// closeClients ends the idle connections of the domain's clients.
func (d *Domain) closeClients() {
	d.mu.Lock()
	defer d.mu.Unlock()

	for _, t := range d.transports {
		t.CloseIdleConnections()
	}
}
