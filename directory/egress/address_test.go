package egress_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/roster-mesh/roster/directory/egress"
)

var allowing = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fd00::/8")}

// An address is open, closed for everybody, or open to those that an allow list names. Every
// form that embeds an IPv4 address is closed, whatever that is, and so are metadata services.
//
// Requirement: SEC-010, WOA-018
func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		address                 string
		open, allowed, anywhere bool
	}{
		{"93.184.216.34", true, true, true},
		{"2606:2800:220:1::1", true, true, true},
		{"172.32.0.1", true, true, true},

		{"10.1.2.3", false, true, true},
		{"100.64.1.1", false, true, true},
		{"169.254.1.1", false, true, true},
		{"fd12::1", false, true, true},
		{"127.0.0.1", false, false, true},
		{"172.31.255.255", false, false, true},
		{"192.168.0.1", false, false, true},
		{"198.18.0.1", false, false, true},
		{"240.0.0.1", false, false, true},
		{"::1", false, false, true},
		{"fe80::1", false, false, true},
		{"fc00::1", false, false, true},
		{"2001:db8::1", false, false, true},
		{"3fff::1", false, false, true},

		{"0.0.0.0", false, false, false},
		{"224.0.0.1", false, false, false},
		{"255.255.255.255", false, false, false},
		{"::", false, false, false},
		{"ff02::1", false, false, false},
		{"fe80::1%eth0", false, false, false},

		// metadata services
		{"169.254.169.254", false, false, false},
		{"169.254.170.2", false, false, false},
		{"169.254.170.23", false, false, false},
		{"169.254.0.23", false, false, false},
		{"169.254.42.42", false, false, false},
		{"100.100.100.200", false, false, false},
		{"168.63.129.16", false, false, false},
		{"192.0.0.192", false, false, false},
		{"fd00:ec2::254", false, false, false},
		{"fd00:ec2::23", false, false, false},
		{"fd00:c1::a9fe:a9fe", false, false, false},
		{"fd00:42::42", false, false, false},
		{"fd20:ce::254", false, false, false},
		{"fe80::a9fe:a9fe", false, false, false},

		// forms that embed
		{"::ffff:10.0.0.1", false, false, false},      // mapped
		{"::ffff:93.184.216.34", false, false, false}, // … of a public one
		{"::10.0.0.1", false, false, false},           // compatible
		{"::ffff:0:10.0.0.1", false, false, false},    // translated
		{"64:ff9b::a00:1", false, false, false},       // NAT64
		{"64:ff9b::5db8:d822", false, false, false},
		{"64:ff9b::a9fe:a9fe", false, false, false},
		{"64:ff9b:1::a00:1", false, false, false}, // NAT64, local use
		{"64:ff9b:1:fffe::a9fe:a9fe", false, false, false},
		{"2002:a00:1::", false, false, false}, // 6to4
		{"2002:a9fe:a9fe::", false, false, false},
		{"2001:0:4136:e378::1", false, false, false},   // Teredo
		{"2606:2800::5efe:a00:1", false, false, false}, // ISATAP
		{"2606:2800::200:5efe:7f00:1", false, false, false},
		{"fd12::5efe:a9fe:a9fe", false, false, false},
		{"fe80::5efe:a00:1", false, false, false},
	} {
		addr := netip.MustParseAddr(tc.address)
		for name, list := range map[string]struct {
			allow []netip.Prefix
			want  bool
		}{
			"without a list": {nil, tc.open},
			"with a list":    {allowing, tc.allowed},
			"anywhere":       {egress.Anywhere, tc.anywhere},
		} {
			if err := egress.Check(addr, list.allow); (err == nil) != list.want {
				t.Errorf("%s, %s: %v", tc.address, name, err)
			}
		}
	}

	if egress.Check(netip.Addr{}, egress.Anywhere) == nil {
		t.Error("the zero address is open")
	}
}

// A dialer judges the address to which a name was resolved.
//
// Requirement: SEC-010
func TestControlJudgesTheResolvedAddress(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()

	_, port, _ := net.SplitHostPort(listener.Addr().String())

	closed := net.Dialer{Control: egress.Control(nil)}
	if conn, err := closed.DialContext(t.Context(), "tcp4", "localhost:"+port); err == nil {
		conn.Close()
		t.Error("loopback was reached by its name")
	}

	open := net.Dialer{Control: egress.Control(egress.Anywhere)}

	conn, err := open.DialContext(t.Context(), "tcp4", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}

	conn.Close()
}

// Only names and addresses of this machine are loopback, with a port or without.
func TestLoopback(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "localhost:80": true, "127.0.0.1": true, "127.9.0.1:80": true, "::1": true, "[::1]": true,
		"[::1]:80": true, "::ffff:127.0.0.1": true,
		"": false, ":80": false, "0.0.0.0:80": false, "[::]:80": false, "localhost.example": false, "10.0.0.1": false,
		"127.0.0.1.example:80": false,
	} {
		if got := egress.IsLoopback(host); got != want {
			t.Errorf("loopback of %q: got %t, want %t", host, got, want)
		}
	}
}
