// Package port explains why an address can't be listened on.
package port

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// An InUseError says that another socket listens at an address. It is syscall.EADDRINUSE.
type InUseError struct {
	// Key is the key of the configuration that has the address.
	Key string
	// Address is HOST:PORT.
	Address string
	// Holder is as Holder returns it.
	Holder string

	err error
}

// Error returns the address with its key and its holder.
func (e *InUseError) Error() string {
	text := e.Key + ": " + e.Address + " is in use"
	if e.Holder != "" {
		text += " by " + e.Holder
	}

	return text
}

// Unwrap returns the cause.
func (e *InUseError) Unwrap() error { return e.err }

// Explain returns the error of listening at the address that a key of the configuration has: an
// InUseError if another socket listens there.
func Explain(key, address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return &InUseError{Key: key, Address: address, Holder: Holder(address), err: err}
	}

	return fmt.Errorf("%s: %w", key, err)
}

// Holder names the process that listens at HOST:PORT, or at a part of these addresses, as "process
// 4711 (roster)". It returns nothing if the system has no /proc or doesn't show this process the
// other one's files.
func Holder(address string) string {
	socket := listeningSocket(address)
	if socket == "" {
		return ""
	}

	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+socket+"]" {
			pid := strings.Split(link, "/")[2]
			name, _ := os.ReadFile("/proc/" + pid + "/comm")

			return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(name)))
		}
	}

	return ""
}

// listeningSocket returns the inode of a socket that listens at HOST:PORT.
func listeningSocket(address string) string {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}

	number, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return ""
	}

	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}

		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line) // sl local remote state … inode: proc(5)

			// 0A is the state LISTEN.
			if len(fields) <= 9 || fields[3] != "0A" {
				continue
			}

			local, at, _ := strings.Cut(fields[1], ":")
			if at == fmt.Sprintf("%04X", number) && overlaps(host, parseAddress(local)) {
				return fields[9]
			}
		}
	}

	return ""
}

// overlaps reports whether a socket that listens at an address excludes another one at host, which
// is an address, a name, or empty for all addresses.
func overlaps(host string, at netip.Addr) bool {
	wanted, err := netip.ParseAddr(host)

	return err != nil || wanted.IsUnspecified() || at.IsUnspecified() || wanted.Unmap() == at
}

// parseAddress parses an address as the kernel's tables of sockets write it: words of four bytes
// in the order of this machine, which is taken to be little-endian.
func parseAddress(text string) netip.Addr {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw)%4 != 0 {
		return netip.Addr{}
	}

	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}

	address, _ := netip.AddrFromSlice(raw)

	return address.Unmap()
}
