package dnssd

import (
	"errors"
	"net"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// The groups of multicast DNS (RFC 6762, 3).
var groups = map[string]*net.UDPAddr{
	"udp4": {IP: net.IPv4(224, 0, 0, 251), Port: 5353},
	"udp6": {IP: net.ParseIP("ff02::fb"), Port: 5353},
}

// goodbyeTime bounds the sending of one packet.
const goodbyeTime = time.Second

// goodbye returns the packet by which caches forget a service at once: its PTR record with
// a TTL of 0 (RFC 6762, 10.1).
func goodbye(instance string) ([]byte, error) {
	service, err1 := dnsmessage.NewName(serviceType + ".local.")

	name, err2 := dnsmessage.NewName(instance + "." + serviceType + ".local.")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}

	message := dnsmessage.Message{
		Header: dnsmessage.Header{Response: true, Authoritative: true},
		Answers: []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: service, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.PTRResource{PTR: name},
		}},
	}

	return message.Pack()
}

// sendGoodbye sends the packet on an interface, to each address family that it has. A
// family that it lacks is no error.
func sendGoodbye(instance string, at net.Interface) error {
	packet, err := goodbye(instance)
	if err != nil {
		return err
	}

	sent := false

	for network, group := range groups {
		// Receivers ignore packets from other ports than the group's (RFC 6762, 6).
		conn, listening := net.ListenMulticastUDP(network, &at, group)
		if listening != nil {
			err = errors.Join(err, listening)
			continue
		}

		to := *group
		if network == "udp6" {
			to.Zone = at.Name
		}

		_ = conn.SetWriteDeadline(time.Now().Add(goodbyeTime))
		_, sending := conn.WriteToUDP(packet, &to)
		sent = sent || sending == nil
		err = errors.Join(err, sending, conn.Close())
	}

	if sent {
		return nil
	}

	return err
}
