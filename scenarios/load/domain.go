package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/node/dev"
	"github.com/roster-mesh/roster/scenarios/launch"
	"github.com/roster-mesh/roster/trust"
)

// A domain is one Roster domain of real processes on loopback: certificates and
// configurations as `roster dev` lays them out, and each node a `roster serve`.
type domain struct {
	dev.Domain
	binary  string
	dir     string
	nodes   []*process // nil if killed
	bundles *trust.Bundles
	client  *http.Client // speaks HTTP/1.1 as agent/ada, one connection for each request under way
}

// maxClients bounds how many connections to one node are kept.
const maxClients = 256

// layOut makes a domain of so many nodes in dir, or takes the one that is there.
// No process of it runs afterwards.
func (b *bench) layOut(ctx context.Context, dir string, nodes int) (*domain, error) {
	mesh, err := b.layOutMesh(ctx, dir, 1, nodes)
	if err != nil {
		return nil, err
	}

	return mesh[0], nil
}

// layOutMesh makes domains that peer, as layOut makes one.
func (b *bench) layOutMesh(ctx context.Context, dir string, domains, nodes int) ([]*domain, error) {
	mesh, err := dev.ReadMesh(dir)
	if err != nil {
		var command *launch.Process

		command, mesh, err = launch.Mesh(ctx, b.binary, dir, "--domains", fmt.Sprint(domains),
			"--nodes", fmt.Sprint(nodes))
		if err != nil {
			return nil, err
		}

		_ = command.Stop() // its nodes begin anew, each as a process of this program
	}

	if len(mesh.Domains) != domains || len(mesh.Domains[0].Nodes) != nodes {
		return nil, fmt.Errorf("%s holds another mesh than %d domains of %d", dir, domains, nodes)
	}

	var all []*domain
	for _, laid := range mesh.Domains {
		d := &domain{Domain: laid, binary: b.binary, dir: dir, nodes: make([]*process, nodes),
			bundles: trust.NewBundles()}

		td, err := spiffeid.TrustDomainFromString(d.TrustDomain)
		if err != nil {
			return nil, err
		}

		if err := d.bundles.LoadFile(td, d.Bundle); err != nil {
			return nil, err
		}

		if d.client, err = d.clientAs("/agent/ada"); err != nil {
			return nil, err
		}

		all = append(all, d)
	}

	return all, nil
}

// clientAs returns a client with the identity of that path.
func (d *domain) clientAs(path string) (*http.Client, error) {
	cert, key, err := d.files(path)
	if err != nil {
		return nil, err
	}

	source, err := trust.OpenFiles(cert, key)
	if err != nil {
		return nil, err
	}

	return &http.Client{Transport: &http.Transport{
		TLSClientConfig:     trust.ClientTLS(source, d.bundles, isServer, "http/1.1"),
		MaxIdleConnsPerHost: maxClients, DisableCompression: true,
	}}, nil
}

// files returns the files of the certificate and key of the identity of that path.
func (d *domain) files(path string) (cert, key string, err error) {
	for _, id := range d.Identities {
		if strings.HasSuffix(id.SPIFFEID, path) {
			return id.Cert, id.Key, nil
		}
	}

	return "", "", fmt.Errorf("the domain has no identity %s", path)
}

// isServer accepts nodes and the bare handler.
func isServer(id spiffeid.ID) error {
	if !trust.IsNode(id, id.TrustDomain()) && id.Path() != barePath {
		return fmt.Errorf("%s is neither a node nor the bare handler", id)
	}

	return nil
}

// start starts all nodes and waits until each is ready.
func (d *domain) start(ctx context.Context) error {
	for i := range d.nodes {
		if err := d.serve(i); err != nil {
			return err
		}
	}

	for i := range d.nodes {
		if err := d.ready(ctx, i); err != nil {
			return err
		}
	}

	return nil
}

// serve starts a node.
func (d *domain) serve(i int) (err error) {
	n := d.Nodes[i]
	d.nodes[i], err = begin(n.ID, filepath.Dir(n.Config)+".log", d.binary, "serve", "--config", n.Config)

	return err
}

// ready waits until a node says that it is fit to serve.
func (d *domain) ready(ctx context.Context, i int) error {
	return until(ctx, d.Nodes[i].ID+" is ready", d.nodes[i], func() error {
		_, err := ask(ctx, d.Nodes[i].Admin+"/readyz")
		return err
	})
}

func (d *domain) close() {
	if d == nil {
		return
	}

	for _, p := range d.nodes {
		p.end()
	}

	d.client.CloseIdleConnections()
}

// leader returns which node leads, as all nodes that run and answer know it.
func (d *domain) leader(ctx context.Context) (int, error) {
	ops, err := d.clientAs("/ops/operator")
	if err != nil {
		return 0, err
	}
	defer ops.CloseIdleConnections()

	leader := -1
	for i, p := range d.nodes {
		if p == nil {
			continue
		}

		status, _, err := apiclient.NewDirect(d.Nodes[i].API, ops).Operator().Raft(ctx)
		if err != nil {
			continue
		}

		known := slices.IndexFunc(d.Nodes, func(n dev.Node) bool { return n.ID == status.Leader })
		if known < 0 || leader >= 0 && known != leader {
			return 0, errors.New("not all nodes know the same leader")
		}

		leader = known
	}

	if leader < 0 {
		return 0, errors.New("no node answers")
	}

	return leader, nil
}

// side returns the domain's side of a comparison.
func (d *domain) side(name string, op operation) side {
	return side{name: name, op: op, processes: d.nodes}
}

// register registers a name at a node and returns the registration's path.
func (d *domain) register(ctx context.Context, at int, name string, lifetime int, document []byte) (string, error) {
	resp, err := d.do(ctx, http.MethodPost, fmt.Sprintf("%s/ad/r?agent=%s&lt=%d", d.Nodes[at].API, name, lifetime),
		document)
	if err != nil {
		return "", err
	}

	return resp.Header.Get("Location"), nil
}

// refresh sets the lifetime of the registration at a path.
func (d *domain) refresh(ctx context.Context, at int, path string, lifetime int) error {
	_, err := d.do(ctx, http.MethodPost, fmt.Sprintf("%s%s?lt=%d", d.Nodes[at].API, path, lifetime), nil)
	return err
}

// get reads a path at a node.
func (d *domain) get(ctx context.Context, at int, path string) error {
	_, err := d.do(ctx, http.MethodGet, d.Nodes[at].API+path, nil)
	return err
}

// body is get, and returns the response's body.
func (d *domain) body(ctx context.Context, at int, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.Nodes[at].API+path, nil)
	if err != nil {
		return nil, err
	}

	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &answered{resp.StatusCode, string(data)}
	}

	return data, err
}

// do makes a request and demands that it succeeds.
func (d *domain) do(ctx context.Context, method, url string, body []byte) (*http.Response, error) {
	var sent io.Reader
	if body != nil {
		sent = bytes.NewReader(body)
	}

	req, err := http.NewRequestWithContext(ctx, method, url, sent)
	if err != nil {
		return nil, err
	}

	if body != nil {
		req.Header["Content-Type"] = []string{"application/json"}
	}

	resp, err := d.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	if resp.StatusCode >= 300 {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, &answered{resp.StatusCode, string(why)}
	}

	_, err = io.Copy(io.Discard, resp.Body)

	return resp, err
}

// answered is an answer that is no success.
type answered struct {
	status int
	body   string
}

func (a *answered) Error() string { return fmt.Sprintf("answered %d: %s", a.status, a.body) }

// ask reads an admin listener.
func ask(ctx context.Context, url string) ([]byte, error) { return askBy(ctx, adminClient, url) }

func askBy(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}

	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()

	data, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &answered{resp.StatusCode, string(bytes.TrimSpace(data))}
	}

	return data, err
}

var adminClient = &http.Client{Timeout: 2 * time.Minute}
