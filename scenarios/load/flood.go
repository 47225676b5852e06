package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	limit "golang.org/x/time/rate"

	apiclient "github.com/roster-mesh/roster/api/client"
	"github.com/roster-mesh/roster/directory"
	"github.com/roster-mesh/roster/directory/signed"
	"github.com/roster-mesh/roster/trust"
)

// The flood of MESH-026.
const (
	bogusEach  = 50      // digests of one message, which then is just under gossip's bound
	bogusRate  = 100_000 // digests a second that are offered
	floodNodes = 63      // of the hostile domain, whose own node is the last that a peer may have
	floodFor   = 60 * time.Second
	askedEach  = 5 * time.Millisecond // between lookups, so that the machine isn't full of them
)

// flood measures the cost of a hostile peer's bogus pages to a node and its readers
// (MESH-026). The peer is a whole domain of nodes with valid certificates. Its messages
// claim another origin and one of that origin's keys, and their signatures are wrong.
func flood(ctx context.Context, bench *bench) error {
	mesh, err := bench.layOutMesh(ctx, filepath.Join(bench.dir, "flood"), 3, 1)
	if err != nil {
		return err
	}

	victim := mesh[0]
	honest := mesh[1]
	hostile := mesh[2]
	defer victim.close()
	defer honest.close()

	for _, d := range []*domain{victim, honest} {
		if err := d.start(ctx); err != nil {
			return err
		}
	}

	if _, err := victim.fill(ctx, "f", 0, min(bench.size, 20_000), 86400); err != nil {
		return err
	}

	if err := honest.crosses(ctx, victim, "first"); err != nil {
		return err
	}

	long := max(bench.turn, 10*time.Second)
	if bench.full {
		long = floodFor
	}

	quiet, err := victim.watched(ctx, honest, long)
	if err != nil {
		return err
	}

	flooding, err := openFlood(ctx, bench, victim, honest, hostile)
	if err != nil {
		return err
	}

	loud, err := victim.watched(ctx, honest, long)
	seconds := flooding.end()

	if err != nil {
		return err
	}

	offered := float64(flooding.sent.Load()) * bogusEach / seconds.Seconds()
	note := fmt.Sprintf("%.0f bogus digests a second reached it for %s, of %d that were offered", offered,
		seconds.Round(time.Second), bogusRate)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	bench.report.add(row{Section: "flood", What: "lookups' p99 under bogus pages, times that without",
		Value: ms(loud.reads.at(0.99)) / ms(quiet.reads.at(0.99)), Unit: "×", Bar: atMost(2),
		Note: fmt.Sprintf("%.2f ms, and %.2f without; %s", ms(loud.reads.at(0.99)), ms(quiet.reads.at(0.99)), note)})
	bench.report.add(row{Section: "flood", What: "memory growth under a flood",
		Value: float64(loud.highest-quiet.highest) / (1 << 20), Unit: "MiB", Bar: atMost(64)})
	bench.report.add(row{Section: "flood", What: "another origin's change is seen, median",
		Value: ms(loud.lags.at(0.5)),
		Unit:  "ms", Bar: atMost(1000),
		Note: fmt.Sprintf("%.0f ms at most; without the flood %.0f and %.0f", ms(loud.lags.at(1)),
			ms(quiet.lags.at(0.5)), ms(quiet.lags.at(1)))})

	return nil
}

// A watched node is one that was read while changes of another origin came in.
type watched struct {
	reads, lags *sample
	highest     int64 // resident bytes
}

func (d *domain) watched(ctx context.Context, origin *domain, long time.Duration) (w watched, err error) {
	stop := make(chan struct{})

	var reading sync.WaitGroup
	reading.Go(func() {
		w.reads = &sample{}
		for next := time.NewTicker(askedEach); ; {
			select {
			case <-stop:
				next.Stop()
				return
			case <-next.C:
			}

			sub := measure(ctx, 1, time.Minute, 1, func(ctx context.Context, _, _ int) error {
				return d.get(ctx, 0, twoFilters)
			})

			w.reads.done += sub.done
			w.reads.failed += sub.failed

			w.reads.took = append(w.reads.took, sub.took...)
			if sub.reason != nil {
				w.reads.reason = sub.reason
			}
		}
	})
	run := time.Now().UnixNano()
	w.lags = measure(ctx, 1, long, 0, func(ctx context.Context, _, i int) error {
		return origin.crosses(ctx, d, fmt.Sprint("lag-", run, "-", i))
	})
	close(stop)
	reading.Wait()
	slices.Sort(w.reads.took)
	_, w.highest, err = d.nodes[0].resident()

	return w, errors.Join(err, w.lags.check(), w.reads.check())
}

// crosses registers an agent and waits until a node of the other domain shows it.
func (d *domain) crosses(ctx context.Context, to *domain, agent string) error {
	if _, err := d.register(ctx, 0, agent, 600, document(1)); err != nil {
		return err
	}

	reader := apiclient.NewDirect(to.Nodes[0].API, to.client)
	for {
		page, err := reader.Lookup(ctx, apiclient.LookupOptions{Agent: agent, Origin: d.TrustDomain})
		if err != nil || len(page.Agents) == 1 {
			return err
		}

		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A flooding is a hostile domain's traffic.
type flooding struct {
	sent   atomic.Int64 // messages
	began  time.Time
	cancel context.CancelFunc
	nodes  sync.WaitGroup
}

func (f *flooding) end() time.Duration {
	f.cancel()
	f.nodes.Wait()

	return time.Since(f.began)
}

// openFlood gives the hostile domain's nodes their certificates and lets them begin.
func openFlood(ctx context.Context, bench *bench, victim, honest, hostile *domain) (*flooding, error) {
	authority, err1 := os.ReadFile(hostile.Bundle)
	secret, err2 := os.ReadFile(hostile.CAKey)

	ca, err := trust.LoadCA(authority, secret)
	if err = errors.Join(err1, err2, err); err != nil {
		return nil, err
	}

	for _, d := range []*domain{victim, honest} {
		if err := hostile.bundles.LoadFile(spiffeid.RequireTrustDomainFromString(d.TrustDomain), d.Bundle); err != nil {
			return nil, err
		}
	}

	kid, err := hostile.kidOf(ctx, honest)
	if err != nil {
		return nil, err
	}

	frame := bogus(honest.TrustDomain, kid)
	ctx, cancel := context.WithCancel(ctx)
	f := &flooding{cancel: cancel, began: time.Now()}

	pace := limit.NewLimiter(bogusRate/bogusEach, 100)
	for i := range floodNodes {
		svid, err := ca.Issue(fmt.Sprint("/roster/node/flood-", i), time.Hour, time.Now())

		cert := filepath.Join(bench.dir, fmt.Sprint("flood-", i, ".pem"))

		key := filepath.Join(bench.dir, fmt.Sprint("flood-", i, ".key"))
		if err == nil {
			err = trust.WriteSVID(svid, cert, key)
		}

		var source *trust.Source
		if err == nil {
			source, err = trust.OpenFiles(cert, key)
		}

		var conn io.ReadWriteCloser
		if err == nil {
			conn, err = greet(ctx, victim.Nodes[0].Gossip,
				trust.ClientTLS(source, hostile.bundles, isServer, "roster-gossip/1"))
		}

		if err != nil {
			f.end()
			return nil, fmt.Errorf("a hostile node: %w", err)
		}

		f.nodes.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection

			for pace.Wait(ctx) == nil {
				if _, err := conn.Write(frame); err != nil {
					return
				}

				f.sent.Add(1)
			}
		})
	}

	return f, nil
}

// greet opens a connection for packets, as a node of a peer does.
func greet(ctx context.Context, address string, c *tls.Config) (io.ReadWriteCloser, error) {
	conn, err := (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}

	const own = "127.0.0.1:9"
	if _, err := conn.Write(append([]byte{'p', byte(len(own))}, own...)); err != nil {
		return nil, err
	}

	theirs := bufio.NewReader(conn)

	n, err := theirs.ReadByte()
	if err == nil {
		_, err = theirs.Discard(int(n))
	}

	return conn, err
}

// kidOf asks a peer which key signs for it.
func (d *domain) kidOf(ctx context.Context, peer *domain) (string, error) {
	cert, key := d.nodeFiles(0)

	source, err := trust.OpenFiles(cert, key)
	if err != nil {
		return "", err
	}

	as := *d
	as.client = d.clientOf(source)
	defer as.client.CloseIdleConnections()
	as.Nodes = peer.Nodes

	text, err := as.body(ctx, 0, "/federation/v1/keys?origin="+peer.TrustDomain)
	if err != nil {
		return "", err
	}

	head, _, _ := strings.Cut(string(text), ".")
	raw, err := base64.RawURLEncoding.DecodeString(head)

	var h struct{ Kid string }

	return h.Kid, errors.Join(err, json.Unmarshal(raw, &h))
}

// bogus returns a frame with a gossiped page whose signature is wrong.
func bogus(origin, kid string) []byte {
	page := &signed.Page{Issuer: spiffeid.RequireTrustDomainFromString(origin),
		Epoch:    uint64(time.Now().Unix()),
		Audience: directory.Mesh,
		From:     1, To: 1 + bogusEach, At: 1 + bogusEach, IssuedAt: time.Now().Unix()}
	for i := range bogusEach {
		var of [10]byte
		_, _ = rand.Read(of[:]) // never fails
		hash := directory.HashOf(of[:])
		page.Digests = append(page.Digests, signed.Digest{RID: directory.NewRID(time.Now().UnixMilli(), of),
			Revision: uint64(2 + i), Op: signed.OpPut,
			H: hash, M: hash, Deadline: time.Now().Unix() + 600, Lifetime: 600})
	}

	header := fmt.Sprintf(`{"alg":"EdDSA","typ":%q,"kid":%q}`, signed.TypePage, kid)
	jws := directory.B64.EncodeToString([]byte(header)) + "." + directory.B64.EncodeToString(page.Payload()) + "." +
		directory.B64.EncodeToString(make([]byte, 64))

	const userMessage = 8 // of memberlist
	body := append([]byte{userMessage, 'p'}, jws...)

	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}
