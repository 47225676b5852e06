package dnssd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
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

// Bounds of one search.
const (
	maxFound       = 1000
	queryTime      = time.Second // of one query, which is repeated because packets get lost
	entriesPerTime = 256         // of one query
)

// A Found directory is one that a host on the local network announces. Nothing of it is
// authenticated.
type Found struct {
	Domain   spiffeid.TrustDomain
	URL      string // the domain's public URL; if it announces none, of Host
	Host     string // HOST:PORT of the node that answered
	Path     string // of the well-known document
	Instance string
}

// A Browser finds directories on the local network by DNS-SD. The zero value asks on all
// interfaces that are up and support multicast.
type Browser struct {
	Interfaces []string // names
	Logger     *slog.Logger
}

// Browse asks until ctx ends, and returns the directories that answered, by domain; full reports that there
// were more answers than it keeps. It returns an error if it could ask on no interface.
func (b Browser) Browse(ctx context.Context) (found []Found, full bool, err error) {
	all, err := interfaces(b.Interfaces)
	if err != nil {
		return nil, false, err
	}

	logger := b.Logger
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))

	search := &search{found: map[Found]bool{}}

	var queries sync.WaitGroup

	for _, at := range all {
		for _, v6 := range []bool{false, true} {
			queries.Go(func() { search.run(ctx, at, v6, debugLogger(logger)) })
		}
	}

	queries.Wait()

	return search.result()
}

// A search collects the answers of one Browse.
type search struct {
	mu sync.Mutex // guards the rest
	// found has whole answers: one with the instance of another directory takes no answer's place.
	found map[Found]bool
	full  bool
	asked bool
	errs  []error
}

// run asks on one interface and address family until ctx ends or a query fails.
func (s *search) run(ctx context.Context, at net.Interface, v6 bool, logger *log.Logger) {
	for ctx.Err() == nil {
		entries, err := query(ctx, at, v6, logger)
		s.add(entries, err)

		// A repetition would fail for the same reason: there is no route.
		if err != nil {
			return
		}
	}
}

func (s *search) add(entries []*mdns.ServiceEntry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, entry := range entries {
		found, ok := parseFound(entry)

		switch {
		case !ok || s.found[found]:
		case len(s.found) == maxFound:
			s.full = true
		default:
			s.found[found] = true
		}
	}

	// The library drops the answers of a query over this number.
	s.full = s.full || len(entries) == entriesPerTime

	if err == nil {
		s.asked = true
	} else {
		s.errs = append(s.errs, err)
	}
}

func (s *search) result() (found []Found, full bool, err error) {
	if !s.asked {
		return nil, false, fmt.Errorf("multicast DNS: %w", errors.Join(s.errs...))
	}

	return slices.SortedFunc(maps.Keys(s.found), func(a, b Found) int {
		return cmp.Or(strings.Compare(a.Domain.Name(), b.Domain.Name()), strings.Compare(a.Instance, b.Instance),
			strings.Compare(a.URL, b.URL), strings.Compare(a.Host, b.Host), strings.Compare(a.Path, b.Path))
	}), s.full, nil
}

// query asks once, over one address family, and returns the answers of queryTime.
func query(ctx context.Context, at net.Interface, v6 bool, logger *log.Logger) ([]*mdns.ServiceEntry, error) {
	wait := queryTime
	if end, ok := ctx.Deadline(); ok {
		wait = max(time.Millisecond, min(wait, time.Until(end)))
	}

	// The entries are read after the query, when the library no longer changes them.
	entries := make(chan *mdns.ServiceEntry, entriesPerTime)
	err := mdns.QueryContext(ctx, &mdns.QueryParam{
		Service:     serviceType,
		Domain:      "local",
		Timeout:     wait,
		Interface:   &at,
		Entries:     entries,
		DisableIPv4: v6,
		DisableIPv6: !v6,
		Logger:      logger,
	})
	close(entries)

	var all []*mdns.ServiceEntry
	for entry := range entries {
		all = append(all, entry)
	}

	return all, err
}

// parseFound parses an answer; ok is false if it is not a directory's.
func parseFound(entry *mdns.ServiceEntry) (found Found, ok bool) {
	instance, ok := strings.CutSuffix(entry.Name, "."+serviceType+".local.")
	if !ok || entry.Port < 1 || entry.Port > 65535 {
		return Found{}, false
	}

	found = Found{Instance: instance, Path: wellKnownPath}

	switch {
	case entry.AddrV4 != nil:
		found.Host = entry.AddrV4.String()
	case entry.AddrV6IPAddr != nil:
		found.Host = entry.AddrV6IPAddr.String()
	}

	found.Host = net.JoinHostPort(found.Host, strconv.Itoa(entry.Port))
	found.URL = (&url.URL{Scheme: "https", Host: found.Host}).String() // escapes a zone

	for _, text := range entry.InfoFields {
		if !found.set(text) {
			return Found{}, false
		}
	}

	return found, !found.Domain.IsZero() && strings.HasPrefix(found.Path, "/")
}

// set takes one string of the TXT record; it returns false if its value is invalid.
// Unknown keys are ignored.
func (f *Found) set(text string) bool {
	if name, ok := strings.CutPrefix(text, txtDomain); ok {
		td, err := spiffeid.TrustDomainFromString(name)
		f.Domain = td

		return err == nil && td.Name() == name
	}

	if path, ok := strings.CutPrefix(text, txtPath); ok {
		f.Path = path
		return true
	}

	if base, ok := strings.CutPrefix(text, txtURL); ok {
		f.URL = base
		return isBaseURL(base)
	}

	return true
}

// isBaseURL reports whether text is https://HOST[:PORT] and nothing else.
func isBaseURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && text == "https://"+u.Host
}
