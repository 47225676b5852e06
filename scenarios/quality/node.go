package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/discovery"
)

// A connection says which node is scored, and who asks it. Its files are those of
// the command line tool.
type connection struct {
	node, ca, cert, key, token string
	remote                     bool // the node may be elsewhere than on this machine
}

// Bounds of the work at a node.
const (
	writers     = 8
	lifetime    = time.Hour // after a killed run its records expire
	answerTime  = 30 * time.Second
	removalTime = 10 * time.Minute
	maxTries    = 20 // of one request that comes too often
)

// client returns a client of the node.
func (c *connection) client() (*apiclient.Client, error) {
	target, err := url.Parse(c.node)
	if err != nil || target.Scheme != "https" || target.Host == "" {
		return nil, fmt.Errorf("the node %q is not https://HOST:PORT", c.node)
	}

	if ip := net.ParseIP(target.Hostname()); !c.remote && target.Hostname() != "localhost" &&
		(ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("%s is not on this machine; the scored records would be registered there for a while: "+
			"-remote says that you mean it", target.Host)
	}

	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, err
		}

		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s has no certificate in PEM", c.ca)
		}
	}

	if c.cert != "" || c.key != "" {
		pair, err := tls.LoadX509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, err
		}

		config.Certificates = []tls.Certificate{pair}
	}

	var way http.RoundTripper = &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	if c.token != "" {
		way = apiclient.ShowBearer(way, func() (string, error) {
			text, err := os.ReadFile(c.token)
			return strings.TrimSpace(string(text)), err
		})
	}

	return apiclient.NewDirect(c.node, &http.Client{Transport: way, Timeout: answerTime}), nil
}

// A loadedSet is a set's records at a node, all with one owner. Other registrations there
// are ranked beside them, as for every caller.
type loadedSet struct {
	ctx    context.Context
	client *apiclient.Client
	domain string            // the node's
	ids    map[string]string // of records, by the names that they are registered by
	failed error             // why a query had no answer; the first reason
}

// scoreAt scores a running node: registers the set's records there, asks its
// queries, and removes the records again.
func (s *set) scoreAt(ctx context.Context, client *apiclient.Client) (figures figures, err error) {
	k := &loadedSet{ctx: ctx, client: client, ids: map[string]string{}}

	names := make([]string, len(s.records))
	for i := range s.records {
		names[i] = fmt.Sprintf("quality-%s-%d", s.name, i)
		k.ids[names[i]] = s.records[i].ID
	}

	defer func() { err = errors.Join(err, k.remove(names)) }()

	first, err := k.register(ctx, names[0], &s.records[0])
	if err != nil {
		return figures, err
	}

	k.domain, _, _ = strings.Cut(first.Index(), "=")

	err = each(ctx, len(names)-1, func(ctx context.Context, i int) error {
		_, err := k.register(ctx, names[i+1], &s.records[i+1])
		return err
	})
	if err != nil {
		return figures, err
	}

	figures = s.score(k)

	return figures, k.failed
}

// register publishes a record as metadata of the discovery profile, which a
// description and a binding belong to.
func (k *loadedSet) register(ctx context.Context, name string, r *record) (*apiclient.Registered, error) {
	type example struct {
		Text string `json:"text"`
	}

	type binding struct {
		Protocol string `json:"protocol"`
		Endpoint string `json:"endpoint"`
	}

	examples := []example{}
	for _, text := range r.Examples {
		examples = append(examples, example{text})
	}

	document, err := json.Marshal(map[string]any{
		"id": name, "name": r.Name, "description": cmp.Or(r.Description, "-"), "tags": append([]string{}, r.Tags...),
		"examples": examples, "bindings": []binding{{"https", "https://agent.example/"}},
	})
	if err != nil {
		return nil, err
	}

	var out *apiclient.Registered

	err = patiently(ctx, func() (err error) {
		out, err = k.client.Register(ctx, name, document,
			apiclient.RegisterOptions{Kind: string(directory.KindProfile), Lifetime: lifetime})

		return err
	})
	if err != nil {
		return nil, fmt.Errorf("registering %s: %w", name, err)
	}

	return out, nil
}

// remove removes the registered records, also after an interruption.
func (k *loadedSet) remove(names []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), removalTime)
	defer cancel()

	var once sync.Once

	var first error // the others are removed all the same
	err := each(ctx, len(names), func(ctx context.Context, i int) error {
		err := patiently(ctx, func() error {
			_, err := k.client.Deregister(ctx, names[i])
			return err
		})
		if err != nil && !errors.Is(err, apiclient.ErrNotFound) { // which was never registered
			once.Do(func() { first = fmt.Errorf("removing %s: %w", names[i], err) })
		}

		return nil
	})

	return errors.Join(first, err)
}

// rank asks for agents of the node's own domain alone, which lifts the bound on one
// owner's share of an answer: here one owner has them all.
func (k *loadedSet) rank(text string, limit int) []string {
	if k.failed != nil {
		return nil
	}

	var found *apiclient.Discovery

	k.failed = patiently(k.ctx, func() (err error) {
		found, err = k.client.Discover(k.ctx, apiclient.DiscoverOptions{Query: text, Limit: limit,
			Origins: []string{k.domain}, Detail: discovery.DetailMinimal})

		return err
	})
	if k.failed != nil {
		return nil
	}

	var ids []string
	for i := range found.Candidates {
		ids = append(ids, k.ids[found.Candidates[i].ID])
	}

	return ids
}

// patiently repeats a request that the node refuses by its rate limit, after the time
// that the node names.
func patiently(ctx context.Context, ask func() error) error {
	for tries := 1; ; tries++ {
		err := ask()

		var refused *apiclient.Error
		if !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests || tries == maxTries {
			return err
		}

		select {
		case <-time.After(max(time.Second, refused.RetryAfter())):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// each calls a function for each of n, several at once, until one fails.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	var all sync.WaitGroup
	for w := range min(writers, n) {
		all.Go(func() {
			for i := w; i < n && ctx.Err() == nil; i += writers {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}

	all.Wait()

	return context.Cause(ctx)
}
