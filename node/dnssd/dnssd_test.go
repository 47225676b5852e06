package dnssd

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/mdns"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/net/dns/dnsmessage"
)

// A node's name on the network is one DNS label, and its own.
//
// Requirement: AD-007
func TestInstanceIsALabel(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{
		"spiffe://alpha.test/roster/node/1", "spiffe://alpha.test/roster/node/2", "spiffe://alpha-test/roster/node/1",
		"spiffe://" + strings.Repeat("a.", 100) + "test/roster/node/1", "spiffe://alpha.test/roster/node/A_b",
	} {
		name := instanceName(spiffeid.RequireFromString(id))
		if len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || seen[name] {
			t.Errorf("%s is called %q", id, name)
		}

		seen[name] = true
	}
}

// What others on the network send is a directory or nothing.
func TestParseFound(t *testing.T) {
	good := func() *mdns.ServiceEntry {
		return &mdns.ServiceEntry{
			Name: "alpha-1._ad._tcp.local.", AddrV4: net.IPv4(10, 0, 0, 1), Port: 8400,
			InfoFields: []string{"path=/.well-known/ad", "td=alpha.test", "url=https://ad.alpha.test", "colour=blue",
				""},
		}
	}

	want := Found{spiffeid.RequireTrustDomainFromString("alpha.test"), "https://ad.alpha.test", "10.0.0.1:8400",
		"/.well-known/ad", "alpha-1"}
	if f, ok := parseFound(good()); !ok || f != want {
		t.Errorf("got %+v, %v", f, ok)
	}

	for name, change := range map[string]func(*mdns.ServiceEntry){
		"another service":  func(e *mdns.ServiceEntry) { e.Name = "printer._ipp._tcp.local." },
		"no trust domain":  func(e *mdns.ServiceEntry) { e.InfoFields = e.InfoFields[:1] },
		"no domain at all": func(e *mdns.ServiceEntry) { e.InfoFields[1] = "td=Not One" },
		"no name":          func(e *mdns.ServiceEntry) { e.InfoFields[1] = "td=spiffe://alpha.test/agent" },
		"plain http":       func(e *mdns.ServiceEntry) { e.InfoFields[2] = "url=http://ad.alpha.test" },
		"a URL with more":  func(e *mdns.ServiceEntry) { e.InfoFields[2] = "url=https://me@ad.alpha.test" },
		"no path":          func(e *mdns.ServiceEntry) { e.InfoFields[0] = "path=http://x" },
		"no port":          func(e *mdns.ServiceEntry) { e.Port = 0 },
	} {
		e := good()
		change(e)

		if f, ok := parseFound(e); ok {
			t.Errorf("%s is taken for %+v", name, f)
		}
	}

	e := good()

	e.AddrV4, e.InfoFields, e.AddrV6IPAddr = nil, []string{"td=alpha.test"}, &net.IPAddr{IP: net.ParseIP("fe80::1"),
		Zone: "eth0"}
	if f, ok := parseFound(e); !ok || f.URL != "https://[fe80::1%25eth0]:8400" || f.Path != wellKnownPath {
		t.Errorf("without a URL: %+v, %v", f, ok)
	}
}

// An interface answers with the addresses at which the directory listens, and a
// node that listens at none of them doesn't start.
func TestDNSSDNeedsAnAddress(t *testing.T) {
	lo, err := interfaces([]string{"lo"})
	if err != nil {
		t.Skip("there is no lo: ", err)
	}

	if ips, err := reachable(lo[0], net.IPv4(127, 0, 0, 1)); err != nil || len(ips) != 1 {
		t.Errorf("127.0.0.1: %v, %v", ips, err)
	}

	if ips, err := reachable(lo[0], net.IPv4(192, 0, 2, 1)); err != nil || len(ips) != 0 {
		t.Errorf("192.0.2.1: %v, %v", ips, err)
	}

	ada := Directory{Node: spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1"),
		Listener: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8400}}
	if _, err := announce(Config{Interfaces: []string{"lo"}}, ada, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "192.0.2.1") {
		t.Errorf("got %v", err)
	}

	ada.Listener = &net.TCPAddr{IP: net.IPv4zero, Port: 8400}
	if _, err := announce(Config{Interfaces: []string{"nowhere0"}}, ada, nil, nil); err == nil ||
		!strings.Contains(err.Error(), "nowhere0") {
		t.Errorf("got %v", err)
	}
}

// A service that starts is heard unasked, with all that a browser needs.
//
// Requirement: AD-007
func TestAnnouncement(t *testing.T) {
	packet, err := announcement(service{instance: "alpha-1", port: 8400, txt: []string{"path=/.well-known/ad"}},
		[]net.IP{net.IPv4(10, 0, 0, 1), net.ParseIP("fe80::1")})
	if err != nil {
		t.Fatal(err)
	}

	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || !m.Response || !m.Authoritative || len(m.Questions) != 0 {
		t.Fatalf("the packet is %+v, %v", m, err)
	}

	var got []string

	for _, a := range m.Answers {
		shared := a.Header.Type == dnsmessage.TypePTR
		if a.Header.TTL != 120 || shared == (a.Header.Class&cacheFlush != 0) {
			t.Errorf("the record is %+v", a)
		}

		got = append(got, a.Header.Name.String()+" "+a.Header.Type.String())
	}

	want := []string{"_ad._tcp.local. TypePTR", "alpha-1._ad._tcp.local. TypeSRV", "alpha-1._ad._tcp.local. TypeTXT",
		"alpha-1.local. TypeA", "alpha-1.local. TypeAAAA"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	if srv, ok := m.Answers[1].Body.(*dnsmessage.SRVResource); !ok || srv.Port != 8400 ||
		srv.Target.String() != "alpha-1.local." {
		t.Errorf("the SRV record is %+v", m.Answers[1])
	}
}

// Who stops is forgotten at once: the goodbye names the instance, with a TTL of 0.
//
// Requirement: AD-007
func TestGoodbye(t *testing.T) {
	packet, err := goodbye("alpha-1")
	if err != nil {
		t.Fatal(err)
	}

	var m dnsmessage.Message
	if err := m.Unpack(packet); err != nil || !m.Response || len(m.Answers) != 1 {
		t.Fatalf("the packet is %+v, %v", m, err)
	}

	answer := m.Answers[0]

	ptr, ok := answer.Body.(*dnsmessage.PTRResource)
	if !ok || answer.Header.TTL != 0 || answer.Header.Name.String() != "_ad._tcp.local." ||
		ptr.PTR.String() != "alpha-1._ad._tcp.local." {
		t.Errorf("the record is %+v", answer)
	}
}

// A host that forges answers takes no true answer's place, neither by the name of its instance nor by the
// number of answers, and the answer says that some are left out.
//
// Requirement: SEC-001
func TestForgedAnswersHideNoOther(t *testing.T) {
	entry := func(instance, domain, url string) *mdns.ServiceEntry {
		return &mdns.ServiceEntry{Name: instance + "._ad._tcp.local.", AddrV4: net.IPv4(10, 0, 0, 1), Port: 8400,
			InfoFields: []string{"td=" + domain, "url=" + url}}
	}
	s := &search{found: map[Found]bool{}}
	s.add([]*mdns.ServiceEntry{entry("alpha-1", "alpha.test", "https://ad.alpha.test")}, nil)

	for _, url := range []string{"https://127.0.0.1:1", "https://169.254.169.254", "https://ad.alpha.test.evil.test"} {
		for range 2 {
			s.add([]*mdns.ServiceEntry{entry("alpha-1", "alpha.test", url)}, nil)
		}
	}

	if found, full, err := s.result(); err != nil || full || len(found) != 4 || !slices.ContainsFunc(found,
		func(f Found) bool { return f.URL == "https://ad.alpha.test" }) {
		t.Errorf("found %+v, %v, %v", found, full, err)
	}

	for i := range maxFound {
		s.add([]*mdns.ServiceEntry{entry(fmt.Sprint("forged-", i), "alpha.test", "https://evil.test")}, nil)
	}

	if found, full, _ := s.result(); !full || len(found) != maxFound || found[0].Instance != "alpha-1" {
		t.Errorf("of a flood %d are kept, full %v, the first %+v", len(found), full, found[0])
	}

	s = &search{found: map[Found]bool{}}
	s.add(make([]*mdns.ServiceEntry, 0), nil)

	if _, full, _ := s.result(); full {
		t.Error("without an answer some are left out")
	}

	s.add(slices.Repeat([]*mdns.ServiceEntry{entry("alpha-1", "alpha.test", "https://ad.alpha.test")},
		entriesPerTime), nil)

	if _, full, _ := s.result(); !full {
		t.Error("of as many answers as the library keeps none may be left out")
	}
}

// An address family or an interface without a route is no failure, unless all are.
func TestASearchFailsIfNoneCouldAsk(t *testing.T) {
	s := &search{found: map[Found]bool{}}
	s.add(nil, net.ErrClosed)

	if _, _, err := s.result(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("where none could ask: %v", err)
	}

	s.add(nil, nil)

	if _, _, err := s.result(); err != nil {
		t.Errorf("where one could ask: %v", err)
	}
}

// A failure on one interface ends the answers on those before it. A URL that is too long for a TXT record is left
// out of it.
//
// Requirement: AD-007
func TestAnnouncementsEndTogether(t *testing.T) {
	directory := Directory{Node: spiffeid.RequireFromString("spiffe://alpha.test/roster/node/1"),
		PublicURL: "https://" + strings.Repeat("a", maxTXT), Listener: &net.TCPAddr{IP: net.IPv4zero, Port: 8400}}
	answering := 0

	_, err := announce(Config{Interfaces: []string{"lo", "lo"}}, directory, slog.New(slog.DiscardHandler),
		func(s service, _ net.Interface, _ []net.IP, _ *slog.Logger) (func() error, error) {
			if len(s.txt) != 2 {
				t.Errorf("the TXT record is %q", s.txt)
			}

			if answering++; answering > 1 {
				return nil, net.ErrClosed
			}

			return func() error { answering = 0; return nil }, nil
		})
	if !errors.Is(err, net.ErrClosed) || answering != 0 {
		t.Errorf("%v, and %d interfaces answer", err, answering)
	}
}

// A responder greets its network, and says goodbye after its last greeting, else others list it until its records
// expire.
//
// Requirement: AD-007
func TestTheLastWordIsAGoodbye(t *testing.T) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		t.Skip("there is no lo: ", err)
	}

	conn, err := net.ListenMulticastUDP("udp4", lo, groups["udp4"])
	if err != nil {
		t.Skip("there is no multicast on lo: ", err)
	}
	defer conn.Close()

	s := service{instance: fmt.Sprint("test-", time.Now().UnixNano()), port: 8400, txt: []string{"td=alpha.test"}}

	stop, err := respond(s, *lo, []net.IP{net.IPv4(127, 0, 0, 1)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Skip("multicast on lo: ", err)
	}

	if err := stop(); err != nil {
		t.Error(err)
	}

	// Two greetings would be a second apart.
	_ = conn.SetReadDeadline(time.Now().Add(announcementInterval + time.Second/2))

	var heard []uint32

	for packet := make([]byte, 9000); ; {
		n, err := conn.Read(packet)
		if err != nil {
			break
		}

		var m dnsmessage.Message
		if m.Unpack(packet[:n]) != nil || len(m.Answers) == 0 {
			continue
		}

		ptr, ok := m.Answers[0].Body.(*dnsmessage.PTRResource)
		if ok && strings.HasPrefix(ptr.PTR.String(), s.instance) {
			heard = append(heard, m.Answers[0].Header.TTL)
		}
	}

	if !slices.Equal(heard, []uint32{recordTTL, 0}) {
		t.Errorf("the TTLs of the packets are %v", heard)
	}
}
