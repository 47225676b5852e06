package port

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

func TestAnAddressInUseNamesItsHolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has the tables of sockets")
	}

	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}

	own := fmt.Sprintf("process %d (%s)", os.Getpid(), strings.TrimSpace(string(name)))

	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		listener, err := net.Listen("tcp", at)
		if err != nil {
			t.Logf("%s: %v", at, err) // a machine without IPv6
			continue
		}

		defer func() { _ = listener.Close() }()

		address := listener.Addr().String()

		_, err = net.Listen("tcp", address)
		explained := Explain("listen.api", address, err)

		var inUse *InUseError
		if !errors.As(explained, &inUse) || !errors.Is(explained, syscall.EADDRINUSE) || inUse.Holder != own ||
			explained.Error() != "listen.api: "+address+" is in use by "+own {
			t.Errorf("%s: %v, want %s", address, explained, own)
		}
	}
}

func TestAFreeAddressHasNoHolder(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	address := listener.Addr().String()
	elsewhere := strings.Replace(address, "127.0.0.1:", "127.0.0.2:", 1)

	if got := Holder(elsewhere); got != "" {
		t.Errorf("%s is held by %s, which listens at %s", elsewhere, got, address)
	}

	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}

	for _, free := range []string{address, "127.0.0.1", "127.0.0.1:http", ""} {
		if got := Holder(free); got != "" {
			t.Errorf("%q is held by %s", free, got)
		}
	}
}

func TestAddressesOfTheKernel(t *testing.T) {
	for text, want := range map[string]string{
		"0100007F":                         "127.0.0.1",
		"00000000":                         "0.0.0.0",
		"0000000000000000FFFF00000100007F": "127.0.0.1",
		"00000000000000000000000001000000": "::1",
		"00000000000000000000000000000000": "::",
	} {
		if got := parseAddress(text); got != netip.MustParseAddr(want) {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
