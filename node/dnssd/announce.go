// Package dnssd announces a node's directory on the local network, and finds those that
// others announce, by DNS-SD over multicast DNS (jimenez 3.2, RFC 6763).
//
// Announcements are not authenticated: any host on the network can send any. A client
// decides by the bundles that it trusts, never by an answer of this package.
//
// hashicorp/mdns needs some care. Without a logger it uses the process's; it logs every
// malformed packet of others as an error. Its client asks once, hands out entries that it
// still changes, among them those of other services, and waits for its whole timeout even
// if its context ends. An address family without a route makes the query of the other one
// fail too. On a host with another multicast DNS program on more interfaces, its responder
// receives questions from there too, and answers with the addresses that it was given. Its
// responder hands no question's known answers out, so an asker that lists this service gets it
// again (RFC 6762, 7.1 forbids that): a packet for each question that a browser repeats.
package dnssd

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/mdns"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The service, and the strings of its TXT record: the path of the well-known document,
// the trust domain, and the directory's public URL (AD-007).
const (
	serviceType   = "_ad._tcp"
	txtPath       = "path="
	txtDomain     = "td="
	txtURL        = "url="
	wellKnownPath = "/.well-known/ad"
	maxTXT        = 255 // bytes of one string
	maxLabel      = 50  // bytes of the readable part of an instance name
)

// A service that starts is announced twice, a second apart (RFC 6762, 8.3). Else a browser
// that runs already finds it by its next question, up to an hour later.
const (
	announcements        = 2
	announcementInterval = time.Second
)

// maxInterfaces bounds the interfaces that are answered or asked on.
const maxInterfaces = 16

// Config configures whether and on which interfaces a node announces its directory.
// Without names it uses all interfaces that are up and support multicast, except
// loopback.
type Config struct {
	Enabled    bool     `yaml:"enabled"`
	Interfaces []string `yaml:"interfaces"`
}

// Validate reports each key with an invalid value.
func (c *Config) Validate(domain spiffeid.TrustDomain, report func(key, format string, args ...any)) {
	if n := len(c.Interfaces); n > maxInterfaces {
		report("dns_sd.interfaces", "at most %d are allowed, got %d", maxInterfaces, n)
	}

	if slices.Contains(c.Interfaces, "") {
		report("dns_sd.interfaces", "an interface name is empty")
	}

	if c.Enabled && len(txtDomain)+len(domain.Name()) > maxTXT {
		report("dns_sd.enabled", "the trust domain's name is too long for a TXT record")
	}
}

// A Directory is the directory that a node announces.
type Directory struct {
	Node      spiffeid.ID
	PublicURL string
	Listener  net.Addr // of the API
}

// An Announcer answers DNS-SD questions for one directory.
type Announcer struct {
	stops []func() error
}

// Close stops answering.
func (a *Announcer) Close() error {
	var err error
	for _, stop := range a.stops {
		err = errors.Join(err, stop())
	}

	return err
}

// Announce answers questions for a directory on the configured interfaces that have an
// address of its listener; an error is returned if none has. The Announcer must be closed.
func Announce(cfg Config, directory Directory, log *slog.Logger) (*Announcer, error) {
	return announce(cfg, directory, log, respond)
}

// A responder starts answering on one interface with some addresses.
type responder func(s service, at net.Interface, addresses []net.IP, log *slog.Logger) (stop func() error, err error)

// A service is the content of the records.
type service struct {
	instance string // one DNS label, unique on the network
	port     int
	txt      []string
}

func announce(cfg Config, directory Directory, log *slog.Logger, start responder) (_ *Announcer, err error) {
	listener, ok := directory.Listener.(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("dns_sd: %s, the listener's address, is not a TCP address", directory.Listener)
	}

	found, err := interfaces(cfg.Interfaces)
	if err != nil {
		return nil, fmt.Errorf("dns_sd.interfaces: %w", err)
	}

	// A failure on one interface ends the answers on those before it.
	announcer := &Announcer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, announcer.Close())
		}
	}()

	s := service{instance: instanceName(directory.Node), port: listener.Port, txt: txtOf(directory)}

	for _, at := range found {
		addresses, err := reachable(at, listener.IP)
		if err != nil {
			return nil, fmt.Errorf("dns_sd: %w", err)
		}

		if len(addresses) == 0 {
			continue
		}

		stop, err := start(s, at, addresses, log)
		if err != nil {
			return nil, fmt.Errorf("dns_sd: on %s: %w", at.Name, err)
		}

		announcer.stops = append(announcer.stops, stop)
	}

	if len(announcer.stops) == 0 {
		return nil, fmt.Errorf("dns_sd: no interface has the listener's address, %s", listener)
	}

	log.Info("announcing the directory on the local network",
		"service", serviceType, "instance", s.instance, "interfaces", len(announcer.stops))

	return announcer, nil
}

func respond(s service, at net.Interface, addresses []net.IP, log *slog.Logger) (func() error, error) {
	zone, err := mdns.NewMDNSService(
		s.instance, serviceType, "local.", s.instance+".local.", s.port, addresses, s.txt)
	if err != nil {
		return nil, err
	}

	server, err := mdns.NewServer(&mdns.Config{Zone: zone, Iface: &at, Logger: debugLogger(log)})
	if err != nil {
		return nil, err
	}

	hello, err1 := announcement(s, addresses)

	farewell, err2 := goodbye(s.instance)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, server.Shutdown())
	}

	say := func(packet []byte) {
		if err := send(packet, at); err != nil {
			log.Debug("an announcement was not sent", "interface", at.Name, "err", err)
		}
	}

	ending := make(chan struct{})

	var announcing sync.WaitGroup

	announcing.Go(func() {
		for range announcements {
			say(hello)

			select {
			case <-time.After(announcementInterval):
			case <-ending:
				return
			}
		}
	})

	return func() error {
		// A greeting behind the farewell would list the directory again, so the greetings end first.
		close(ending)
		announcing.Wait()

		err := server.Shutdown()
		say(farewell) // else others list the directory until its records expire

		return err
	}, nil
}

// debugLogger lowers the level of the library's messages, most of which are about
// packets of others.
func debugLogger(to *slog.Logger) *log.Logger {
	return slog.NewLogLogger(to.Handler(), slog.LevelDebug)
}

func txtOf(directory Directory) []string {
	txt := []string{txtPath + wellKnownPath, txtDomain + directory.Node.TrustDomain().Name()}
	if url := txtURL + directory.PublicURL; len(url) <= maxTXT {
		txt = append(txt, url)
	}

	return txt
}

// instanceName makes a readable DNS label that no other node has.
func instanceName(id spiffeid.ID) string {
	last := id.Path()[strings.LastIndexByte(id.Path(), '/'):]
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}

		return '-'
	}, id.TrustDomain().Name()+last)

	sum := sha256.Sum256([]byte(id.String()))

	return readable[:min(len(readable), maxLabel)] + "-" + hex.EncodeToString(sum[:4])
}

// interfaces returns the named interfaces, or all that DNS-SD can use.
func interfaces(names []string) ([]net.Interface, error) {
	var found []net.Interface

	for _, name := range names {
		at, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}

		found = append(found, *at)
	}

	if len(names) > 0 {
		return found, nil
	}

	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}

	for _, at := range all {
		usable := at.Flags&net.FlagUp != 0 && at.Flags&net.FlagMulticast != 0 && at.Flags&net.FlagLoopback == 0
		if usable && len(found) < maxInterfaces {
			found = append(found, at)
		}
	}

	if len(found) == 0 {
		return nil, errors.New("no network interface is up and supports multicast")
	}

	return found, nil
}

// reachable returns the addresses of an interface on which the directory listens.
func reachable(at net.Interface, listener net.IP) ([]net.IP, error) {
	addrs, err := at.Addrs()
	if err != nil {
		return nil, fmt.Errorf("addresses of %s: %w", at.Name, err)
	}

	var ips []net.IP

	for _, addr := range addrs {
		network, ok := addr.(*net.IPNet)
		if ok && (listener.IsUnspecified() || listener.Equal(network.IP)) {
			ips = append(ips, network.IP)
		}
	}

	return ips, nil
}
