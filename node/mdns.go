package node

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/mdns"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Multicast DNS by hashicorp/mdns. What has to be known of it: without a logger it
// writes to the process's; its client asks once, hands out entries that it goes on
// changing, any service's among them, and waits for its whole timeout whatever
// happens to its context; one family without a route fails the other; and on a
// host where something else listens for multicast DNS on further interfaces, its
// responder hears the questions from there too and answers with the addresses
// that it was given.

// An mdnsResponder is a responder.
type mdnsResponder struct{ log *slog.Logger }

func (r mdnsResponder) respond(s service, at net.Interface, addresses []net.IP) (func() error, error) {
	zone, err := mdns.NewMDNSService(s.instance, adService, "local.", s.instance+".local.", s.port, addresses, s.txt)
	if err != nil {
		return nil, err
	}
	server, err := mdns.NewServer(&mdns.Config{Zone: zone, Iface: &at, Logger: quiet(r.log)})
	if err != nil {
		return nil, err
	}
	return server.Shutdown, nil
}

// quiet is for a library that calls everything an error which others send.
func quiet(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// A Found is a directory that says that it is on the local network. Nothing of it
// is authenticated.
type Found struct {
	Domain   spiffeid.TrustDomain
	URL      string // what the domain calls its directory; of Host where it doesn't say
	Host     string // HOST:PORT of the node that answered
	Path     string // of the well-known document
	Instance string
}

// A Browser looks for directories on the local network by DNS-SD. The zero value
// asks on all interfaces that are up and speak multicast.
type Browser struct {
	Interfaces []string // names
	Logger     *slog.Logger
}

// Bounds on what one look takes in.
const (
	maxFound  = 1000
	askAgain  = time.Second // questions and answers get lost
	perAnswer = 256         // of one question
)

// Browse asks until ctx ends, and returns what has answered, by domain. It fails
// where it could not ask anywhere.
func (b Browser) Browse(ctx context.Context) ([]Found, error) {
	ifaces, err := interfaces(b.Interfaces)
	if err != nil {
		return nil, err
	}
	logger := b.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	var mu sync.Mutex // guards what follows
	found, asked, errs := map[string]Found{}, false, []error(nil)
	var all sync.WaitGroup
	for _, at := range ifaces {
		for _, v6 := range []bool{false, true} {
			all.Go(func() {
				for ctx.Err() == nil {
					entries, err := ask(ctx, at, v6, quiet(logger))
					mu.Lock()
					for _, e := range entries {
						if f, ok := parseFound(e); ok && len(found) < maxFound {
							found[f.Instance] = f
						}
					}
					asked = asked || err == nil
					errs = append(errs, err)
					mu.Unlock()
					if err != nil {
						return // it will not work the next time
					}
				}
			})
		}
	}
	all.Wait()
	if !asked {
		return nil, fmt.Errorf("multicast DNS: %w", errors.Join(errs...))
	}
	sorted := make([]Found, 0, len(found))
	for _, f := range found {
		sorted = append(sorted, f)
	}
	slices.SortFunc(sorted, func(a, b Found) int {
		return strings.Compare(a.Domain.Name()+" "+a.Instance, b.Domain.Name()+" "+b.Instance)
	})
	return sorted, nil
}

// ask asks once, over one family, and returns what answers within a second.
func ask(ctx context.Context, at net.Interface, v6 bool, logger *log.Logger) ([]*mdns.ServiceEntry, error) {
	wait := askAgain
	if end, ok := ctx.Deadline(); ok {
		wait = max(time.Millisecond, min(wait, time.Until(end)))
	}
	entries := make(chan *mdns.ServiceEntry, perAnswer) // read only when nobody changes them any more
	err := mdns.QueryContext(ctx, &mdns.QueryParam{
		Service: adService, Domain: "local", Timeout: wait, Interface: &at, Entries: entries,
		DisableIPv4: v6, DisableIPv6: !v6, Logger: logger,
	})
	close(entries)
	var all []*mdns.ServiceEntry
	for e := range entries {
		all = append(all, e)
	}
	return all, err
}

// parseFound reads what somebody on the network has sent; false where it is no
// directory.
func parseFound(e *mdns.ServiceEntry) (f Found, ok bool) {
	instance, of := strings.CutSuffix(e.Name, "."+adService+".local.")
	if !of || e.Port < 1 || e.Port > 65535 {
		return Found{}, false
	}
	f.Instance, f.Path = instance, wellKnown
	switch {
	case e.AddrV4 != nil:
		f.Host = e.AddrV4.String()
	case e.AddrV6IPAddr != nil:
		f.Host = e.AddrV6IPAddr.String()
	}
	f.Host = net.JoinHostPort(f.Host, strconv.Itoa(e.Port))
	f.URL = (&url.URL{Scheme: "https", Host: f.Host}).String() // a zone is escaped in it
	for _, text := range e.InfoFields {
		if name, ok := strings.CutPrefix(text, txtDomain); ok {
			td, err := spiffeid.TrustDomainFromString(name)
			if err != nil || td.Name() != name {
				return Found{}, false
			}
			f.Domain = td
		}
		if path, ok := strings.CutPrefix(text, txtPath); ok {
			f.Path = path
		}
		if base, ok := strings.CutPrefix(text, txtURL); ok {
			u, err := url.Parse(base)
			if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
				return Found{}, false
			}
			f.URL = base
		}
	}
	return f, !f.Domain.IsZero() && strings.HasPrefix(f.Path, "/")
}
