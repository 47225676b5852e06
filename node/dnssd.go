package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// DNS-SD makes a directory known on the local network (jimenez 3.2, RFC 6763). It
// proves nothing: whoever is on the network may say the same, so a client goes by
// what it trusts already, never by what it finds.

// DNSSD is whether and where a node makes its directory known by DNS-SD.
type DNSSD struct {
	Enabled    bool     `yaml:"enabled"`
	Interfaces []string `yaml:"interfaces"`
}

// maxInterfaces bounds where a node answers and a client asks.
const maxInterfaces = 16

func (c *Config) validateDNSSD() error {
	switch d := c.DNSSD; {
	case len(d.Interfaces) > maxInterfaces:
		return fmt.Errorf("dns_sd.interfaces: %d are given; at most %d can be", len(d.Interfaces), maxInterfaces)
	case slices.Contains(d.Interfaces, ""):
		return errors.New("dns_sd.interfaces: one of them has no name")
	case d.Enabled && len(txtDomain)+len(c.TrustDomain.Name()) > maxText:
		return errors.New("dns_sd.enabled: the trust domain's name is too long for a TXT record")
	}
	return nil
}

// The service, and the texts of its TXT record: the well-known document's path,
// the trust domain, and what the domain calls its directory (AD-007).
const (
	adService = "_ad._tcp"
	txtPath   = "path="
	txtDomain = "td="
	txtURL    = "url="
	wellKnown = "/.well-known/ad"
	maxText   = 255 // bytes of one text
)

// A service is what a node makes known.
type service struct {
	instance string // one DNS label, unique on the network
	port     int
	txt      []string
}

// A responder answers the questions for a service that come in at an interface,
// with those addresses, until stop is called.
type responder interface {
	respond(s service, at net.Interface, addresses []net.IP) (stop func() error, err error)
}

// wireDNSSD makes the directory that listens at api known, if that is wanted.
func (n *Node) wireDNSSD(api net.Addr, r responder) error {
	if !n.cfg.DNSSD.Enabled {
		return nil
	}
	tcp, ok := api.(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("dns_sd: the directory listens at %s, which is no TCP address", api)
	}
	found, err := interfaces(n.cfg.DNSSD.Interfaces)
	if err != nil {
		return fmt.Errorf("dns_sd.interfaces: %w", err)
	}
	s := service{instance: instanceOf(n.id), port: tcp.Port, txt: textsOf(&n.cfg)}
	known := 0
	for _, at := range found {
		addresses, err := reachable(at, tcp.IP)
		if err != nil {
			return fmt.Errorf("dns_sd: %w", err)
		}
		if len(addresses) == 0 {
			continue
		}
		stop, err := r.respond(s, at, addresses)
		if err != nil {
			return fmt.Errorf("dns_sd: on %s: %w", at.Name, err)
		}
		n.life.onStop("dns_sd", func(context.Context) error { return stop() })
		known++
	}
	if known == 0 {
		return fmt.Errorf("dns_sd: no interface for it has the address that the directory listens at, %s", tcp)
	}
	n.log.Info("known on the local network", "service", adService, "instance", s.instance, "interfaces", known)
	return nil
}

func textsOf(c *Config) []string {
	txt := []string{txtPath + wellKnown, txtDomain + c.TrustDomain.Name()}
	if url := txtURL + c.PublicURL; len(url) <= maxText {
		txt = append(txt, url)
	}
	return txt
}

// instanceOf names a node in one DNS label: readable, and its own.
func instanceOf(id spiffeid.ID) string {
	sum := sha256.Sum256([]byte(id.String()))
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, id.TrustDomain().Name()+id.Path()[strings.LastIndexByte(id.Path(), '/'):])
	return readable[:min(len(readable), 50)] + "-" + hex.EncodeToString(sum[:4])
}

// interfaces returns those of the names, or all that DNS-SD is for.
func interfaces(names []string) ([]net.Interface, error) {
	var found []net.Interface
	for _, name := range names {
		i, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		found = append(found, *i)
	}
	if len(names) > 0 {
		return found, nil
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Flags&net.FlagUp != 0 && i.Flags&net.FlagMulticast != 0 && i.Flags&net.FlagLoopback == 0 && len(found) < maxInterfaces {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no network interface is up and speaks multicast")
	}
	return found, nil
}

// reachable returns an interface's addresses at which the directory listens.
func reachable(at net.Interface, listens net.IP) ([]net.IP, error) {
	addrs, err := at.Addrs()
	if err != nil {
		return nil, fmt.Errorf("the addresses of %s: %w", at.Name, err)
	}
	var ips []net.IP
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && (listens.IsUnspecified() || listens.Equal(n.IP)) {
			ips = append(ips, n.IP)
		}
	}
	return ips, nil
}
